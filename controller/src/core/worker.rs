//! One worker as the controller knows it, and what it should be told.

use std::collections::BTreeSet;

use agent::ids::{AttemptId, Generation, WorkerId};
use agent::wire::attempt::CancelSignal;
use agent::wire::worker::WorkerFacts;
use uuid::Uuid;

use super::Core;
use super::attempt::{Attempt, State};

/// One worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worker {
    /// Its newest registration.
    pub session: Uuid,
    /// Its number.
    pub number: u64,
    pub facts: WorkerFacts,
    /// Gets nothing new.
    pub draining: bool,
    /// Silent for longer than its lease.
    pub lost: bool,
    /// Attempts offered to it or held by it: each takes a place.
    pub placed: BTreeSet<AttemptId>,
    /// Ended attempts that it has not forgotten yet.
    pub unreleased: BTreeSet<AttemptId>,
}

impl Worker {
    /// Everything that it has not let go of.
    pub fn holds(&self) -> impl Iterator<Item = AttemptId> {
        self.placed.iter().chain(&self.unreleased).copied()
    }

    /// Places that are free.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.facts.capacity.saturating_sub(u32::try_from(self.placed.len()).unwrap_or(u32::MAX))
    }
}

/// A command, before the assignment is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Offer { attempt: AttemptId, generation: Generation },
    Cancel { attempt: AttemptId, generation: Generation, signal: CancelSignal },
    Release { attempt: AttemptId, generation: Generation },
}

impl Core {
    /// The newest registration under which the agent with this state directory claimed what may have started and has not
    /// ended. It outlives the worker's own entry, which goes when the worker is removed or another agent takes the name.
    #[must_use]
    pub fn claimed_under(&self, id: &WorkerId, agent: Uuid) -> Option<u64> {
        let claimed = |attempt: &Attempt| match &attempt.state {
            State::Held { worker, store, number, .. } if worker == id && *store == agent => Some(*number),
            _ => None,
        };
        match self.worker(id) {
            Some(worker) => worker.placed.iter().filter_map(|id| claimed(self.attempt(*id)?)).max(),
            None => self.attempts().values().filter_map(claimed).max(),
        }
    }

    /// What `worker` should be told after entry `after`, in order, with the entry that is each one's reason. It is
    /// derived from the state, so nothing needs to be queued, and what is settled meanwhile is not sent any more.
    #[must_use]
    pub fn orders_after(&self, worker: &WorkerId, after: u64) -> Vec<(u64, Order)> {
        let Some(worker) = self.worker(worker) else { return Vec::new() };
        let mut orders = Vec::new();
        for id in worker.placed.iter().chain(&worker.unreleased) {
            let Some(attempt) = self.attempt(*id) else { continue };
            match &attempt.state {
                State::Offered { generation, seq, .. } => {
                    orders.push((*seq, Order::Offer { attempt: *id, generation: *generation }));
                }
                State::Held { generation, .. } => {
                    if let Some(cancel) = &attempt.cancel {
                        let order = Order::Cancel { attempt: *id, generation: *generation, signal: cancel.signal };
                        orders.push((cancel.seq, order));
                    }
                }
                State::Ended { generation, seq, .. } => {
                    orders.push((*seq, Order::Release { attempt: *id, generation: *generation }));
                }
                State::Queued => {}
            }
        }
        orders.retain(|(seq, _)| *seq > after);
        orders.sort_by_key(|(seq, _)| *seq);
        orders
    }
}
