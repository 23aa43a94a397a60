//! Growing pauses between tries, and the end of patience.

use std::time::Duration;

use tokio::time::Instant;

use super::{Shuttle, ShuttleError};

/// Waits between tries: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Tries of one transfer.
pub(super) struct Retry {
    patience: Duration,
    /// It outlasts being shut out.
    of_worker: bool,
    shut_out: bool,
    pause: Duration,
    moved: Instant,
    furthest: u64,
}

impl Retry {
    pub(super) fn of(shuttle: &Shuttle) -> Self {
        let (patience, of_worker) = (shuttle.patience, shuttle.route.is_of_worker());
        Self { patience, of_worker, shut_out: false, pause: BACKOFF.0, moved: Instant::now(), furthest: 0 }
    }

    /// Something went on, up to this byte.
    pub(super) fn reached(&mut self, bytes: u64) {
        if bytes > self.furthest {
            self.furthest = bytes;
            (self.pause, self.moved) = (BACKOFF.0, Instant::now());
        }
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// Waiting does not cure `error`, or it has lasted too long.
    pub(super) async fn after(&mut self, error: ShuttleError) -> Result<(), ShuttleError> {
        // A worker that is let in no more is let in again by people: no patience is long enough, and nothing but this worker
        // has what it carries. Whoever waits for it is told `unreachable` meanwhile. Its driver's end is the end of this wait.
        let shut_out = self.of_worker && error.shuts_out();
        if shut_out {
            if !self.shut_out {
                tracing::warn!(%error, "the transfer waits until the controller lets this worker in again");
            }
            self.moved = Instant::now();
        } else if !error.is_passing() {
            return Err(error);
        }
        self.shut_out = shut_out;
        if self.moved.elapsed() >= self.patience {
            return Err(ShuttleError::Stalled { patience: self.patience, last: Box::new(error) });
        }
        tracing::debug!(%error, "the transfer is tried again");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(BACKOFF.1);
        Ok(())
    }
}
