//! Machines that are not well: a disk that is full, a clock that is wrong.

use std::time::Duration;

use serde_json::json;
use tests::hosts::{Fleet, FleetOptions, SmallDisk};
use tests::until::until;
use tests::world::LIMIT;

/// Debian's libfaketime; monotonic time stays true.
fn clock(shift: &str) -> Vec<(String, String)> {
    let library = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
        .map(|dir| format!("{dir}/faketime/libfaketimeMT.so.1"))
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .expect("libfaketime: apt-get install faketime");
    let pairs = [("LD_PRELOAD", library.as_str()), ("FAKETIME", shift), ("DONT_FAKE_MONOTONIC", "1")];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_workers_disk_that_fills_up_under_a_lane_loses_nothing() {
    let mut fleet = Fleet::start(FleetOptions::default());
    fleet.kill("worker1");
    let moved = fleet.state("worker1");
    let kept = moved.with_extension("moved");
    std::fs::rename(&moved, &kept).unwrap();
    std::fs::create_dir(&moved).unwrap();
    let disk = SmallDisk::at(&moved, 64);
    assert!(std::process::Command::new("cp").arg("-a").arg(kept.join(".")).arg(&moved).status().unwrap().success());
    fleet.restart("worker1");
    let mut lane = fleet.lane(&[json!({"text": "written down", "hold": "gate"})], &["--require", "host=worker1"]);
    fleet.until_asked(&lane);
    disk.fill();
    fleet.model.release("gate");
    // Either the space that was set aside is enough, or the worker says that it waits for some.
    until("the lane ends, or the worker says what it lacks", LIMIT, || {
        let said = fleet.logged("worker1").contains("free space on the worker");
        if said || lane.is_over() { Ok(()) } else { Err(lane.stderr()) }
    });
    disk.free();
    lane.wait();
    assert!(lane.receipt()["status"].is_string(), "{}", lane.stderr());
    assert_eq!(fleet.model.count(&lane.id).invocations, 1);
    fleet.assert_settled();
    fleet.kill("worker1");
    drop(disk);
}

/// Lanes with a deadline that is shorter than the clocks are apart: it is none of the clocks' business.
fn a_clock_is_off(host: &str, shift: &str) {
    let environment = clock(shift).into_iter().map(|(name, value)| (host.to_owned(), name, value)).collect();
    let mut fleet = Fleet::start(FleetOptions { environment, ..FleetOptions::default() });
    let within = ["--timeout", "120", "--require", "host=worker1"];
    fleet.lane(&[json!({"text": shift})], &within).delivers(shift);
    // One that waits for its worker is not overdue, and one that hangs ends in time.
    fleet.kill("worker1");
    let mut waiting = fleet.lane(&[json!({"text": "waited"})], &within);
    let _ = waiting.attempt();
    fleet.restart("worker1");
    waiting.delivers("waited");
    let mut late = fleet.lane(&[json!({"text": "never", "hold": "gate"})], &["--timeout", "8"]);
    assert_eq!(late.wait(), Some(124), "{}", late.stderr());
    fleet.model.release("gate");
    fleet.assert_settled();
}

#[test]
fn a_worker_whose_clock_is_minutes_ahead_changes_nothing() {
    a_clock_is_off("worker1", "+4m");
}

#[test]
fn a_worker_whose_clock_is_minutes_behind_changes_nothing() {
    a_clock_is_off("worker1", "-4m");
}

#[test]
fn a_controller_whose_clock_is_minutes_ahead_changes_nothing() {
    a_clock_is_off("controller", "+4m");
}

#[test]
fn a_controller_whose_clock_is_minutes_behind_changes_nothing() {
    a_clock_is_off("controller", "-4m");
}

#[test]
fn a_client_whose_clock_is_minutes_ahead_or_behind_changes_nothing() {
    a_clock_is_off("client", "+4m");
    a_clock_is_off("client", "-4m");
}

#[test]
fn a_controllers_disk_that_fills_up_under_a_lane_loses_nothing() {
    let mut fleet = Fleet::start(FleetOptions { serve: vec!["--reserve".into(), "4M".into()], ..Default::default() });
    fleet.kill("controller");
    let state = fleet.state("controller").join("controller");
    let kept = state.with_extension("moved");
    std::fs::rename(&state, &kept).unwrap();
    std::fs::create_dir(&state).unwrap();
    let disk = SmallDisk::at(&state, 192);
    assert!(std::process::Command::new("cp").arg("-a").arg(kept.join(".")).arg(&state).status().unwrap().success());
    fleet.restart("controller");
    let mut lane = fleet.lane(&[json!({"text": "written down", "hold": "gate"})], &["--require", "host=worker1"]);
    fleet.until_asked(&lane);
    disk.fill();
    let mut refused = fleet.lane(&[json!({"text": "never"})], &["--worktree", "direct"]);
    assert_eq!(refused.wait(), Some(74), "{}", refused.stderr());
    fleet.kill("controller");
    fleet.restart("controller");
    fleet.model.release("gate");
    lane.delivers("written down");
    disk.free();
    fleet.lane(&[json!({"text": "room again"})], &[]).delivers("room again");
    assert_eq!(fleet.model.count(&refused.id).requests, 0);
    fleet.assert_settled();
    fleet.kill("controller");
    drop(disk);
}

#[test]
fn a_clock_that_makes_the_certificate_unusable_is_named_as_the_cause() {
    let mut fleet = Fleet::start(FleetOptions::default());
    fleet.kill("worker1");
    fleet.set_environment("worker1", clock("-3d"));
    fleet.restart("worker1");
    until("the agent says what is wrong", Duration::from_secs(60), || {
        let log = fleet.logged("worker1");
        if log.contains("clock") { Ok(()) } else { Err(log) }
    });
    fleet.kill("worker1");
    fleet.set_environment("worker1", Vec::new());
    fleet.restart("worker1");
    fleet.lane(&[json!({"text": "in time"})], &["--require", "host=worker1"]).delivers("in time");
    fleet.assert_settled();
}
