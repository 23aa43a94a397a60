//! What a worker promises when it takes an attempt, and what it leaves when it does not.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;

use agent::assignment::{Assignment, CallerPaths, CanonicalPaths, Limits};
use agent::attempt::directory::StateDir;
use agent::attempt::{Deps, EngineSource};
use agent::container::discover::Surroundings;
use agent::container::image::PullPolicy;
use agent::descriptor::{Contract, Effort, InnerSandbox, Mode, Parent, Provider};
use agent::ids::{AttemptId, Generation};
use agent::link::{Refusal, Runner as _};
use agent::worker::{LocalRunner, Worker};

fn assignment() -> Assignment {
    let text = |text: &str| text.to_owned();
    Assignment {
        attempt: AttemptId::generate(),
        execution_id: text("x"),
        parent: Parent::Codex,
        provider: Provider::Claude,
        model: text("sonnet"),
        effort: Effort::High,
        mode: Mode::ReadOnly,
        contract: Contract::Legacy,
        api_spend: None,
        paths: CallerPaths {
            cwd: text("/w"),
            prompt: text("/p"),
            output: text("/o"),
            receipt: text("/r"),
            progress: None,
            canonical: CanonicalPaths { cwd: text("/w"), output: text("/o"), receipt: text("/r") },
        },
        prompt: b"go".to_vec(),
        started_at: time::OffsetDateTime::now_utc(),
        timeout_ms: None,
        instance: None,
        environment: BTreeMap::new(),
        image: None,
        limits: Limits::default(),
        inner_sandbox: InnerSandbox::Prefer,
        extra_hosts: Vec::new(),
    }
}

fn worker(root: &std::path::Path) -> LocalRunner {
    let deps = Deps {
        state: StateDir::open(root).unwrap(),
        worker: "w".parse().unwrap(),
        engine: EngineSource::new(Some("/nowhere.sock".parse().unwrap()), Surroundings::from_env()),
        images: BTreeMap::new(),
        pull: PullPolicy::Never,
        instances: BTreeMap::new(),
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
    let message = receipt["error"]["message"].as_str().unwrap();
    assert!(message.contains("/nowhere.sock"), "{message}");
    runner.release(attempt);
    assert!(runner.attempts().is_empty() && Worker::orphans(runner.0.state()).unwrap().is_empty());
}
