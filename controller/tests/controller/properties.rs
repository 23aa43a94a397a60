//! Random histories of the pure core: workers crash, lose their disks, are cut off and come back; messages are lost,
//! repeated and reordered; the controller restarts from its journal. After every step the promises must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent::event::{Event, EventBody, Phase};
use agent::ids::{AttemptId, Generation, WorkerId};
use agent::receipt::Status;
use agent::wire::attempt::CancelSignal;
use agent::wire::worker::{Held, LeaseRef, Refuse, Register, Report, WorkerFacts};
use controller::core::attempt::State;
use controller::core::worker::Order as Command;
use controller::core::{Core, replay};
use controller::event::{Entry, Event as Happened, Order};
use controller::reactor::client::Steer;
use controller::reactor::{Effects, Liveness, Now, Timing, World, client, lease, retain, tick, worker};
use controller::store::compact::overtaken;
use controller::unstarted;
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use crate::support::assignment;

/// A worker as it really is.
#[derive(Default)]
struct Machine {
    store: u128,
    session: Option<Uuid>,
    held: BTreeMap<AttemptId, (Generation, Vec<EventBody>)>,
    /// Offers that this session has answered for good.
    settled: BTreeSet<(AttemptId, Generation)>,
}

/// A message on its way to the controller.
#[derive(Clone)]
enum Mail {
    Beat(usize, Uuid, Vec<Held>),
    Claim(usize, LeaseRef),
    Refuse(usize, Refuse),
    Report(usize, Report),
    Released(usize, LeaseRef),
    /// Late, or a second time.
    Register(Box<Register>),
}

struct Sim {
    world: World,
    now: Duration,
    journal: Vec<Entry>,
    logs: BTreeMap<AttemptId, Vec<Event>>,
    attempts: Vec<AttemptId>,
    machines: Vec<Machine>,
    mail: Vec<Mail>,
    /// Who ever started what, really.
    starts: BTreeMap<AttemptId, BTreeSet<(usize, Generation)>>,
    count: u128,
}

fn name(index: usize) -> WorkerId {
    format!("w{index}").parse().unwrap()
}

impl Sim {
    fn new() -> Self {
        let timing = Timing { lease: Duration::from_secs(30), ..Timing::default() };
        let now = Duration::ZERO;
        let world = World { core: Core::default(), liveness: Liveness::default(), timing };
        Self {
            world,
            now,
            journal: Vec::new(),
            logs: BTreeMap::new(),
            attempts: Vec::new(),
            machines: (0..3).map(|store| Machine { store, ..Machine::default() }).collect(),
            mail: Vec::new(),
            starts: BTreeMap::new(),
            count: 100,
        }
    }

    fn now(&self) -> Now {
        Now { at: time::OffsetDateTime::UNIX_EPOCH + self.now, tick: self.now }
    }

    fn fresh(&mut self) -> u128 {
        self.count += 1;
        self.count
    }

    /// Lets the reactor decide, then makes its outcome durable.
    fn decide<T>(&mut self, decide: impl FnOnce(&mut World, &mut Effects, Now) -> T) -> T {
        let (mut effects, now) = (Effects::default(), self.now());
        let answer = decide(&mut self.world, &mut effects, now);
        tick::place(&mut self.world, &mut effects, now);
        self.journal.extend(effects.journal);
        for (id, events) in effects.events {
            self.logs.entry(id).or_default().extend(events);
        }
        answer
    }

    fn step(&mut self, (kind, a, b): (u8, u8, u8)) {
        let machine = usize::from(a) % self.machines.len();
        match kind {
            0 if b < 40 => self.submit_again(a),
            0 => self.submit(b),
            1 if b < 60 => self.told(a, b),
            1 => self.cancel(a),
            2 => self.register(machine),
            3 => self.machines[machine].session = None,
            4 if b < 40 => {
                let store = self.fresh();
                self.machines[machine] = Machine { store, ..Machine::default() };
            }
            4..=6 => self.look(machine, b),
            7..=9 => self.deliver(a, b),
            10 | 11 => self.work(machine, b),
            12 => self.beat(machine),
            13 => {
                self.now += Duration::from_secs(u64::from(b) * 4);
                self.decide(tick::on_tick);
            }
            14 => self.steer(machine, b),
            _ => {
                self.world.core = replay(&self.journal);
                self.world.liveness = Liveness::starting(self.now());
            }
        }
    }

