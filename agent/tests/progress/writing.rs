//! Snapshots as they are written, and the probe behind them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use agent::progress::probe::Probe;
use agent::progress::{Change, ChildRole, Reporter, Writer};
use serde_json::{Value, json};

use crate::{Lane, NOW, START, exited, spawned};

fn reserved(path: &Path) {
    std::fs::write(path, "").unwrap();
}

#[test]
fn a_writer_replaces_its_own_file_only_and_stays_off_after_a_surprise() {
    let lane = Lane::new();
    reserved(&lane.progress());
    let mut writer = Writer::open(&lane.progress(), lane.state(), START);
    writer.record(&spawned(ChildRole::Workload), START);
    let snapshot: Value = serde_json::from_str(&std::fs::read_to_string(lane.progress()).unwrap()).unwrap();
    assert_eq!((&snapshot["seq"], &snapshot["phase"]), (&json!(2), &json!("workload-running")));
    assert_eq!(std::fs::metadata(lane.progress()).unwrap().permissions().mode() & 0o777, 0o600);
    let theirs = lane.dir.path().join("theirs");
    std::fs::write(&theirs, "theirs").unwrap();
    std::fs::rename(&theirs, lane.progress()).unwrap();
    writer.record(&exited(0), NOW);
    assert!(!writer.is_on());
    writer.record(&Change::Terminal { receipt_written: true }, NOW);
    assert_eq!(std::fs::read_to_string(lane.progress()).unwrap(), "theirs");
    assert_eq!(std::fs::read_dir(lane.dir.path()).unwrap().count(), 1, "no temporary is left");
}

#[test]
fn bytes_are_written_every_five_seconds_with_a_trailing_write() {
    let lane = Lane::new();
    reserved(&lane.progress());
    let seq = || {
        let text = std::fs::read_to_string(lane.progress()).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["seq"].as_u64().unwrap()
    };
    let mut writer = Writer::open(&lane.progress(), lane.state(), START);
    writer.record(&spawned(ChildRole::Workload), START);
    let at = |seconds| START + time::Duration::seconds(seconds);
    writer.record(&Change::Bytes { stdout: 1, stderr: 0 }, at(1));
    assert_eq!((seq(), writer.due_in(at(1)).unwrap().as_secs()), (2, 4));
    writer.record(&Change::Bytes { stdout: 2, stderr: 0 }, at(5));
    assert_eq!((seq(), writer.due_in(at(5))), (3, None));
    writer.record(&Change::Bytes { stdout: 3, stderr: 0 }, at(6));
    writer.close(at(7));
    assert_eq!(seq(), 4);
}

#[tokio::test]
async fn a_reporter_writes_tokens_when_they_come_and_never_waits_for_them() {
    let lane = Lane::new();
    reserved(&lane.progress());
    let mut state = lane.state();
    state.runner_token = None;
    let hanging: agent::progress::TokenSource = Arc::new(|_| Box::pin(std::future::pending()));
    let reporter = Reporter::open(&lane.progress(), state.clone(), hanging);
    assert_ne!(std::fs::metadata(lane.progress()).unwrap().len(), 0, "the first snapshot is there at once");
    reporter.record(spawned(ChildRole::Workload));
    reporter.finish(true).await;
    let last: Value = serde_json::from_str(&std::fs::read_to_string(lane.progress()).unwrap()).unwrap();
    assert_eq!((&last["phase"], &last["runner"]["startToken"]), (&json!("terminal"), &json!(null)));

    reserved(&lane.progress());
    let told: agent::progress::TokenSource = Arc::new(|pid| Box::pin(async move { Some(format!("token of {pid}")) }));
    let reporter = Reporter::open(&lane.progress(), state, told);
    reporter.record(spawned(ChildRole::Workload));
    let wanted = |value: &Value| {
        value["child"]["startToken"] == "token of 77" && value["runner"]["startToken"] == "token of 4242"
    };
    tokio::time::timeout(std::time::Duration::from_secs(5), async {
        while !serde_json::from_str(&std::fs::read_to_string(lane.progress()).unwrap()).is_ok_and(|v| wanted(&v)) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[test]
fn the_probe_knows_this_process_and_misses_an_impossible_one() {
    let first = agent::progress::probe::system_probe(u64::from(std::process::id()));
    assert!(matches!(&first, Probe::Token(_)), "{first:?}");
    assert_eq!(agent::progress::probe::system_probe(u64::from(std::process::id())), first);
    assert_eq!(agent::progress::probe::system_probe(2_000_000_000), Probe::Absent);
}
