//! Programs that are killed at named points: before and after each entry of the controller's journal, and where a client has
//! promised something that it cannot keep any more. The agent's points are in `e2e/remote.rs`.

use serde_json::json;
use tests::hosts::{Fleet, FleetOptions};
use tests::until::until;
use tests::world::LIMIT;

fn fault(point: &str) -> Vec<(String, String)> {
    vec![("LANEYARD_FAULT".to_owned(), point.to_owned())]
}

/// One fleet for all: a point costs two restarts.
fn the_controller_is_killed_at(points: &[&str]) {
    let mut fleet = Fleet::start(FleetOptions::default());
    for point in points {
        fleet.kill("controller");
        fleet.set_environment("controller", fault(point));
        fleet.restart("controller");
        let mut lane = fleet.lane(&[json!({"text": point})], &[]);
        fleet.until_killed("controller");
        fleet.set_environment("controller", Vec::new());
        fleet.restart("controller");
        lane.delivers(point);
        assert_eq!(fleet.model.count(&lane.id).invocations, 1, "{point}");
        fleet.assert_settled();
    }
}

#[test]
fn a_controller_that_is_killed_around_an_admission_loses_nothing() {
    the_controller_is_killed_at(&[
        "committing:submitted",
        "committed:submitted",
        "committing:offered",
        "committed:offered",
    ]);
}

#[test]
fn a_controller_that_is_killed_around_a_lease_starts_nothing_twice() {
    the_controller_is_killed_at(&[
        "committing:claimed",
        "committed:claimed",
        "committing:reported",
        "committed:reported",
    ]);
}

#[test]
fn a_controller_that_is_killed_around_an_end_has_one_receipt() {
    the_controller_is_killed_at(&[
        "committing:answer-kept",
        "committed:answer-kept",
        "committing:ended",
        "committed:ended",
        "committing:released",
        "committed:released",
        "committing:delivered",
        "committed:delivered",
    ]);
}

fn a_client_is_killed_at(point: &str) -> (Fleet, tests::hosts::Lane) {
    let mut fleet = Fleet::start(FleetOptions::default());
    fleet.set_environment("client", fault(point));
    let mut lane = fleet.lane(&[json!({"text": "for nobody"})], &[]);
    assert_eq!(lane.wait(), None, "{}", lane.stderr());
    fleet.set_environment("client", Vec::new());
    let _ = fleet.attempts(); // any command: it starts what finishes the lane
    until("the lane is finished in the background", LIMIT, || {
        let receipt = lane.receipt();
        if receipt["status"].is_string() { Ok(()) } else { Err(receipt) }
    });
    (fleet, lane)
}

#[test]
fn a_client_that_is_killed_before_it_submits_leaves_a_lane_that_ends_without_having_run() {
    let (fleet, lane) = a_client_is_killed_at("client:recorded");
    assert_eq!(lane.receipt()["status"], "child-failed", "{:#}", lane.receipt());
    assert_eq!(fleet.model.count(&lane.id).requests, 0);
    fleet.assert_settled();
}

#[test]
fn a_client_that_is_killed_after_it_submitted_or_delivered_leaves_one_answer_and_one_receipt() {
    for point in ["client:submitted", "client:delivered"] {
        let (fleet, mut lane) = a_client_is_killed_at(point);
        assert_eq!(lane.receipt()["status"], "complete", "{point}: {:#}", lane.receipt());
        assert_eq!(std::fs::read_to_string(lane.output()).unwrap(), "for nobody", "{point}");
        assert_eq!(fleet.model.count(&lane.id).invocations, 1, "{point}");
        fleet.assert_settled();
        assert!(lane.is_over());
        let given = fleet.attempts().remove(0);
        assert_eq!(given["delivered"], "complete", "{point}: {given}");
    }
}