    /// Under a known id, what is not the same from the same submitter changes nothing.
    fn submit_again(&mut self, choice: u8) {
        let Some(id) = self.attempts.get(usize::from(choice) % self.attempts.len().max(1)).copied() else { return };
        let known = self.world.core.attempt(id).unwrap().clone();
        let Some(order) = known.order.clone() else { return };
        let others = [
            Order { digest: "other".to_owned(), ..(*order).clone() },
            Order { submitter: "somebody".to_owned(), ..(*order).clone() },
        ];
        for order in others {
            let mut assignment = assignment();
            assignment.attempt = id;
            let refused = self.decide(|world, effects, now| client::on_submit(world, effects, now, order, assignment));
            assert!(refused.is_err());
        }
        assert_eq!(self.world.core.attempt(id).unwrap().order, known.order);
    }

    fn submit(&mut self, choice: u8) {
        let mut assignment = assignment();
        // Ids that the seed alone decides.
        assignment.attempt = Uuid::from_u128(self.fresh()).to_string().parse().unwrap();
        let order = Order {
            digest: "d".to_owned(),
            submitter: format!("s{}", choice % 3),
            provider: assignment.provider,
            model: String::new(),
            effort: None,
            mode: assignment.mode,
            execution_id: String::new(),
            labels: BTreeMap::new(),
            panel: None,
            instance: None,
            deadline: None,
        };
        self.attempts.push(assignment.attempt);
        self.decide(|world, effects, now| {
            client::on_submit(world, effects, now, order.clone(), assignment.clone()).unwrap();
            client::on_submit(world, effects, now, order, assignment).unwrap();
        });
    }

    fn cancel(&mut self, choice: u8) {
        let Some(id) = self.attempts.get(usize::from(choice) % self.attempts.len().max(1)).copied() else { return };
        let receipt = unstarted::cancelled(&assignment(), CancelSignal::Interrupt, self.now().at);
        self.decide(|world, effects, now| {
            client::on_cancel(world, effects, now, id, (CancelSignal::Interrupt, "ada".to_owned()), Some(receipt))
                .unwrap();
        });
    }

    /// A client says what it delivered, at any time, and again.
    fn told(&mut self, choice: u8, word: u8) {
        let Some(id) = self.attempts.get(usize::from(choice) % self.attempts.len().max(1)).copied() else { return };
        let status = Status::ALL[usize::from(word) % Status::ALL.len()];
        let of_it = |entry: &&Entry| matches!(entry.event, Happened::Delivered { attempt, .. } if attempt == id);
        let before = self.journal.iter().filter(of_it).count();
        for _ in 0..2 {
            self.decide(|world, effects, now| client::on_delivered(world, effects, now, id, status)).unwrap();
        }
        assert!(self.journal.iter().filter(of_it).count() <= before + 1, "the same again is no entry");
        assert_eq!(self.world.core.attempt(id).unwrap().delivered.unwrap().status, status);
    }

    fn held(&self, machine: usize) -> Vec<Held> {
        let held = self.machines[machine].held.iter().map(|(attempt, (generation, log))| Held {
            attempt: *attempt,
            generation: *generation,
            last_seq: log.len() as u64,
            terminal: false,
        });
        held.collect()
    }

