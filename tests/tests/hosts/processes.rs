//! Processes that are killed while lines are cut.

use nix::sys::signal::Signal;
use serde_json::json;
use tests::hosts::{Fleet, FleetOptions};

#[test]
fn every_process_is_killed_while_the_others_cannot_see_it() {
    let mut fleet = Fleet::start(FleetOptions::default());
    let step = json!({"text": "still here", "hold": "gate"});
    let mut lane = fleet.lane(&[step], &["--require", "host=worker1"]);
    fleet.until_asked(&lane);
    fleet.host("worker1").cut();
    fleet.kill("controller");
    fleet.kill("worker1");
    fleet.restart("controller");
    fleet.model.release("gate");
    fleet.restart("worker1");
    fleet.host("worker1").mend();
    lane.delivers("still here");
    fleet.assert_settled();
    assert_eq!(fleet.model.count(&lane.id).invocations, 1);
}

#[test]
fn an_attempt_whose_client_was_killed_is_attached_to_from_where_it_ran() {
    let mut fleet = Fleet::start(FleetOptions::default());
    let mut lane = fleet.lane(&[json!({"text": "kept for you", "hold": "gate"})], &[]);
    fleet.until_asked(&lane);
    let attempt = lane.attempt();
    lane.signal(Signal::SIGKILL);
    assert_eq!(lane.wait(), None);
    fleet.model.release("gate");
    let attached = fleet.asked(&["attach", &attempt]);
    assert!(attached.status.success(), "{}", String::from_utf8_lossy(&attached.stderr));
    assert_eq!(lane.receipt()["status"], "complete");
    fleet.assert_settled();
}

#[test]
fn a_cancel_reaches_a_worker_that_was_cut_off_when_it_was_asked_for() {
    let mut fleet = Fleet::start(FleetOptions::default());
    let step = json!({"text": "never said", "hold": "gate"});
    let mut lane = fleet.lane(&[step], &["--require", "host=worker2"]);
    fleet.until_asked(&lane);
    fleet.host("worker2").cut();
    lane.signal(Signal::SIGINT);
    lane.until_said("cancelling");
    fleet.host("worker2").mend();
    assert_eq!(lane.wait(), Some(130));
    assert_eq!(lane.receipt()["status"], "cancelled");
    fleet.model.release("gate");
    fleet.assert_settled();
}
