//! A worker that is lost with a started attempt, as its waiting client sees it.

use agent::ids::AttemptId;
use agent::wire::attempt::AttemptState;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::Arc;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::desk::{Desk, ended};
use crate::scripted::{Heard, Scripted};
use crate::support::{Served, quick, until_state};

struct Fleet {
    _dir: tempfile::TempDir,
    served: Served,
    desk: Desk,
    worker: Arc<Scripted>,
    stop: CancellationToken,
    child: Child,
    id: AttemptId,
}

/// A lane that runs on a worker.
async fn running(words: &[&str]) -> Fleet {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let desk = Desk::at(&served);
    let worker = Scripted::new(1);
    let stop = served.connect("w1", worker.clone());
    let (child, id) = desk.lane(&served.client(), words).await;
    worker.until_offered(id).await;
    worker.start(id);
    until_state(&served.client(), id, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    Fleet { _dir: dir, served, desk, worker, stop, child, id }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_told_so_ends_with_a_receipt_that_claims_no_settled_child_and_the_late_one_counts() {
    let fleet = running(&["--on-lost", "fail"]).await;
    fleet.stop.cancel();
    let seen = ended(fleet.child).await;
    assert_eq!((seen.code(), seen.out().as_str()), (70, ""), "{}", seen.err());
    let (said, id) = (seen.err(), fleet.id);
    let told: Vec<&str> = said.lines().filter(|line| !line.starts_with('{')).collect();
    let silent = format!("attempt {id} unreachable: worker w1 is silent; the attempt may go on there, waiting");
    let gone = format!("attempt {id} interrupted: worker w1 is lost; a late receipt still counts");
    assert_eq!(told, [silent, gone], "it waits for the worker, and then no more");
    let receipt = fleet.desk.json("receipt.json");
    assert_eq!((&receipt["status"], &receipt["exitCode"]), (&"child-failed".into(), &serde_json::Value::Null));
    assert_eq!((&receipt["processStarted"], &receipt["signal"]), (&true.into(), &serde_json::Value::Null));
    let said = receipt["error"]["message"].as_str().unwrap();
    assert!(said.contains("w1") && said.contains("late receipt"), "{said}");
    assert!(!fleet.desk.path("out.md").exists());
    assert_eq!(fleet.desk.normalized().await["status"], "failed");
    // The attempt went on; its true outcome replaces what the controller believed.
    let client = fleet.served.client();
    assert!(matches!(client.attempt(fleet.id).await.unwrap().state, AttemptState::Interrupted { .. }));
    fleet.worker.end(fleet.id, "complete", Some(b"late"));
    let _back = fleet.served.connect("w1", fleet.worker.clone());
    let attached = fleet.desk.run(&["attach", &fleet.id.to_string()]).await;
    assert_eq!(attached.code(), 0, "{}", attached.err());
    assert!(attached.out().contains("\"complete\""), "{}", attached.out());
    assert_eq!(fleet.worker.offers(fleet.id), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_told_nothing_waits_for_the_late_receipt() {
    let mut fleet = running(&["--verbose"]).await;
    fleet.stop.cancel();
    until_state(&fleet.served.client(), fleet.id, |state| matches!(state, AttemptState::Interrupted { .. })).await;
    assert!(fleet.child.try_wait().unwrap().is_none(), "no timeout that nobody asked for");
    fleet.worker.end(fleet.id, "complete", Some(b"late"));
    let _back = fleet.served.connect("w1", fleet.worker.clone());
    let seen = ended(fleet.child).await;
    assert_eq!(seen.code(), 0, "{}", seen.err());
    assert!(seen.err().contains("unreachable: ") && seen.err().contains("interrupted: "), "{}", seen.err());
    assert_eq!(std::fs::read(fleet.desk.path("out.md")).unwrap(), b"late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_the_worker_is_lost_ends_the_wait_and_reaches_the_worker_later() {
    let fleet = running(&[]).await;
    fleet.stop.cancel();
    until_state(&fleet.served.client(), fleet.id, |state| matches!(state, AttemptState::Unreachable { .. })).await;
    kill(Pid::from_raw(fleet.child.id().unwrap().cast_signed()), Signal::SIGTERM).unwrap();
    let seen = ended(fleet.child).await;
    assert_eq!(seen.code(), 130, "{}", seen.err());
    let receipt = fleet.desk.json("receipt.json");
    assert_eq!((&receipt["status"], &receipt["exitCode"]), (&"cancelled".into(), &serde_json::Value::Null));
    assert!(receipt["failureDetail"].as_str().unwrap().contains("w1"), "{receipt}");
    assert_eq!(fleet.desk.normalized().await["status"], "failed");
    let _back = fleet.served.connect("w1", fleet.worker.clone());
    fleet.worker.until(|heard| matches!(heard, Heard::Cancel(id, _) if *id == fleet.id)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_client_can_be_told_to_end_too() {
    let fleet = running(&[]).await;
    fleet.stop.cancel();
    let id = fleet.id.to_string();
    // Another state directory: this one has no record of the attempt.
    let elsewhere = Desk::at(&fleet.served);
    let seen = elsewhere.run(&["attach", &id, "--on-lost", "fail"]).await;
    assert_eq!(seen.code(), 70);
    assert!(seen.err().contains("worker w1 is lost"), "{}", seen.err());
}