    fn register(&mut self, machine: usize) {
        let (session, number) = (Uuid::from_u128(self.fresh()), u64::try_from(self.count).unwrap());
        let store = Uuid::from_u128(self.machines[machine].store);
        let facts = WorkerFacts { store, capacity: 2, ..WorkerFacts::default() };
        let held = self.held(machine);
        let register = Register { worker: name(machine), session, number, facts, held, damaged: Vec::new() };
        self.mail.push(Mail::Register(Box::new(register.clone())));
        let taken = self.decide(|world, effects, now| worker::on_register(world, effects, now, &register).is_ok());
        let machine = &mut self.machines[machine];
        machine.session = taken.then_some(session);
        machine.settled.clear();
    }

    /// The worker reads what it should do, from the beginning: commands may be repeated.
    fn look(&mut self, machine: usize, choice: u8) {
        let Some(session) = self.machines[machine].session else { return };
        let known = self.world.core.worker(&name(machine)).map(|worker| worker.session);
        if known != Some(session) {
            return;
        }
        let orders = self.world.core.orders_after(&name(machine), 0);
        let Some((_, order)) = orders.get(usize::from(choice) % orders.len().max(1)).cloned() else { return };
        match order {
            Command::Offer { attempt, generation } => {
                self.mail.push(Mail::Claim(machine, LeaseRef { session, attempt, generation }));
            }
            Command::Cancel { attempt, .. } => self.log(machine, attempt, terminal("cancelled")),
            Command::Release { attempt, generation } => {
                self.machines[machine].held.remove(&attempt);
                self.mail.push(Mail::Released(machine, LeaseRef { session, attempt, generation }));
            }
        }
    }

    /// Delivers a message. Some stay and come again later; some answers are lost.
    fn deliver(&mut self, choice: u8, fate: u8) {
        if self.mail.is_empty() {
            return;
        }
        let index = usize::from(choice) % self.mail.len();
        let mail = if fate.is_multiple_of(3) { self.mail[index].clone() } else { self.mail.swap_remove(index) };
        let answered = !fate.is_multiple_of(5);
        match mail {
            Mail::Beat(machine, session, held) => {
                let _ = self.decide(|w, e, n| worker::on_heartbeat(w, e, n, &name(machine), session, &held));
            }
            Mail::Claim(machine, lease) => {
                let granted = self.decide(|w, e, n| lease::on_claim(w, e, n, &name(machine), &lease)).is_ok();
                if granted && answered {
                    self.take(machine, &lease, fate);
                }
            }
            Mail::Refuse(machine, refuse) => {
                let receipt = unstarted::refused(&assignment(), "no", self.now().at);
                let _ = self.decide(|w, e, n| lease::on_refuse(w, e, n, &name(machine), &refuse, Some(receipt)));
            }
            Mail::Report(machine, report) => {
                let _ = self.decide(|w, e, n| lease::on_report(w, e, n, &name(machine), report));
            }
            Mail::Register(register) => {
                let _ = self.decide(|w, e, n| worker::on_register(w, e, n, &register).is_ok());
            }
            Mail::Released(machine, LeaseRef { session, attempt, generation }) => {
                let _ =
                    self.decide(|w, e, n| lease::on_released(w, e, n, &name(machine), session, attempt, generation));
            }
        }
    }

    /// A grant arrives: the worker starts the attempt, or refuses it.
    fn take(&mut self, machine: usize, lease: &LeaseRef, fate: u8) {
        let worker = &mut self.machines[machine];
        let key = (lease.attempt, lease.generation);
        if worker.session != Some(lease.session) || !worker.settled.insert(key) {
            return;
        }
        if fate > 200 {
            let refuse = Refuse { lease: lease.clone(), reason: "no".to_owned(), elsewhere: fate > 210 };
            self.mail.push(Mail::Refuse(machine, refuse));
            return;
        }
        worker.held.entry(lease.attempt).or_insert((lease.generation, Vec::new()));
        self.starts.entry(lease.attempt).or_default().insert((machine, lease.generation));
    }

    fn log(&mut self, machine: usize, id: AttemptId, body: EventBody) {
        if let Some((_, log)) = self.machines[machine].held.get_mut(&id)
            && !matches!(log.last(), Some(EventBody::Terminal { .. }))
        {
            log.push(body);
        }
    }

