//! Everything that ever happened at this controller. The journal of these is the state; [`crate::core::Core`] is its fold.
//! Variants and fields are only ever added: old journals must load for ever.

use std::collections::BTreeMap;

use agent::descriptor::{Effort, Mode, Provider};
use agent::ids::{AttemptId, Generation, InstanceId, WorkerId};
use agent::receipt::Status;
use agent::wire::attempt::{CancelSignal, PanelSeat};
use agent::wire::worker::WorkerFacts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

/// One line of the journal. `seq` counts from 1 without holes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub seq: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Event {
    /// A client submitted an attempt; its assignment is kept beside the journal.
    Submitted { attempt: AttemptId, order: Box<Order> },
    /// A worker came with an attempt that nobody submitted here, or that must count as its own.
    Brought { attempt: AttemptId, worker: WorkerId, generation: Generation },
    /// A worker registered.
    Joined {
        worker: WorkerId,
        session: Uuid,
        facts: Box<WorkerFacts>,
        /// See [`Register`](agent::wire::worker::Register); 0 in journals from before it was kept.
        #[serde(default)]
        number: u64,
    },
    /// An operator stopped or resumed offers to a worker.
    Steered { worker: WorkerId, draining: bool },
    /// An operator removed a worker.
    Removed { worker: WorkerId },
    /// A worker was silent for longer than its lease.
    Lost { worker: WorkerId },
    /// A silent worker was heard again.
    Found { worker: WorkerId },
    /// A worker is asked to claim an attempt.
    Offered { attempt: AttemptId, worker: WorkerId, generation: Generation },
    /// The offer is void; the attempt provably did not start and waits again.
    Withdrawn { attempt: AttemptId, why: Withdrawal },
    /// The claim was granted: from here on the attempt may have started.
    Claimed { attempt: AttemptId },
    /// The attempt's log is durable here up to `through`. `started` says that it shows the start.
    Reported { attempt: AttemptId, through: u64, started: bool },
    /// The answer's bytes are durable here.
    AnswerKept { attempt: AttemptId, digest: String, bytes: u64 },
    /// Its worker has been silent for too long, or came back without it.
    Interrupted { attempt: AttemptId },
    /// The worker of an interrupted attempt still has it.
    Resumed { attempt: AttemptId },
    /// A client asked for a cancel. `unstarted` is the receipt in case that the attempt provably never starts.
    CancelRequested {
        attempt: AttemptId,
        signal: CancelSignal,
        unstarted: Option<Box<Value>>,
        /// Name of who asked; absent in journals from before it was kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The terminal event is durable here.
    Ended { attempt: AttemptId, status: String },
    /// A client told what it gave to its caller: the status of that receipt.
    Delivered { attempt: AttemptId, status: Status },
    /// The worker has forgotten an ended attempt (`false`: it still has it after all).
    Released { attempt: AttemptId, done: bool },
    /// Retention takes the ended attempt away: from here on it was never known.
    Forgotten { attempt: AttemptId },
}

impl Event {
    /// The attempt that it is about.
    #[must_use]
    pub const fn attempt(&self) -> Option<AttemptId> {
        match self {
            Self::Joined { .. }
            | Self::Steered { .. }
            | Self::Removed { .. }
            | Self::Lost { .. }
            | Self::Found { .. } => None,
            Self::Submitted { attempt, .. }
            | Self::Brought { attempt, .. }
            | Self::Offered { attempt, .. }
            | Self::Withdrawn { attempt, .. }
            | Self::Claimed { attempt }
            | Self::Reported { attempt, .. }
            | Self::AnswerKept { attempt, .. }
            | Self::Interrupted { attempt }
            | Self::Resumed { attempt }
            | Self::CancelRequested { attempt, .. }
            | Self::Ended { attempt, .. }
            | Self::Delivered { attempt, .. }
            | Self::Released { attempt, .. }
            | Self::Forgotten { attempt } => Some(*attempt),
        }
    }

    /// Its name at fault points.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Submitted { .. } => "submitted",
            Self::Brought { .. } => "brought",
            Self::Joined { .. } => "joined",
            Self::Steered { .. } => "steered",
            Self::Removed { .. } => "removed",
            Self::Lost { .. } => "lost",
            Self::Found { .. } => "found",
            Self::Offered { .. } => "offered",
            Self::Withdrawn { .. } => "withdrawn",
            Self::Claimed { .. } => "claimed",
            Self::Reported { .. } => "reported",
            Self::AnswerKept { .. } => "answer-kept",
            Self::Interrupted { .. } => "interrupted",
            Self::Resumed { .. } => "resumed",
            Self::CancelRequested { .. } => "cancel-requested",
            Self::Ended { .. } => "ended",
            Self::Delivered { .. } => "delivered",
            Self::Released { .. } => "released",
            Self::Forgotten { .. } => "forgotten",
        }
    }

    /// The worker that it is about, if it is about no attempt.
    #[must_use]
    pub const fn worker(&self) -> Option<&WorkerId> {
        match self {
            Self::Joined { worker, .. }
            | Self::Steered { worker, .. }
            | Self::Removed { worker }
            | Self::Lost { worker }
            | Self::Found { worker } => Some(worker),
            _ => None,
        }
    }
}

/// Why an offer is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Withdrawal {
    /// The worker fell silent before it claimed.
    WorkerLost,
    /// The worker refused.
    Refused,
    /// The worker came back and never took it.
    NotHeld,
    /// The attempt is cancelled.
    Cancelled,
}

/// What the controller must know of an attempt to place it; the rest of the assignment stays in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// SHA-256 of the submission, to tell a repetition from another body.
    pub digest: String,
    pub submitter: String,
    pub provider: Provider,
    pub model: String,
    /// Absent in journals from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    pub mode: Mode,
    pub execution_id: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<PanelSeat>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    /// An attempt that still waits then ends as timed out.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<OffsetDateTime>,
}
