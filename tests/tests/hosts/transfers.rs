//! Programs that are killed while a working directory or a result is on its way over a slow line.

use nix::sys::signal::Signal;
use serde_json::json;
use tests::hosts::{Fleet, FleetOptions, Lane};
use tests::noise::noise;
use tests::until::until;
use tests::world::{Cli, LIMIT};

/// Kilobits a second: a directory of [`NOISE`] bytes is on its way for some ten seconds.
const SLOW: u32 = 2048;
/// Bytes that no compression makes small.
const NOISE: usize = 3 << 20;
/// So much has arrived when something is killed: a good part of it, and far from all.
const SOME: u64 = 512 << 10;

/// A fleet whose client has a directory that takes its time.
fn fleet() -> Fleet {
    let fleet = Fleet::start(FleetOptions::default());
    fleet.world.file("work/noise", noise(NOISE));
    fleet
}

#[track_caller]
fn until_some_arrived(fleet: &Fleet, host: &str) {
    until(&format!("a part arrives at {host}"), LIMIT, || {
        let arrived = fleet.arriving(host);
        if arrived > SOME { Ok(()) } else { Err(arrived) }
    });
    assert!(fleet.arriving(host) < NOISE as u64, "it is still on its way");
}

/// A lane on worker1, whose snapshot is on its way there, and is told to be.
fn downloading(fleet: &mut Fleet) -> Lane {
    fleet.host("controller").slow(Some(SLOW));
    let lane = fleet.lane(&[json!({"text": "arrived"})], &["--require", "host=worker1"]);
    until_some_arrived(fleet, "worker1");
    lane
}

#[test]
fn a_worker_that_fetches_a_large_directory_says_how_far_it_is() {
    let mut fleet = fleet();
    let mut lane = downloading(&mut fleet);
    lane.until_said("fetching the snapshot, ");
    let attempt = lane.attempt();
    let logged = String::from_utf8(fleet.asked(&["logs", &attempt]).stdout).unwrap();
    assert!(logged.contains("preparing: fetching the snapshot, "), "{logged}");
    fleet.host("controller").slow(None);
    lane.delivers("arrived");
    let words = lane.stderr().matches("fetching the snapshot").count();
    assert!((1..=8).contains(&words), "a few words, not one for every piece: {}", lane.stderr());
    fleet.assert_settled();
}

/// The lane ends well all the same, and its model was invoked once.
#[track_caller]
fn assert_once(fleet: &Fleet, lane: &mut Lane, answer: &str) {
    lane.delivers(answer);
    assert_eq!(fleet.model.count(&lane.id).invocations, 1);
    fleet.assert_settled();
}

fn killed_while_a_worker_fetches(name: &str) {
    let mut fleet = fleet();
    let mut lane = downloading(&mut fleet);
    fleet.kill(name);
    let arrived = fleet.arriving("worker1");
    assert!(arrived > SOME, "what had arrived is kept: {arrived}");
    fleet.host("controller").slow(None);
    fleet.restart(name);
    assert_once(&fleet, &mut lane, "arrived");
}

#[test]
fn the_controller_is_killed_while_a_worker_fetches_a_snapshot() {
    killed_while_a_worker_fetches("controller");
}

#[test]
fn the_agent_is_killed_while_it_fetches_a_snapshot() {
    killed_while_a_worker_fetches("worker1");
}

#[test]
fn the_controller_is_killed_while_a_client_uploads() {
    let mut fleet = fleet();
    fleet.host("client").slow(Some(SLOW));
    let mut lane = fleet.lane(&[json!({"text": "sent"})], &[]);
    until_some_arrived(&fleet, "controller");
    fleet.kill("controller");
    let arrived = fleet.arriving("controller");
    fleet.restart("controller");
    assert!(arrived > SOME && fleet.arriving("controller") >= arrived, "what had arrived is kept: {arrived}");
    fleet.host("client").slow(None);
    assert_once(&fleet, &mut lane, "sent");
}

#[test]
fn a_client_that_is_interrupted_while_it_uploads_ends_cancelled_and_the_next_one_goes_on() {
    let mut fleet = fleet();
    fleet.host("client").slow(Some(SLOW));
    let mut lane = fleet.lane(&[json!({"text": "never"})], &[]);
    until_some_arrived(&fleet, "controller");
    lane.signal(Signal::SIGINT);
    assert_eq!(lane.wait(), Some(130), "{}", lane.stderr());
    let receipt = lane.receipt();
    assert_eq!((&receipt["status"], &receipt["processStarted"]), (&json!("cancelled"), &json!(false)), "{receipt:#}");
    assert_eq!(fleet.attempts(), Vec::<serde_json::Value>::new(), "nothing was submitted");
    assert_eq!(fleet.model.count(&lane.id).requests, 0);
    let arrived = fleet.arriving("controller");
    assert!(arrived > SOME, "what had arrived is kept: {arrived}");
    fleet.host("client").slow(None);
    fleet.lane(&[json!({"text": "sent"})], &[]).delivers("sent");
    fleet.assert_settled();
}

/// A writer on worker1 whose result is on its way to the controller.
fn bringing_home(fleet: &mut Fleet) -> Lane {
    let work = Cli::Claude.shell(&format!("head -c {NOISE} /dev/urandom > made; sha256sum < made > sum"));
    let steps = [work, json!({"text": "done", "hold": "gate"})];
    let lane = fleet.writer(&steps, &["--require", "host=worker1"]);
    until("the model is asked twice", LIMIT, || {
        if fleet.model.count(&lane.id).requests > 1 { Ok(()) } else { Err(lane.stderr()) }
    });
    fleet.host("worker1").slow(Some(SLOW));
    fleet.model.release("gate");
    until_some_arrived(fleet, "controller");
    lane
}

fn killed_while_a_worker_brings_home(name: &str) {
    let mut fleet = Fleet::start(FleetOptions::default());
    let mut lane = bringing_home(&mut fleet);
    fleet.kill(name);
    fleet.host("worker1").slow(None);
    fleet.restart(name);
    assert_once(&fleet, &mut lane, "done");
    assert_eq!(lane.receipt()["result"]["outcome"], "applied", "{:#}", lane.receipt());
    let mut check = std::process::Command::new("sh");
    check.args(["-c", "sha256sum < made | cmp - sum"]).current_dir(fleet.world.path("work"));
    assert!(check.status().unwrap().success(), "every byte came home");
}

#[test]
fn the_agent_is_killed_while_it_brings_a_result_home() {
    killed_while_a_worker_brings_home("worker1");
}

#[test]
fn the_controller_is_killed_while_an_agent_brings_a_result_home() {
    killed_while_a_worker_brings_home("controller");
}
