//! What a client says and sees.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::assignment::Assignment;
use crate::descriptor::{Effort, Mode, Provider};
use crate::ids::{AttemptId, Generation, WorkerId};
use crate::receipt::Status;

/// `POST /v1/attempts`. The attempt's id, made by the client, is the idempotency key: the same body again is answered
/// like the first time, another body is refused with `id-reused`, and anything from another submitter with
/// `not-your-attempt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Submit {
    pub assignment: Assignment,
    /// Labels that the worker must carry, all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Lanes that start together or wait together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<PanelSeat>,
}

impl Submit {
    /// A lone lane without requirements.
    #[must_use]
    pub const fn new(assignment: Assignment) -> Self {
        Self { assignment, labels: BTreeMap::new(), panel: None }
    }
}

/// One lane's membership of a panel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PanelSeat {
    /// Name of the panel, unique for its submitter.
    pub id: String,
    /// Lanes of the panel; none starts before all are here.
    pub size: u32,
}

/// What is known about an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    pub attempt: AttemptId,
    pub submitter: String,
    /// `None` for an attempt that a worker brought along and nobody submitted here.
    pub provider: Option<Provider>,
    pub model: Option<String>,
    /// `None` also for attempts of before it was told.
    #[serde(default)]
    pub effort: Option<Effort>,
    pub mode: Option<Mode>,
    pub execution_id: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub submitted_at: OffsetDateTime,
    pub state: AttemptState,
    /// Newest event that is durable at the controller.
    pub last_seq: u64,
    /// A cancel that was asked for, whether or not it has arrived.
    pub cancel: Option<CancelSignal>,
    /// What the lane's caller was given, as its client reported it; `None` before that, and for clients that do not.
    #[serde(default)]
    pub delivered: Option<Delivered>,
}

/// `POST /v1/attempts/{id}/delivered`, when answer, changes and receipt are in their places or never will be. The newest
/// word counts; the same again changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deliver {
    /// Of the receipt that the caller got, which may be another than the worker's.
    pub status: Status,
}

/// What a client delivered, and when the controller heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    pub status: Status,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
}

/// Where an attempt is, as the controller knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum AttemptState {
    /// Waits for a worker. `position` counts from 1; `reason` says what it waits for.
    Queued { position: u32, reason: String },
    /// Offered to a worker that has not taken it: provably not started.
    Offered { worker: WorkerId, generation: Generation },
    /// Taken by a worker: from here on it may have started. `started` says that its start is proven.
    Running { worker: WorkerId, generation: Generation, started: bool },
    /// The worker has been silent for longer than its lease. The attempt may well go on there.
    Unreachable { worker: WorkerId, generation: Generation, started: bool },
    /// The worker has been silent for so long that nobody should wait; its late receipt still counts.
    Interrupted { worker: WorkerId, generation: Generation, started: bool },
    /// The receipt is here. `status` is the receipt's; `worker` is `None` if no worker ever took the attempt.
    Ended { status: String, worker: Option<WorkerId> },
}

impl AttemptState {
    /// True when nothing more will happen.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

/// `POST /v1/attempts/{id}/cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub signal: CancelSignal,
}

/// The signal that the caller received (runner section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelSignal {
    #[serde(rename = "SIGINT")]
    Interrupt,
    #[serde(rename = "SIGTERM")]
    Terminate,
}

impl CancelSignal {
    /// The spelling of receipts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// Its number on every system that we know.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }
}

/// One page of a list. `next`, when there is more, goes into the query as `after`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One waiting attempt, `GET /v1/queue`, in the order in which they will be offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueEntry {
    pub position: u32,
    pub attempt: AttemptId,
    pub submitter: String,
    #[serde(with = "time::serde::rfc3339")]
    pub submitted_at: OffsetDateTime,
    /// What it waits for.
    pub reason: String,
    pub panel: Option<PanelSeat>,
}

/// `GET /healthz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub status: String,
    pub version: String,
}

/// Names of the records on `GET /v1/attempts/{id}/events`.
pub mod stream {
    /// A kept [`crate::event::Event`]; the record's id is its sequence number.
    pub const EVENT: &str = "event";
    /// A live [`crate::event::EventBody`], without id.
    pub const LIVE: &str = "live";
    /// The attempt's [`super::AttemptView`] changed, without id.
    pub const STATE: &str = "state";
    /// Nothing follows: the terminal event was sent.
    pub const END: &str = "end";
}
