//! What a writer left, on the machine of its client and on others.

use std::path::Path;
use std::process::Command;

use agent::ids::AttemptId;
use agent::wire::attempt::AttemptState;
use serde_json::json;

use crate::desk::{Desk, Seen, ended};
use crate::scripted::Scripted;
use crate::support::{Served, quick, soon, until_state};
use crate::writer::wrote;

pub(crate) fn git(dir: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(words).current_dir(dir);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A repository of what is in `dir`, with one commit.
pub(crate) fn committed(dir: &Path) {
    git(dir, &["init", "-q", "-b", "main"]);
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "-m", "first"]);
}

struct Lane {
    _dir: tempfile::TempDir,
    _served: Served,
    desk: Desk,
    attempt: AttemptId,
    seen: Seen,
}

/// A writer in a repository with one commit; `meanwhile` happens in the caller's directory before the lane ends.
async fn lane(write: impl FnOnce(&Path), meanwhile: impl FnOnce(&Path)) -> Lane {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let desk = Desk::at(&served);
    let repo = desk.path("repo");
    std::fs::write(repo.join(".gitignore"), "*.log\nbuild/\n").unwrap();
    std::fs::write(repo.join("file"), "first\n").unwrap();
    committed(&repo);
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let client = served.client();
    let (child, attempt) = desk.lane_that("isolated-write", &client, &["--verbose"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    let result = wrote(&served, "w1", attempt, write).await;
    meanwhile(&repo);
    worker.end_with(attempt, result);
    let seen = ended(child).await;
    Lane { _dir: dir, _served: served, desk, attempt, seen }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_git_ignores_does_not_come_home_and_that_is_said_and_written_down() {
    let write = |dir: &Path| {
        std::fs::write(dir.join("file"), "second\n").unwrap();
        std::fs::write(dir.join("trace.log"), "hours of work\n").unwrap();
        std::fs::create_dir(dir.join("build")).unwrap();
        std::fs::write(dir.join("build/one.o"), "object\n").unwrap();
    };
    let lane = lane(write, |_| {}).await;
    assert_eq!(lane.seen.code(), 0, "{}", lane.seen.err());
    assert!(lane.seen.err().contains("Git ignores build/, trace.log"), "{}", lane.seen.err());
    let result = &lane.desk.json("receipt.json")["result"];
    assert_eq!(result["outcome"], "applied");
    assert_eq!((&result["ignored"], &result["ignoredInAll"]), (&json!(["build/", "trace.log"]), &2.into()));
    assert!(!lane.desk.path("repo/trace.log").exists());
    let shown = lane.desk.run(&["result", "show", &lane.attempt.to_string()]).await;
    assert!(shown.err().contains("`trace.log` is ignored by Git"), "{}", shown.err());
    let shown = lane.desk.run(&["result", "show", &lane.attempt.to_string(), "--json"]).await;
    assert_eq!(shown.lines()[0]["ignored"], result["ignored"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn show_lists_empty_directories_too() {
    let write = |dir: &Path| {
        std::fs::write(dir.join("file"), "second\n").unwrap();
        std::fs::create_dir_all(dir.join("empty/inner")).unwrap();
    };
    let lane = lane(write, |_| {}).await;
    let shown = lane.desk.run(&["result", "show", &lane.attempt.to_string()]).await;
    assert_eq!(shown.out(), "added     empty/inner/\nchanged   file\n", "{}", shown.err());
    assert!(lane.desk.path("repo/empty/inner").is_dir());
    assert!(shown.err().contains("it was taken, or let go"), "{}", shown.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn show_says_of_an_empty_result_that_it_is_empty() {
    let lane = lane(|_| {}, |_| {}).await;
    let shown = lane.desk.run(&["result", "show", &lane.attempt.to_string()]).await;
    assert_eq!((shown.code(), shown.out().as_str()), (0, ""), "{}", shown.err());
    assert!(shown.err().contains("no path differs from what the lane started from"), "{}", shown.err());
}

/// Files of a change that takes a moment to be applied.
const MANY: usize = 500;

fn fill(dir: &Path, text: &str) {
    for number in 0..MANY {
        let path = dir.join(format!("d{}/f{number}", number % 9));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// How many files have this content, and how many are there.
fn counted(dir: &Path, text: &str) -> (usize, usize) {
    let all = (0..MANY).filter_map(|number| std::fs::read(dir.join(format!("d{}/f{number}", number % 9))).ok());
    let all: Vec<_> = all.collect();
    (all.iter().filter(|content| **content == text.as_bytes()).count(), all.len())
}

/// The directory in which an application that goes on keeps its files.
fn stage(repo: &Path) -> Option<std::path::PathBuf> {
    let mut entries = std::fs::read_dir(repo).unwrap().flatten().map(|entry| entry.path());
    entries.find(|path| path.to_string_lossy().contains("/.laneyard-apply-"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_while_it_applies_tears_nothing() {
    for words in [&["attach"][..], &["result", "apply"]] {
        let dir = tempfile::tempdir().unwrap();
        let served = Served::start(dir.path(), "127.0.0.1:0", quick());
        let desk = Desk::at(&served);
        let repo = desk.path("repo");
        fill(&repo, "old");
        committed(&repo);
        let worker = Scripted::new(1);
        let _stop = served.connect("w1", worker.clone());
        let (mut child, attempt) = desk.lane_that("isolated-write", &served.client(), &[]).await;
        worker.until_offered(attempt).await;
        worker.start(attempt);
        let result = wrote(&served, "w1", attempt, |dir| fill(dir, "new")).await;
        worker.end_with(attempt, result);
        // The moment is taken from what the client has done: from the journal on, files move.
        let watched = repo.clone();
        let moving = tokio::task::spawn_blocking(move || {
            while !stage(&watched).is_some_and(|stage| stage.join("journal").exists()) {
                std::thread::yield_now();
            }
        });
        soon(moving).await.unwrap();
        child.start_kill().unwrap();
        assert_eq!(ended(child).await.signal(), Some(9));
        assert!(stage(&repo).is_some(), "it was killed in the middle");
        let id = attempt.to_string();
        let settled = desk.run(&[words, &[id.as_str()]].concat()).await;
        assert_eq!(settled.code(), 0, "{words:?}: {}", settled.err());
        assert_eq!(counted(&repo, "new"), (MANY, MANY), "{words:?}");
        assert_eq!(stage(&repo), None, "nothing of it is left");
        let attached = desk.run(&["attach", &id]).await;
        assert_eq!(attached.code(), 0, "{}", attached.err());
        let receipt = desk.json("receipt.json");
        assert_eq!(receipt["result"]["outcome"], "applied", "{words:?}: {receipt:#}");
        assert_eq!(std::fs::read(desk.path("out.md")).unwrap(), b"written");
        assert_eq!(counted(&repo, "new"), (MANY, MANY), "{words:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_offered_for_a_result_that_is_refused_is_what_works() {
    let write = |dir: &Path| std::os::unix::fs::symlink("/etc/passwd", dir.join("way-out")).unwrap();
    let lane = lane(write, |_| {}).await;
    assert_eq!(lane.seen.code(), 70, "{}", lane.seen.err());
    let receipt = lane.desk.json("receipt.json");
    assert_eq!(receipt["result"]["outcome"], "refused", "{receipt:#}");
    let attempt = lane.attempt.to_string();
    let shown = lane.desk.run(&["result", "show", &attempt]).await.err();
    for said in [&lane.seen.err(), &shown] {
        assert!(said.contains("way-out") && !said.contains("result apply"), "{said}");
        for verb in ["export", "release"] {
            assert!(said.contains(&format!("laneyard result {verb} {attempt}")), "{said}");
        }
    }
    let patch = lane.desk.run(&["result", "export", &attempt]).await;
    assert!(patch.code() == 0 && patch.out().contains("way-out"), "{}", patch.err());
    assert_eq!(lane.desk.run(&["result", "release", &attempt]).await.code(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receipt_of_a_writer_that_is_lost_says_where_its_changes_are_and_they_come_home_later() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let desk = Desk::at(&served);
    let repo = desk.path("repo");
    std::fs::write(repo.join("file"), "first\n").unwrap();
    committed(&repo);
    let (worker, client) = (Scripted::new(1), served.client());
    let stop = served.connect("w1", worker.clone());
    let (child, attempt) = desk.lane_that("isolated-write", &client, &["--on-lost", "fail"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    until_state(&client, attempt, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    stop.cancel();
    let seen = ended(child).await;
    assert_eq!(seen.code(), 70, "{}", seen.err());
    let (receipt, id) = (desk.json("receipt.json"), attempt.to_string());
    let worktree = &receipt["worktree"];
    assert_eq!((&worktree["kind"], &worktree["access"]), (&json!("snapshot"), &json!("read-write")), "{worktree:#}");
    assert_eq!(worktree["path"], json!(repo.canonicalize().unwrap()));
    let result = &receipt["result"];
    assert_eq!((&result["outcome"], &result["tree"]), (&json!("unknown"), &json!(null)), "{result:#}");
    assert_eq!(result["worktree"], json!({"worker": "w1"}));
    for said in [&result["reason"], &receipt["error"]["message"]] {
        let said = said.as_str().unwrap();
        assert!(said.contains("still with the worker"), "{said}");
        assert!(said.contains(&format!("laneyard result show {id}")), "{said}");
    }
    let _back = served.connect("w1", worker.clone());
    until_state(&client, attempt, |state| matches!(state, AttemptState::Running { .. })).await;
    let write = |dir: &Path| std::fs::write(dir.join("file"), "second\n").unwrap();
    let result = wrote(&served, "w1", attempt, write).await;
    worker.end_with(attempt, result);
    let attached = desk.run(&["attach", &id]).await;
    assert!(attached.code() == 0 && attached.err().contains("laneyard result show"), "{}", attached.err());
    let applied = desk.run(&["result", "apply", &id]).await;
    assert_eq!(applied.code(), 0, "{}", applied.err());
    assert_eq!(std::fs::read(repo.join("file")).unwrap(), b"second\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_applied_to_its_own_repository_and_exported_for_every_other_place() {
    let write = |dir: &Path| std::fs::write(dir.join("file"), "by the lane\n").unwrap();
    let mut lane = lane(write, |repo| std::fs::write(repo.join("other"), "moved\n").unwrap()).await;
    assert_eq!(lane.seen.code(), 70, "{}", lane.seen.err());
    let attempt = lane.attempt.to_string();
    let (repo, clone) = (lane.desk.path("repo"), lane.desk.path("clone"));
    let place = |path: &Path| path.to_str().unwrap().to_owned();
    git(&repo, &["clone", "-q", &place(&repo), &place(&clone)]);
    let refused = |seen: &Seen| {
        assert_ne!(seen.code(), 0);
        assert!(seen.err().contains("laneyard result export"), "{}", seen.err());
    };
    // A clone on the same machine.
    refused(&lane.desk.run(&["result", "apply", &attempt, "--cwd", &place(&clone)]).await);
    // Another machine, where the lane's directory is not, or is another one by chance.
    lane.desk.elsewhere("other machine");
    refused(&lane.desk.run(&["result", "apply", &attempt]).await);
    std::fs::rename(&repo, lane.desk.path("away")).unwrap();
    let absent = lane.desk.run(&["result", "apply", &attempt]).await;
    refused(&absent);
    assert!(absent.err().contains("is not on this machine"), "{}", absent.err());
    assert_eq!(std::fs::read(clone.join("file")).unwrap(), b"first\n", "nothing was written");
    let patch = lane.desk.path("lane.patch");
    let exported = lane.desk.run(&["result", "export", &attempt, "--output", &place(&patch)]).await;
    assert_eq!(exported.code(), 0, "{}", exported.err());
    let again = lane.desk.run(&["result", "export", &attempt, "--output", &place(&patch)]).await;
    assert_eq!(again.code(), 70);
    assert!(again.err().contains("exists already"), "{}", again.err());
    git(&clone, &["apply", "--3way", &place(&patch)]);
    assert_eq!(std::fs::read(clone.join("file")).unwrap(), b"by the lane\n");
    let (again, json) = (place(&lane.desk.path("again.patch")), "--json");
    let told = lane.desk.run(&["result", "export", &attempt, "--output", &again, json]).await.lines();
    let bytes = std::fs::read(&again).unwrap();
    assert_eq!(bytes, std::fs::read(&patch).unwrap());
    let expected = json!({"attempt": attempt, "output": again, "bytes": bytes.len(), "changes": 1});
    assert_eq!(told, [expected]);
    let piped = lane.desk.run(&["result", "export", &attempt, json]).await;
    assert!(piped.code() == 64 && piped.err().contains("--output"), "stdout has the patch: {}", piped.err());
    // Nobody has reviewed it by that: at home it can still be taken.
    std::fs::rename(lane.desk.path("away"), &repo).unwrap();
    std::fs::remove_file(repo.join("other")).unwrap();
    lane.desk.elsewhere("state");
    let applied = lane.desk.run(&["result", "apply", &attempt]).await;
    assert_eq!(applied.code(), 0, "{}", applied.err());
    assert_eq!(std::fs::read(repo.join("file")).unwrap(), b"by the lane\n");
    let released = lane.desk.run(&["result", "release", &attempt, "--json"]).await.lines();
    assert_eq!(released, [json!({"attempt": attempt, "reviewed": true})]);
}
