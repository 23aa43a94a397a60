//! What a worker promises when it takes an attempt, and what it leaves when it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

#[path = "fixtures/assignment.rs"]
mod fixture;

use std::collections::BTreeMap;

use agent::attempt::directory::{Accepted, StateDir};
use agent::attempt::{Deps, EngineSource};
use agent::container::discover::Surroundings;
use agent::container::image::PullPolicy;
use agent::ids::{AttemptId, Generation};
use agent::link::{Refusal, Runner as _};
use agent::worker::{LocalRunner, Worker};

use fixture::assignment;

fn worker(root: &std::path::Path) -> LocalRunner {
    let deps = Deps {
        state: StateDir::open(root).unwrap(),
        worker: "w".parse().unwrap(),
        engine: EngineSource::new(Some("/nowhere.sock".parse().unwrap()), Surroundings::from_env()),
        images: BTreeMap::new(),
        pull: PullPolicy::Never,
        instances: BTreeMap::new(),
        supply: None,
    };
    LocalRunner(Worker::new(deps, agent::wire::worker::WorkerFacts::default()))
}

#[tokio::test]
async fn an_attempt_whose_directory_cannot_be_made_is_refused_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let runner = worker(dir.path());
    let assignment = assignment();
    let path = runner.0.state().attempt_path(assignment.attempt);
    std::fs::write(&path, "in the way").unwrap();
    let refused = runner.offer(assignment, Generation(1)).await.unwrap_err();
    assert!(matches!(refused, Refusal::Unfit(_)), "{refused}");
    assert!(runner.attempts().is_empty());
}

#[tokio::test]
async fn a_refused_attempt_is_never_found_and_run_later() {
    let dir = tempfile::tempdir().unwrap();
    let runner = worker(dir.path());
    let assignment = assignment();
    let attempt = assignment.attempt;
    // Its event log cannot be opened: the acceptance fails half-way.
    let path = runner.0.state().attempt_path(attempt);
    std::fs::create_dir_all(path.join("events.jsonl")).unwrap();
    let refused = runner.offer(assignment, Generation(1)).await.unwrap_err();
    assert!(matches!(refused, Refusal::Unfit(_)), "{refused}");
    assert!(Worker::orphans(runner.0.state()).unwrap().is_empty());
    assert!(!path.exists());
}

#[tokio::test]
async fn an_attempt_without_an_engine_ends_with_a_receipt_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let runner = worker(dir.path());
    let assignment = assignment();
    let attempt = assignment.attempt;
    runner.offer(assignment, Generation(1)).await.unwrap();
    runner.0.idle().await;
    let held = runner.attempts();
    assert!(held[0].terminal);
    let receipt = std::fs::read_to_string(runner.0.state().attempt_path(attempt).join("receipt.json")).unwrap();
    let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!((&receipt["status"], &receipt["processStarted"]), (&"child-failed".into(), &false.into()));
    let message = receipt["failureDetail"].as_str().unwrap();
    assert!(message.contains("/nowhere.sock"), "{message}");
    runner.release(attempt);
    assert!(runner.attempts().is_empty() && Worker::orphans(runner.0.state()).unwrap().is_empty());
}

fn configured(root: &std::path::Path, config: &str) -> LocalRunner {
    let file = root.join("config.toml");
    let config = agent::config::Config::parse(config, &file, &BTreeMap::new()).unwrap();
    let deps = Deps {
        state: StateDir::open(root).unwrap(),
        worker: "w".parse().unwrap(),
        engine: EngineSource::new(Some("/nowhere.sock".parse().unwrap()), Surroundings::from_env()),
        images: BTreeMap::new(),
        pull: PullPolicy::Never,
        instances: config.instances,
        supply: None,
    };
    LocalRunner(Worker::new(deps, agent::wire::worker::WorkerFacts::default()))
}

fn receipt(runner: &LocalRunner, attempt: AttemptId) -> serde_json::Value {
    let path = runner.0.state().attempt_path(attempt).join("receipt.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn an_account_of_the_worker_brings_its_own_variables_and_none_is_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let account = "[instances.work]\ndriver = 'claude'\nenvironment = { ANTHROPIC_API_KEY = 'sk-of-the-worker' }";
    let runner = configured(dir.path(), account);
    let mut assignment = assignment();
    assignment.instance = Some("work".parse().unwrap());
    // A metered key, which the caller does not have, against a policy that denies its use.
    assignment.api_spend = Some(agent::descriptor::ApiSpend::Deny);
    let attempt = assignment.attempt;
    runner.offer(assignment, Generation(1)).await.unwrap();
    runner.0.idle().await;
    assert_eq!(receipt(&runner, attempt)["status"], "billing-policy-blocked");
    let path = runner.0.state().attempt_path(attempt);
    for entry in std::fs::read_dir(path).unwrap() {
        let text = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&text).contains("sk-of-the-worker"));
    }
}

