//! What proves that a claimed attempt was never started, so that another worker may be offered it: a registration that
//! its worker wrote after the claim, with the state directory of the claim. Nothing else does.

use std::time::Duration;

use agent::ids::{AttemptId, Generation, WorkerId};
use agent::wire::worker::{LeaseRef, Register, WorkerFacts};
use controller::core::attempt::State;
use controller::core::{Core, replay};
use controller::event::{Entry, Order};
use controller::reactor::client::{Steer, on_steer, on_submit};
use controller::reactor::lease::on_claim;
use controller::reactor::worker::on_register;
use controller::reactor::{Effects, Liveness, Now, Refused, Timing, World, tick};
use uuid::Uuid;

use crate::support::assignment;

/// A controller's core with one attempt.
struct Desk {
    world: World,
    journal: Vec<Entry>,
    tick: Duration,
    attempt: AttemptId,
}

/// The registration `number` of the agent whose state directory is `store`, with nothing in its hands.
fn registration(store: u128, number: u64) -> Register {
    Register {
        worker: "w1".parse().unwrap(),
        session: Uuid::from_u128(store * 1000 + u128::from(number)),
        number,
        facts: WorkerFacts { store: Uuid::from_u128(store), capacity: 1, ..WorkerFacts::default() },
        held: Vec::new(),
        damaged: Vec::new(),
    }
}

impl Desk {
    fn new() -> Self {
        let world = World { core: Core::default(), liveness: Liveness::default(), timing: Timing::default() };
        let assignment = assignment();
        let mut desk = Self { world, journal: Vec::new(), tick: Duration::ZERO, attempt: assignment.attempt };
        let order = Order {
            digest: "d".to_owned(),
            submitter: "ada".to_owned(),
            provider: assignment.provider,
            model: String::new(),
            effort: None,
            mode: assignment.mode,
            execution_id: String::new(),
            labels: std::collections::BTreeMap::new(),
            panel: None,
            instance: None,
            deadline: None,
        };
        desk.decide(|world, effects, now| on_submit(world, effects, now, order, assignment)).unwrap();
        desk
    }

    fn decide<T>(&mut self, decide: impl FnOnce(&mut World, &mut Effects, Now) -> T) -> T {
        let now = Now { at: time::OffsetDateTime::UNIX_EPOCH + self.tick, tick: self.tick };
        let mut effects = Effects::default();
        let answer = decide(&mut self.world, &mut effects, now);
        tick::place(&mut self.world, &mut effects, now);
        self.journal.extend(effects.journal);
        assert_eq!(replay(&self.journal), self.world.core);
        self.world.core.check_invariants().unwrap();
        answer
    }

    fn register(&mut self, register: &Register) -> Result<(), Refused> {
        self.decide(|world, effects, now| on_register(world, effects, now, register)).map(drop)
    }

    /// The offered attempt is claimed under this registration: from here on it may have started.
    fn claim(&mut self, register: &Register) {
        let worker: WorkerId = register.worker.clone();
        let lease = LeaseRef { session: register.session, attempt: self.attempt, generation: Generation(1) };
        self.decide(|world, effects, now| on_claim(world, effects, now, &worker, &lease)).unwrap();
    }

    fn remove(&mut self) {
        let worker = "w1".parse().unwrap();
        let steer = Steer::Remove { abandon: true };
        self.decide(|world, effects, now| on_steer(world, effects, now, &worker, steer)).unwrap();
    }

    fn pass(&mut self, time: Duration) {
        self.tick += time;
        self.decide(tick::on_tick);
    }

    #[track_caller]
    fn is_still_its_workers(&self) {
        let state = &self.world.core.attempt(self.attempt).unwrap().state;
        assert!(matches!(state, State::Held { generation: Generation(1), .. }), "it may have started: {state:?}");
    }

    /// Neither one of before, nor the very one under which it was claimed, a second time.
    #[track_caller]
    fn only_a_later_registration_proves_it(&mut self, claimed_under: u64) {
        for number in [claimed_under - 1, claimed_under] {
            is_late(self.register(&registration(1, number)));
            self.is_still_its_workers();
        }
        self.register(&registration(1, claimed_under + 1)).unwrap();
        self.is_offered_again();
    }

    #[track_caller]
    fn is_offered_again(&self) {
        let state = &self.world.core.attempt(self.attempt).unwrap().state;
        assert!(matches!(state, State::Offered { generation: Generation(2), .. }), "{state:?}");
    }
}

#[track_caller]
fn is_late<T: std::fmt::Debug>(answer: Result<T, Refused>) {
    assert!(matches!(answer, Err(Refused::StaleSession(_))), "{answer:?}");
}

#[test]
fn a_registration_of_before_the_claim_proves_nothing_after_its_worker_was_removed() {
    let mut desk = Desk::new();
    desk.register(&registration(1, 8)).unwrap();
    desk.claim(&registration(1, 8));
    desk.remove();
    desk.is_still_its_workers();
    desk.only_a_later_registration_proves_it(8);
}

#[test]
fn a_registration_of_before_the_claim_proves_nothing_after_another_agent_had_the_name() {
    let mut desk = Desk::new();
    desk.register(&registration(1, 8)).unwrap();
    desk.claim(&registration(1, 8));
    desk.pass(Duration::from_secs(40));
    desk.register(&registration(2, 5)).unwrap();
    desk.is_still_its_workers();
    desk.pass(Duration::from_secs(40));
    desk.only_a_later_registration_proves_it(8);
}

#[test]
fn a_registration_without_a_number_proves_nothing() {
    for claimed_under in [0, 8] {
        let mut desk = Desk::new();
        desk.register(&registration(1, claimed_under)).unwrap();
        desk.claim(&registration(1, claimed_under));
        let unnumbered = Register { session: Uuid::from_u128(7), ..registration(1, 0) };
        desk.register(&unnumbered).unwrap();
        desk.is_still_its_workers();
        desk.register(&registration(1, 9)).unwrap();
        desk.is_offered_again();
    }
}