    /// Something happens in an attempt, and any stretch of its log is reported.
    fn work(&mut self, machine: usize, choice: u8) {
        let ids: Vec<AttemptId> = self.machines[machine].held.keys().copied().collect();
        let Some(id) = ids.get(usize::from(choice) % ids.len().max(1)).copied() else { return };
        let body = match choice % 4 {
            0 => EventBody::Status { phase: Phase::Running, step: None, settled: None, note: None },
            1 | 2 => EventBody::Text { text: String::new() },
            _ => terminal("complete"),
        };
        self.log(machine, id, body);
        self.report(machine, id, usize::from(choice) % 3);
    }

    fn report(&mut self, machine: usize, attempt: AttemptId, skip: usize) {
        let Some(session) = self.machines[machine].session else { return };
        let Some((generation, log)) = self.machines[machine].held.get(&attempt) else { return };
        let skip = skip.min(log.len().saturating_sub(1));
        let events = log.iter().enumerate().skip(skip).map(|(index, body)| Event {
            seq: index as u64 + 1,
            at: time::OffsetDateTime::UNIX_EPOCH,
            body: body.clone(),
        });
        let (events, first_seq) = (events.collect(), skip as u64 + 1);
        let report = Report { session, attempt, generation: *generation, first_seq, events };
        self.mail.push(Mail::Report(machine, report));
    }

    fn steer(&mut self, machine: usize, choice: u8) {
        let steer = match choice % 4 {
            0 => Steer::Drain,
            1 => Steer::Resume,
            choice => Steer::Remove { abandon: choice == 3 },
        };
        let _ = self.decide(|world, effects, now| client::on_steer(world, effects, now, &name(machine), steer));
    }

    /// Retention takes away every second attempt that it may.
    fn forget(&mut self) -> Vec<AttemptId> {
        let every_second: Vec<AttemptId> = self.attempts.iter().step_by(2).copied().collect();
        let forget = |world: &mut World, effects: &mut Effects, now| {
            every_second.into_iter().filter(|id| retain::on_forget(world, effects, now, *id)).collect()
        };
        self.decide(forget)
    }

