//! Carries objects between a cache of this machine and the controller's, through lost connections and restarts of either
//! side: what has arrived is never sent again, and nothing is used before its digest was checked.
//!
//! Knows nothing of what is carried: [`crate::snapshot::transfer`] says what is offered, lacking and packed.

mod bring; // down
mod retry; // pauses, and when to give up
mod send; // up

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{AttemptId, Generation, WorkerId};
use crate::snapshot::SnapshotError;
use crate::snapshot::transfer::Packing;
use crate::transport::{CallError, Transport};
use crate::wire::paths;

/// A pack of many gigabytes over a slow line, and its check on the other side.
const BYTES_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// A connection that brings not one byte for so long is dead.
pub const SILENCE: Duration = Duration::from_secs(60);
/// Steps that end before a request is answered: a pack of a large history is prepared.
const PREPARE_LIMIT: Duration = Duration::from_secs(1800);
/// A pack that arrived damaged is sent again so often.
const DAMAGED_TRIES: u32 = 3;

/// A worker that is let in no more waits for people for so long. What it could not bring then stays on it, and the receipt says
/// so.
const EXILE: Duration = Duration::from_secs(7 * 86_400);

/// The side that waits for a pack to be made asks this often how far it is.
const LOOK: Duration = Duration::from_secs(1);

/// How far a transfer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// The sending side makes the pack.
    Packing(Packing),
    /// So many of so many bytes have travelled.
    Bytes { done: u64, total: u64 },
}

impl std::fmt::Display for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Packing(packing) => write!(f, "its pack is made: {packing}"),
            Self::Bytes { done, total } => {
                write!(f, "{} of {}", bytesize::ByteSize(*done), bytesize::ByteSize(*total))
            }
        }
    }
}

/// Is told how far a transfer has come.
pub type Tell = Arc<dyn Fn(Far) + Send + Sync>;

/// Where objects go or come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    prefix: String,
    query: String,
    /// How long it is waited for while the controller lets this side in no more; zero: not at all.
    exile: Duration,
    /// A full controller is an answer: nothing depends on what is carried yet.
    takes_full: bool,
}

impl Route {
    /// A client's snapshots.
    #[must_use]
    pub fn snapshots() -> Self {
        Self { prefix: paths::SNAPSHOTS.to_owned(), query: String::new(), exile: Duration::ZERO, takes_full: true }
    }

    /// The result of an attempt, for its client.
    #[must_use]
    pub fn result(attempt: AttemptId) -> Self {
        let prefix = paths::attempt_part(attempt, "result");
        Self { prefix, query: String::new(), exile: Duration::ZERO, takes_full: false }
    }

    /// An attempt's `snapshot` or `result`, for the worker that holds it: nobody else can bring it.
    #[must_use]
    pub fn of_worker(worker: &WorkerId, part: &str, attempt: AttemptId, generation: Generation) -> Self {
        let query = format!("attempt={attempt}&generation={}", generation.0);
        Self { prefix: paths::worker_part(worker, part), query, exile: EXILE, takes_full: false }
    }

    /// The same route, for a side that waits so long for being let in again.
    #[must_use]
    pub const fn with_exile(mut self, exile: Duration) -> Self {
        self.exile = exile;
        self
    }

    /// One step on this route.
    #[must_use]
    pub fn at(&self, part: &str, more: &str) -> String {
        let joint = if self.query.is_empty() || more.is_empty() { "" } else { "&" };
        let mark = if self.query.is_empty() && more.is_empty() { "" } else { "?" };
        format!("{}/{part}{mark}{}{joint}{more}", self.prefix, self.query)
    }
}

/// A way for objects.
#[derive(Clone, Debug)]
pub struct Shuttle {
    pub transport: Transport,
    pub route: Route,
    /// It is given up after so long without any progress. A worker's waits longer, and not without end, while the controller
    /// lets it in no more.
    pub patience: Duration,
}

/// Objects did not travel.
#[derive(Debug, thiserror::Error)]
pub enum ShuttleError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("no progress for {} s: {last}", patience.as_secs())]
    Stalled { patience: Duration, last: Box<Self> },
}

impl ShuttleError {
    /// The stable code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Call(error) => error.code(),
            Self::Stalled { last, .. } => last.code(),
            Self::Snapshot(_) => None,
        }
    }

    /// True if another credential could do what this one could not.
    #[must_use]
    pub fn is_of_credential(&self) -> bool {
        match self {
            Self::Call(error) => error.is_of_credential(),
            Self::Stalled { last, .. } => last.is_of_credential(),
            Self::Snapshot(_) => false,
        }
    }

    /// True when what we show counts no more, or the other side cannot be believed now: people cure that.
    fn shuts_out(&self) -> bool {
        match self {
            Self::Call(error) => error.shuts_out() || matches!(error, CallError::Insecure { .. }),
            Self::Snapshot(_) | Self::Stalled { .. } => false,
        }
    }

    /// True when another process of this machine writes the same pack.
    fn is_busy(&self) -> bool {
        matches!(self, Self::Snapshot(SnapshotError::Io { source, .. }) if source.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// True when a file of this machine is gone that another process was free to remove.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Snapshot(SnapshotError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound)
    }

    /// True when the same may succeed later.
    fn is_passing(&self) -> bool {
        match self {
            Self::Call(error) => error.is_passing(),
            Self::Snapshot(error) => matches!(error, SnapshotError::Incomplete { .. }) || self.is_busy(),
            Self::Stalled { .. } => false,
        }
    }
}
