//! What ends an attempt early: a cancel, the explicit deadline, or nothing.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use super::journal::Ending;
use crate::assignment::Assignment;
use crate::wire::attempt::CancelSignal;

/// Longest single wait of a timer; longer ones are armed in pieces (runner section 9).
const LONGEST_WAIT: Duration = Duration::from_millis(2_147_483_647);

/// Watches for the first reason to end. Cancellation wins over the deadline.
#[derive(Clone, Debug)]
pub(super) struct Endings {
    /// `None` once nobody can cancel any more.
    cancel: Option<watch::Receiver<Option<CancelSignal>>>,
    deadline: Option<Instant>,
}

impl Endings {
    /// The deadline is one of this machine's wall clock; from here on the monotonic clock is used.
    #[must_use]
    pub(super) fn new(assignment: &Assignment, cancel: watch::Receiver<Option<CancelSignal>>) -> Self {
        let deadline = assignment.timeout().map(|timeout| {
            let (wall, now) = (OffsetDateTime::now_utc(), Instant::now());
            let left = match assignment.deadline {
                Some(deadline) => Duration::try_from(deadline - wall).unwrap_or_default().min(timeout),
                None => timeout.saturating_sub(Duration::try_from(wall - assignment.started_at).unwrap_or_default()),
            };
            now.checked_add(left).unwrap_or_else(|| now + Duration::from_secs(86_400 * 3650))
        });
        Self { cancel: Some(cancel), deadline }
    }

    /// The reason that holds now, if any.
    #[must_use]
    pub(super) fn now(&self) -> Option<Ending> {
        if let Some(signal) = self.cancel.as_ref().and_then(|cancel| *cancel.borrow()) {
            return Some(Ending::Cancel { signal });
        }
        self.deadline.is_some_and(|at| at <= Instant::now()).then_some(Ending::Deadline)
    }

    /// Time left until the deadline.
    #[must_use]
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Waits until there is a reason. Cancel-safe; never resolves if none comes.
    pub(super) async fn wait(&mut self) -> Ending {
        loop {
            if let Some(ending) = self.now() {
                return ending;
            }
            let left = self.remaining();
            let timer = async {
                match left {
                    Some(left) => tokio::time::sleep(left.min(LONGEST_WAIT)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                gone = closed(&mut self.cancel) => {
                    if gone {
                        self.cancel = None;
                    }
                }
                () = timer => {}
            }
        }
    }
}

/// Waits for a change of the request to cancel; true when no request can come any more.
async fn closed(cancel: &mut Option<watch::Receiver<Option<CancelSignal>>>) -> bool {
    match cancel {
        Some(cancel) => cancel.changed().await.is_err(),
        None => std::future::pending().await,
    }
}
