//! One attempt as the controller knows it.

use agent::ids::{Generation, WorkerId};
use agent::wire::attempt::{CancelSignal, Delivered};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::event::{Entry, Order};

/// Submitter of attempts that a worker brought along.
pub const UNKNOWN_SUBMITTER: &str = "unknown";

/// One attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// `None` for one that a worker brought along.
    pub order: Option<Box<Order>>,
    pub submitted_at: OffsetDateTime,
    /// Journal entry of the submission: its place in the queue, also when it waits again.
    pub submitted_seq: u64,
    /// The newest generation handed out, 0 before the first offer.
    pub generation: u64,
    pub state: State,
    /// Newest durable event of its log.
    pub last_seq: u64,
    /// Digest and size of the durable answer.
    pub answer: Option<(String, u64)>,
    pub cancel: Option<CancelRequest>,
    /// When its terminal event became durable here.
    pub ended_at: Option<OffsetDateTime>,
    /// What its client gave to the caller.
    pub delivered: Option<Delivered>,
}

/// A cancel that a client asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct CancelRequest {
    pub signal: CancelSignal,
    /// The entry that says so.
    pub seq: u64,
    /// The receipt in case that the attempt provably never starts.
    pub unstarted: Option<Box<Value>>,
}

/// Where the attempt is. Whether its worker is reachable is the worker's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for a place.
    Queued,
    /// Offered and not claimed: provably not started. `seq` is the entry of the offer.
    Offered { worker: WorkerId, generation: Generation, seq: u64 },
    /// Claimed: may have started. `store` is the state directory that the worker had then, `number` that of its registration.
    Held { worker: WorkerId, generation: Generation, store: Uuid, number: u64, started: bool, interrupted: bool },
    /// The terminal event is durable. `seq` is the entry that says so.
    Ended { worker: Option<WorkerId>, generation: Generation, status: String, seq: u64, released: bool },
}

impl Attempt {
    pub(super) fn submitted(entry: &Entry, order: &Order) -> Self {
        Self { order: Some(Box::new(order.clone())), ..Self::brought(entry) }
    }

    pub(super) const fn brought(entry: &Entry) -> Self {
        Self {
            order: None,
            submitted_at: entry.at,
            submitted_seq: entry.seq,
            generation: 0,
            state: State::Queued,
            last_seq: 0,
            answer: None,
            cancel: None,
            ended_at: None,
            delivered: None,
        }
    }

    /// Who submitted it.
    #[must_use]
    pub fn submitter(&self) -> &str {
        self.order.as_ref().map_or(UNKNOWN_SUBMITTER, |order| &order.submitter)
    }

    /// The worker that it is offered to, held by or ended on.
    #[must_use]
    pub const fn worker(&self) -> Option<&WorkerId> {
        match &self.state {
            State::Queued => None,
            State::Offered { worker, .. } | State::Held { worker, .. } => Some(worker),
            State::Ended { worker, .. } => worker.as_ref(),
        }
    }

    /// True if `worker` holds the attempt under `generation`.
    #[must_use]
    pub fn is_held_by(&self, by: &WorkerId, under: Generation) -> bool {
        matches!(&self.state, State::Held { worker, generation, .. } if worker == by && *generation == under)
    }
}
