//! The controller's state: attempts, workers, leases. Changed only by [`Core::apply`], never by a clock, a file or a
//! connection, so that replaying the journal gives the very same state.

pub mod attempt;
mod invariants;
mod view;
pub mod worker;

use std::collections::{BTreeMap, BTreeSet};

use agent::ids::{AttemptId, Generation, WorkerId};
use agent::wire::attempt::Delivered;

use self::attempt::{Attempt, CancelRequest, State};
use self::worker::Worker;
use crate::event::{Entry, Event};

/// Everything that the journal says. Equal journals give equal cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Core {
    /// Number of the last entry applied.
    seq: u64,
    attempts: BTreeMap<AttemptId, Attempt>,
    workers: BTreeMap<WorkerId, Worker>,
    /// Waiting attempts in order of submission.
    queue: BTreeSet<(u64, AttemptId)>,
    /// Attempts of each submitter that hold a place.
    shares: BTreeMap<String, u32>,
    /// Lanes of each panel, by submitter and name.
    panels: BTreeMap<(String, String), BTreeSet<AttemptId>>,
}

impl Core {
    /// Number of the last entry applied.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// One attempt.
    #[must_use]
    pub fn attempt(&self, id: AttemptId) -> Option<&Attempt> {
        self.attempts.get(&id)
    }

    /// All attempts in order of their ids, which is the order of creation.
    #[must_use]
    pub const fn attempts(&self) -> &BTreeMap<AttemptId, Attempt> {
        &self.attempts
    }

    /// One worker.
    #[must_use]
    pub fn worker(&self, id: &WorkerId) -> Option<&Worker> {
        self.workers.get(id)
    }

    /// All workers by name.
    #[must_use]
    pub const fn workers(&self) -> &BTreeMap<WorkerId, Worker> {
        &self.workers
    }

    /// Waiting attempts in order of submission.
    pub fn queue(&self) -> impl Iterator<Item = (AttemptId, &Attempt)> {
        self.queue.iter().filter_map(|(_, id)| Some((*id, self.attempts.get(id)?)))
    }

    /// Attempts that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Attempts of each submitter that hold a place.
    #[must_use]
    pub const fn shares(&self) -> &BTreeMap<String, u32> {
        &self.shares
    }

    /// Lanes of a panel that were ever submitted.
    #[must_use]
    pub fn panel(&self, submitter: &str, panel: &str) -> BTreeSet<AttemptId> {
        self.panels.get(&(submitter.to_owned(), panel.to_owned())).cloned().unwrap_or_default()
    }