    fn beat(&mut self, machine: usize) {
        if let Some(session) = self.machines[machine].session {
            self.mail.push(Mail::Beat(machine, session, self.held(machine)));
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        if let Err(broken) = self.world.core.check_invariants() {
            prop_assert!(false, "{}", broken);
        }
        prop_assert_eq!(&replay(&self.journal), &self.world.core, "replay differs");
        for (id, starts) in &self.starts {
            prop_assert!(starts.len() <= 1, "{} was started {:?}", id, starts);
        }
        for id in &self.attempts {
            let attempt = self.world.core.attempt(*id).unwrap();
            let log = self.logs.get(id).map(Vec::as_slice).unwrap_or_default();
            prop_assert_eq!(log.len() as u64, attempt.last_seq);
            for (index, event) in log.iter().enumerate() {
                prop_assert_eq!(event.seq, index as u64 + 1, "kept once and in order");
            }
            let receipts = log.iter().filter(|event| matches!(event.body, EventBody::Terminal { .. })).count();
            let ended = matches!(attempt.state, State::Ended { .. });
            prop_assert_eq!(receipts, usize::from(ended), "one receipt, at the end");
        }
        Ok(())
    }

    /// The network is whole again and everybody is up: everything comes to its end, but for what a lost disk took.
    fn calm_down(&mut self) {
        self.now += Duration::from_secs(1000);
        self.decide(tick::on_tick);
        for round in 0..40 {
            for machine in 0..self.machines.len() {
                if round == 0 {
                    self.register(machine);
                    self.steer(machine, 1);
                }
                self.beat(machine);
                let orders = self.world.core.orders_after(&name(machine), 0).len();
                for order in 0..orders {
                    self.look(machine, u8::try_from(order).unwrap_or(0));
                }
                let held: Vec<AttemptId> = self.machines[machine].held.keys().copied().collect();
                for id in held {
                    self.log(machine, id, terminal("complete"));
                    self.report(machine, id, 0);
                }
            }
            while !self.mail.is_empty() {
                self.deliver(0, 1);
            }
            self.now += Duration::from_secs(6);
            self.decide(tick::on_tick);
        }
    }
}

fn terminal(status: &str) -> EventBody {
    EventBody::Terminal { receipt: serde_json::json!({"status": status}), answer_bytes: None }
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

/// The promises hold after every step of a history, and everything comes to its end.
fn holds(steps: &[(u8, u8, u8)]) -> Result<(), TestCaseError> {
    let mut sim = Sim::new();
    for step in steps {
        sim.step(*step);
        sim.check()?;
    }
    sim.calm_down();
    sim.check()?;
    for id in &sim.attempts {
        let attempt = sim.world.core.attempt(*id).unwrap();
        let lost = matches!(attempt.state, State::Held { interrupted: true, .. });
        prop_assert!(lost || matches!(attempt.state, State::Ended { .. }), "{} hangs: {:?}", id, attempt.state);
    }
    Ok(())
}

/// It was found by chance: a worker was removed, and a registration of before its claim arrived after that.
#[test]
fn the_history_in_which_a_removed_workers_late_registration_gave_its_attempt_away_keeps_the_promises() {
    let steps = [
        [(0, 0, 40), (0, 0, 40), (2, 47, 0), (2, 0, 0), (2, 0, 0), (7, 0, 31), (2, 0, 0)],
        [(2, 0, 0), (2, 107, 0), (7, 107, 7), (0, 0, 0), (3, 95, 0), (2, 0, 0), (0, 0, 0)],
        [(0, 0, 0), (2, 203, 0), (7, 0, 1), (7, 123, 4), (4, 221, 40), (7, 144, 1), (2, 0, 0)],
        [(2, 0, 0), (4, 47, 0), (7, 0, 16), (7, 128, 127), (14, 17, 91), (4, 180, 40), (7, 227, 0)],
    ];
    holds(steps.as_flattened()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn no_history_starts_an_attempt_twice_or_loses_an_event(
        steps in vec((0..16_u8, any::<u8>(), any::<u8>()), 0..250),
    ) {
        holds(&steps)?;
    }

    #[test]
    fn a_journal_without_what_is_over_replays_to_the_same_state_at_every_moment_of_its_compaction(
        steps in vec((0..16_u8, any::<u8>(), any::<u8>()), 0..250),
        calm: bool,
        done in 0..30_usize,
    ) {
        let mut sim = Sim::new();
        for step in steps {
            sim.step(step);
        }
        if calm {
            sim.calm_down();
        }
        let forgotten = sim.forget();
        let whole = replay(&sim.journal);
        prop_assert_eq!(&whole, &sim.world.core);
        prop_assert!(whole.check_invariants().is_ok());
        let newest = sim.journal.last().map_or(0, |entry| entry.seq);
        let mut kept = sim.journal.clone();
        for id in forgotten {
            prop_assert!(whole.attempt(id).is_none());
            let mut left = done;
            kept.retain(|entry| {
                let goes = entry.event.attempt() == Some(id) && entry.seq < newest && left > 0;
                left -= usize::from(goes);
                !goes
            });
        }
        prop_assert_eq!(&replay(&kept), &whole);
        let oldest = kept.iter().find(|entry| entry.event.attempt().is_some()).map_or(newest, |entry| entry.seq);
        let mut old: Vec<Entry> =
            kept.iter().filter(|entry| entry.event.worker().is_some() && entry.seq < oldest).cloned().collect();
        old.sort_by_key(|entry| (entry.event.worker().cloned(), entry.seq));
        let gone = overtaken(&old);
        kept.retain(|entry| !gone.contains(&entry.seq));
        prop_assert_eq!(&replay(&kept), &whole);
    }
}