#[tokio::test]
async fn an_account_that_this_worker_does_not_have_is_looked_for_elsewhere_and_a_wrong_one_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let runner = configured(dir.path(), "[instances.other]\ndriver = 'codex'");
    let mut wanted = assignment();
    wanted.instance = Some("work".parse().unwrap());
    let refused = runner.offer(wanted, Generation(1)).await.unwrap_err();
    assert!(matches!(&refused, Refusal::Busy(why) if why.contains("work")), "{refused}");
    let mut wanted = assignment();
    wanted.instance = Some("other".parse().unwrap());
    let refused = runner.offer(wanted, Generation(1)).await.unwrap_err();
    assert!(matches!(&refused, Refusal::Unfit(why) if why.contains("codex")), "{refused}");
    assert!(Worker::orphans(runner.0.state()).unwrap().is_empty());
}

#[tokio::test]
async fn an_accepted_attempt_whose_records_are_damaged_is_not_offered_again() {
    let dir = tempfile::tempdir().unwrap();
    let runner = worker(dir.path());
    let assignment = assignment();
    let attempt = assignment.attempt;
    runner.offer(assignment.clone(), Generation(1)).await.unwrap();
    runner.0.idle().await;
    let successor = worker(dir.path());
    std::fs::write(successor.0.state().attempt_path(attempt).join("journal.jsonl"), "garbage\n{}\n").unwrap();
    let refused = successor.offer(assignment, Generation(2)).await.unwrap_err();
    assert!(matches!(refused, Refusal::Unfit(_)), "it may have run: nobody may run it again; {refused}");
}

#[tokio::test]
async fn an_adopted_attempt_asks_its_own_engine_and_nothing_is_proven_while_that_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let runner = worker(dir.path());
    let assignment = assignment();
    let attempt = assignment.attempt;
    let accepted = Accepted { generation: Generation(1), assignment };
    drop(runner.0.state().accept(&accepted).unwrap());
    let at = "\"at\":\"2026-01-01T00:00:00Z\"";
    let journal = format!(
        "{{\"seq\":1,{at},\"entry\":\"accepted\"}}\n\
         {{\"seq\":2,{at},\"entry\":\"container-intent\",\"name\":\"c\",\"image\":\"i\",\"engine\":\"unix:///away.sock\"}}\n"
    );
    std::fs::write(runner.0.state().attempt_path(attempt).join("journal.jsonl"), journal).unwrap();
    runner.0.adopt(attempt).unwrap();
    runner.0.idle().await;
    let receipt = receipt(&runner, attempt);
    let detail = receipt["failureDetail"].as_str().unwrap();
    assert!(detail.contains("/away.sock") && !detail.contains("/nowhere.sock"), "{detail}");
    assert_eq!(receipt["teardown"]["removed"], false, "{:#}", receipt["teardown"]);
    assert!(receipt["teardown"]["error"].as_str().unwrap().contains("/away.sock"), "{:#}", receipt["teardown"]);
}

/// A file system of its own that can be filled.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (kind, flags) = (Some("tmpfs"), nix::mount::MsFlags::empty());
        nix::mount::mount(kind, dir.path(), kind, flags, Some("size=2m,mode=700"))
            .expect("this test makes a small file system: run it as root");
        Self(dir)
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.path().join("somebody-elses")).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount(self.0.path());
    }
}

#[tokio::test]
async fn an_accepted_attempt_ends_durably_on_a_disk_that_is_full_by_then_and_no_new_one_is_taken() {
    let (disk, elsewhere) = (SmallDisk::new(), tempfile::tempdir().unwrap());
    // The account's login is held by somebody: the attempt waits for it, and the disk fills up meanwhile.
    let home = elsewhere.path().join("account");
    std::fs::create_dir_all(home.join(".claude")).unwrap();
    std::fs::write(home.join(".claude/.credentials.json"), "{}").unwrap();
    let lock = std::fs::File::create(home.join(".laneyard-login.lock")).unwrap();
    lock.lock().unwrap();
    let account = format!("[instances.work]\ndriver = 'claude'\nhome = '{}'", home.display());
    let runner = configured(disk.0.path(), &account);
    let mut assignment = assignment();
    assignment.instance = Some("work".parse().unwrap());
    let attempt = assignment.attempt;
    runner.offer(assignment, Generation(1)).await.unwrap();
    disk.fill();
    let refused = runner.offer(fixture::assignment(), Generation(1)).await.unwrap_err();
    assert!(matches!(refused, Refusal::Busy(_)), "{refused}");
    assert!(!runner.attempts()[0].terminal, "it waits");
    lock.unlock().unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(20), runner.0.idle()).await.expect("it ends");
    assert_eq!(receipt(&runner, attempt)["status"], "child-failed");
    let log = runner.log(attempt).unwrap();
    let last = log.read_from(log.last_seq() - 1, 1).unwrap().pop().unwrap();
    assert!(matches!(last.body, agent::event::EventBody::Terminal { .. }), "{last:?}");
}