    /// The only place that changes the core. Entries that make no sense in the state at hand change nothing: the
    /// reactor never writes one, and a journal is never worth a panic.
    pub fn apply(&mut self, entry: &Entry) {
        self.seq = entry.seq;
        match &entry.event {
            Event::Submitted { attempt, order } => {
                if !self.attempts.contains_key(attempt) {
                    self.attempts.insert(*attempt, Attempt::submitted(entry, order));
                    self.queue.insert((entry.seq, *attempt));
                    if let Some(seat) = &order.panel {
                        let key = (order.submitter.clone(), seat.id.clone());
                        self.panels.entry(key).or_default().insert(*attempt);
                    }
                }
            }
            Event::Brought { attempt, worker, generation } => self.bring(entry, *attempt, worker, *generation),
            Event::Joined { worker, session, facts, number } => {
                let known = self.workers.contains_key(worker);
                let joined = self.workers.entry(worker.clone()).or_default();
                joined.session = *session;
                joined.number = *number;
                joined.facts = (**facts).clone();
                joined.lost = false;
                if !known {
                    self.find_again(worker);
                }
            }
            Event::Steered { worker, draining } => self.change_worker(worker, |worker| worker.draining = *draining),
            Event::Removed { worker } => self.remove_worker(worker),
            Event::Lost { worker } => self.change_worker(worker, |worker| worker.lost = true),
            Event::Found { worker } => self.change_worker(worker, |worker| worker.lost = false),
            Event::Offered { attempt, worker, generation } => {
                let state = State::Offered { worker: worker.clone(), generation: *generation, seq: entry.seq };
                self.transit(*attempt, state);
            }
            Event::Withdrawn { attempt, .. } => self.transit(*attempt, State::Queued),
            Event::Claimed { attempt } => {
                if let Some(State::Offered { worker, generation, .. }) = self.attempt(*attempt).map(|a| a.state.clone())
                {
                    let state = self.held(worker, generation);
                    self.transit(*attempt, state);
                }
            }
            Event::Reported { attempt, through, started } => self.change(*attempt, |attempt| {
                attempt.last_seq = *through;
                if let State::Held { started: known, .. } = &mut attempt.state {
                    *known |= *started;
                }
            }),
            Event::AnswerKept { attempt, digest, bytes } => {
                self.change(*attempt, |attempt| attempt.answer = Some((digest.clone(), *bytes)));
            }
            Event::Interrupted { attempt } => self.set_interrupted(*attempt, true),
            Event::Resumed { attempt } => self.set_interrupted(*attempt, false),
            Event::CancelRequested { attempt, signal, unstarted, .. } => self.change(*attempt, |attempt| {
                let (seq, unstarted) = (entry.seq, unstarted.clone());
                attempt.cancel = Some(CancelRequest { signal: *signal, seq, unstarted });
            }),
            Event::Ended { attempt, status } => self.end(entry, *attempt, status),
            Event::Delivered { attempt, status } => {
                let delivered = Delivered { status: *status, at: entry.at };
                self.change(*attempt, |attempt| attempt.delivered = Some(delivered));
            }
            Event::Released { attempt, done } => self.release(*attempt, *done),
            Event::Forgotten { attempt } => self.forget(*attempt),
        }
    }

    /// What a removed worker held stays with its name, but takes no share any more.
    fn remove_worker(&mut self, id: &WorkerId) {
        let Some(gone) = self.workers.remove(id) else { return };
        for attempt in gone.placed {
            let submitter = self.attempts.get(&attempt).map(|attempt| attempt.submitter().to_owned());
            self.leave_share(submitter.as_deref().unwrap_or_default());
        }
    }

    /// A worker that was removed comes back: what it held is its own again.
    fn find_again(&mut self, id: &WorkerId) {
        let Some(worker) = self.workers.get_mut(id) else { return };
        for (attempt, known) in &self.attempts {
            match &known.state {
                State::Held { worker: by, .. } if by == id => {
                    worker.placed.insert(*attempt);
                    *self.shares.entry(known.submitter().to_owned()).or_default() += 1;
                }
                State::Ended { worker: Some(by), released: false, .. } if by == id => {
                    worker.unreleased.insert(*attempt);
                }
                _ => {}
            }
        }
    }

    fn leave_share(&mut self, submitter: &str) {
        if let Some(share) = self.shares.get_mut(submitter) {
            *share = share.saturating_sub(1);
            if *share == 0 {
                self.shares.remove(submitter);
            }
        }
    }

    /// A lease that begins, with the state directory and the registration that the worker has now.
    fn held(&self, worker: WorkerId, generation: Generation) -> State {
        let (store, number) = self.worker(&worker).map(|known| (known.facts.store, known.number)).unwrap_or_default();
        State::Held { worker, generation, store, number, started: false, interrupted: false }
    }

    fn bring(&mut self, entry: &Entry, id: AttemptId, worker: &WorkerId, generation: Generation) {
        let queue = &mut self.queue;
        let attempt = self.attempts.entry(id).or_insert_with(|| {
            queue.insert((entry.seq, id));
            Attempt::brought(entry)
        });
        attempt.generation = attempt.generation.max(generation.0);
        let state = self.held(worker.clone(), generation);
        self.transit(id, state);
    }

    fn end(&mut self, entry: &Entry, id: AttemptId, status: &str) {
        let seq = entry.seq;
        let Some(attempt) = self.attempt(id) else { return };
        let (worker, generation) = match &attempt.state {
            State::Held { worker, generation, .. } => (Some(worker.clone()), *generation),
            State::Queued | State::Offered { .. } => (None, Generation(attempt.generation)),
            State::Ended { .. } => return,
        };
        let released = worker.is_none();
        self.transit(id, State::Ended { worker, generation, status: status.to_owned(), seq, released });
        self.change(id, |attempt| attempt.ended_at = Some(entry.at));
    }

