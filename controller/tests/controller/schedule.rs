//! Who gets which place.

use std::collections::BTreeMap;

use agent::descriptor::{Mode, Provider};
use agent::ids::{AttemptId, Generation, WorkerId};
use agent::wire::attempt::PanelSeat;
use agent::wire::worker::{InstanceFacts, WorkerFacts};
use controller::core::Core;
use controller::event::{Entry, Event, Order};
use controller::schedule::{plan, reason};
use uuid::Uuid;

#[derive(Default)]
struct Fleet {
    core: Core,
    submitted: u128,
    names: BTreeMap<AttemptId, String>,
}

impl Fleet {
    fn apply(&mut self, event: Event) {
        let entry = Entry { seq: self.core.seq() + 1, at: time::OffsetDateTime::UNIX_EPOCH, event };
        self.core.apply(&entry);
        self.core.check_invariants().unwrap();
    }

    fn worker(&mut self, name: &str, facts: WorkerFacts) -> WorkerId {
        let worker: WorkerId = name.parse().unwrap();
        self.apply(Event::Joined { worker: worker.clone(), session: Uuid::nil(), facts: Box::new(facts), number: 0 });
        worker
    }

    fn places(&mut self, name: &str, capacity: u32) -> WorkerId {
        self.worker(name, WorkerFacts { capacity, ..WorkerFacts::default() })
    }

    /// Submits `name`, which begins with its submitter's letter.
    fn submit(&mut self, name: &str, change: impl FnOnce(&mut Order)) -> AttemptId {
        self.submitted += 1;
        let id: AttemptId = Uuid::from_u128(self.submitted).to_string().parse().unwrap();
        let mut order = Order {
            digest: String::new(),
            submitter: name[..1].to_owned(),
            provider: Provider::Codex,
            model: String::new(),
            effort: None,
            mode: Mode::ReadOnly,
            execution_id: String::new(),
            labels: BTreeMap::new(),
            panel: None,
            instance: None,
            deadline: None,
        };
        change(&mut order);
        self.names.insert(id, name.to_owned());
        self.apply(Event::Submitted { attempt: id, order: Box::new(order) });
        id
    }

    fn submit_all(&mut self, names: &[&str]) {
        for name in names {
            self.submit(name, |_| {});
        }
    }

    fn seat(&mut self, name: &str, size: u32) -> AttemptId {
        self.submit(name, |order| order.panel = Some(PanelSeat { id: "p".to_owned(), size }))
    }

    /// Plans, makes the offers, and tells `attempt@worker` in order.
    fn place(&mut self) -> Vec<String> {
        let placements = plan(&self.core, &|_| false, &|_, _| false);
        let mut told = Vec::new();
        for placement in placements {
            told.push(format!("{}@{}", self.names[&placement.attempt], placement.worker));
            let (attempt, worker) = (placement.attempt, placement.worker);
            self.apply(Event::Offered { attempt, worker, generation: Generation(1) });
        }
        told
    }

    fn reason(&self, id: AttemptId) -> String {
        reason(&self.core, id).to_string()
    }
}

#[test]
fn the_submitter_with_the_fewest_places_is_served_first_and_each_in_order() {
    let mut fleet = Fleet::default();
    fleet.places("w", 5);
    fleet.submit_all(&["a1", "a2", "a3", "a4", "b1", "b2"]);
    assert_eq!(fleet.place(), ["a1@w", "b1@w", "a2@w", "b2@w", "a3@w"]);
    assert_eq!(fleet.place(), [""; 0]);
    fleet.places("w", 6);
    fleet.submit_all(&["c1"]);
    assert_eq!(fleet.place(), ["c1@w"], "the newcomer holds none");
}

#[test]
fn attempts_spread_over_the_emptiest_workers_that_carry_their_labels() {
    let mut fleet = Fleet::default();
    let labels = BTreeMap::from([("gpu".to_owned(), "yes".to_owned())]);
    fleet.places("small", 1);
    fleet.worker("big", WorkerFacts { capacity: 3, labels: labels.clone(), ..WorkerFacts::default() });
    fleet.submit_all(&["a1"]);
    let picky = fleet.submit("a2", |order| order.labels = labels);
    let hopeless = fleet.submit("a3", |order| order.labels = BTreeMap::from([("gpu".to_owned(), "no".to_owned())]));
    fleet.submit_all(&["a4"]);
    assert_eq!(fleet.place(), ["a1@big", "a2@big", "a4@big"]);
    assert_eq!(fleet.reason(hopeless), "no worker carries the label gpu=no");
    assert!(fleet.core.worker(&"big".parse().unwrap()).unwrap().placed.contains(&picky));
}

#[test]
fn silent_and_draining_workers_get_nothing() {
    let mut fleet = Fleet::default();
    let (one, two) = (fleet.places("one", 2), fleet.places("two", 2));
    fleet.apply(Event::Lost { worker: one });
    fleet.apply(Event::Steered { worker: two, draining: true });
    let id = fleet.submit("a1", |_| {});
    assert_eq!(fleet.place(), [""; 0]);
    assert_eq!(fleet.reason(id), "every suitable worker is unreachable or draining");
}

#[test]
fn a_panel_starts_together_and_nobody_younger_takes_the_places_it_waits_for() {
    let mut fleet = Fleet::default();
    fleet.places("w", 3);
    fleet.submit_all(&["z1"]);
    assert_eq!(fleet.place(), ["z1@w"]);
    let first = fleet.seat("a1", 3);
    fleet.submit_all(&["b1"]);
    assert_eq!(fleet.reason(first), "1 of 3 lanes of its panel are here");
    assert_eq!(fleet.place(), ["b1@w"], "an incomplete panel keeps nothing");
    fleet.seat("a2", 3);
    fleet.seat("a3", 3);
    fleet.submit_all(&["c1"]);
    assert_eq!(fleet.place(), [""; 0], "one place is free, and it is kept");
    assert_eq!(fleet.reason(first), "its panel needs 3 places at once");
    let w: WorkerId = "w".parse().unwrap();
    for id in fleet.core.worker(&w).unwrap().placed.clone() {
        fleet.apply(Event::Ended { attempt: id, status: "complete".to_owned() });
    }
    assert_eq!(fleet.place(), ["a1@w", "a2@w", "a3@w"]);
}

#[test]
fn a_panel_larger_than_the_fleet_stops_nobody() {
    let mut fleet = Fleet::default();
    fleet.places("w", 2);
    for name in ["a1", "a2", "a3"] {
        fleet.seat(name, 3);
    }
    fleet.submit_all(&["b1"]);
    assert_eq!(fleet.place(), ["b1@w"]);
}

#[test]
fn an_instance_runs_no_more_than_it_may() {
    let mut fleet = Fleet::default();
    let instance: agent::ids::InstanceId = "team".parse().unwrap();
    let facts = InstanceFacts { instance: instance.clone(), provider: Provider::Codex, concurrency: 1 };
    fleet.worker("w", WorkerFacts { capacity: 9, instances: vec![facts], ..WorkerFacts::default() });
    fleet.places("other", 9);
    fleet.submit("a1", |order| order.instance = Some(instance.clone()));
    let second = fleet.submit("a2", |order| order.instance = Some(instance.clone()));
    fleet.submit_all(&["a3"]);
    assert_eq!(fleet.place(), ["a1@w", "a3@other"]);
    assert_eq!(fleet.reason(second), "instance team is at its limit");
    let nowhere = fleet.submit("a4", |order| order.instance = Some("nobody".parse().unwrap()));
    assert_eq!(fleet.reason(nowhere), "no worker has the instance nobody");
}
