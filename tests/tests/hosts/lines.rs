//! Lines that are cut, slow or lossy: nothing is lost, nothing runs twice, and whoever waits is told.

use serde_json::json;
use tests::hosts::{Fleet, FleetOptions, WORKERS};
use tests::until::until;
use tests::world::LIMIT;

/// A controller that misses its workers soon.
fn impatient() -> FleetOptions {
    FleetOptions {
        serve: vec!["--lease".into(), "2s".into(), "--interrupt-after".into(), "4s".into()],
        ..Default::default()
    }
}

#[test]
fn lanes_on_two_hosts_answer_through_a_third() {
    let mut fleet = Fleet::start(FleetOptions::default());
    for worker in WORKERS {
        let label = format!("host={worker}");
        fleet.lane(&[json!({"text": worker})], &["--require", &label]).delivers(worker);
    }
    fleet.assert_settled();
}

#[test]
fn a_started_attempt_goes_on_while_its_worker_is_cut_off_and_its_receipt_is_delivered_later() {
    let mut fleet = Fleet::start(impatient());
    let step = json!({"text": "said in the dark", "hold": "gate"});
    let mut lane = fleet.lane(&[step], &["--require", "host=worker1"]);
    fleet.until_asked(&lane);
    fleet.host("worker1").cut();
    lane.until_said("unreachable");
    lane.until_said("interrupted");
    // The model is on the hub, behind the line that is cut: its answer waits there with everything else.
    fleet.model.release("gate");
    assert!(!lane.is_over(), "without being asked to, a client does not give up: {}", lane.stderr());
    fleet.host("worker1").mend();
    lane.delivers("said in the dark");
    fleet.assert_settled();
}

#[test]
fn what_was_offered_to_a_worker_that_is_cut_off_runs_elsewhere_and_once() {
    let mut fleet = Fleet::start(impatient());
    fleet.host("worker1").cut();
    fleet.host("worker2").cut();
    let mut lane = fleet.lane(&[json!({"text": "once"})], &[]);
    let _ = lane.attempt();
    fleet.host("worker2").mend();
    lane.delivers("once");
    fleet.host("worker1").mend();
    fleet.assert_settled();
    assert_eq!(fleet.model.count(&lane.id).invocations, 1);
}

#[test]
fn a_client_behind_a_bad_line_gets_every_event_and_the_answer() {
    let mut fleet = Fleet::start(FleetOptions::default());
    fleet.host("client").lose(20);
    fleet.host("worker1").slow(Some(512));
    let mut lane = fleet.lane(&[json!({"text": "through the mud"})], &["--require", "host=worker1"]);
    lane.delivers("through the mud");
    fleet.host("client").lose(0);
    fleet.host("worker1").slow(None);
    fleet.assert_settled();
}

#[test]
fn a_client_that_is_cut_off_comes_back_to_its_receipt() {
    let mut fleet = Fleet::start(FleetOptions::default());
    let mut lane = fleet.lane(&[json!({"text": "meanwhile", "hold": "gate"})], &[]);
    fleet.until_asked(&lane);
    let attempt = lane.attempt();
    fleet.host("client").cut();
    fleet.model.release("gate");
    // Seen on the workers' own disks: the attempt is over and released.
    until("the attempt ends without its client", LIMIT, || {
        let released = |worker: &&str| fleet.state(worker).join("attempts").join(&attempt).join("released").exists();
        if WORKERS.iter().any(released) { Ok(()) } else { Err(()) }
    });
    fleet.host("client").mend();
    lane.delivers("meanwhile");
    fleet.assert_settled();
}