    /// True for an ended attempt that nobody is about to ask for: its worker let it go or was removed, and no lane of
    /// its panel is on its way.
    #[must_use]
    pub fn may_forget(&self, id: AttemptId) -> bool {
        let Some(attempt) = self.attempt(id) else { return false };
        let State::Ended { worker, released, .. } = &attempt.state else { return false };
        let let_go = *released || worker.as_ref().is_none_or(|worker| !self.workers.contains_key(worker));
        let panel = attempt.order.as_ref().and_then(|order| Some((&order.submitter, &order.panel.as_ref()?.id)));
        let lanes = panel.map(|(submitter, panel)| self.panel(submitter, panel)).unwrap_or_default();
        let open = |id: &AttemptId| !matches!(self.attempt(*id).map(|a| &a.state), Some(State::Ended { .. }));
        let_go && !lanes.iter().any(open)
    }

    fn forget(&mut self, id: AttemptId) {
        if !matches!(self.attempt(id).map(|attempt| &attempt.state), Some(State::Ended { .. })) {
            return;
        }
        let Some(gone) = self.attempts.remove(&id) else { return };
        for worker in self.workers.values_mut() {
            worker.unreleased.remove(&id);
        }
        if let Some((submitter, seat)) = gone.order.and_then(|order| Some((order.submitter, order.panel?))) {
            let key = (submitter, seat.id);
            if let Some(lanes) = self.panels.get_mut(&key) {
                lanes.remove(&id);
                if lanes.is_empty() {
                    self.panels.remove(&key);
                }
            }
        }
    }

    fn release(&mut self, id: AttemptId, done: bool) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let State::Ended { worker: Some(worker), released, .. } = &mut attempt.state else { return };
        *released = done;
        if let Some(worker) = self.workers.get_mut(worker) {
            if done {
                worker.unreleased.remove(&id);
            } else {
                worker.unreleased.insert(id);
            }
        }
    }

    fn set_interrupted(&mut self, id: AttemptId, now: bool) {
        self.change(id, |attempt| {
            if let State::Held { interrupted, .. } = &mut attempt.state {
                *interrupted = now;
            }
        });
    }

    /// Moves an attempt to a state and keeps queue, places and shares in step.
    fn transit(&mut self, id: AttemptId, state: State) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let from = std::mem::replace(&mut attempt.state, state);
        if let State::Offered { generation, .. } = &attempt.state {
            attempt.generation = generation.0;
        }
        let submitter = attempt.submitter().to_owned();
        let (order, to) = (attempt.submitted_seq, attempt.state.clone());
        if matches!(from, State::Queued) {
            self.queue.remove(&(order, id));
        }
        if let State::Offered { worker, .. } | State::Held { worker, .. } = &from {
            let placed = self.workers.get_mut(worker).is_some_and(|worker| worker.placed.remove(&id));
            if placed {
                self.leave_share(&submitter);
            }
        }
        match &to {
            State::Queued => {
                self.queue.insert((order, id));
            }
            State::Offered { worker, .. } | State::Held { worker, .. } => {
                let placed = self.workers.get_mut(worker).is_some_and(|worker| worker.placed.insert(id));
                if placed {
                    *self.shares.entry(submitter).or_default() += 1;
                }
            }
            State::Ended { worker: Some(worker), released: false, .. } => self.change_worker(worker, |worker| {
                worker.unreleased.insert(id);
            }),
            State::Ended { .. } => {}
        }
    }

    fn change(&mut self, id: AttemptId, change: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            change(attempt);
        }
    }

    fn change_worker(&mut self, id: &WorkerId, change: impl FnOnce(&mut Worker)) {
        if let Some(worker) = self.workers.get_mut(id) {
            change(worker);
        }
    }
}

/// Folds a journal.
pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Core {
    let mut core = Core::default();
    for entry in entries {
        core.apply(entry);
    }
    core
}
