//! Growing pauses between tries, and the end of patience.

use std::time::Duration;

use tokio::time::Instant;

use super::{Shuttle, ShuttleError};
use crate::wire::error::code::STORAGE_FULL;

/// Waits between tries: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Tries of one transfer.
pub(super) struct Retry {
    patience: Duration,
    /// It outlasts being shut out for so long.
    exile: Duration,
    takes_full: bool,
    shut_out: Option<Instant>,
    pause: Duration,
    moved: Instant,
    furthest: u64,
}

impl Retry {
    pub(super) fn of(shuttle: &Shuttle) -> Self {
        let (patience, exile, takes_full) = (shuttle.patience, shuttle.route.exile, shuttle.route.takes_full);
        Self { patience, exile, takes_full, shut_out: None, pause: BACKOFF.0, moved: Instant::now(), furthest: 0 }
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
        // A worker that is let in no more is let in again by people, which takes its time, and nothing but this worker has
        // what it carries. Whoever waits for it is told `unreachable` meanwhile.
        if !self.exile.is_zero() && error.shuts_out() {
            let since = *self.shut_out.get_or_insert_with(|| {
                tracing::warn!(%error, "the transfer waits until the controller lets this worker in again");
                Instant::now()
            });
            self.moved = Instant::now(); // once it is over, ordinary patience begins anew
            if since.elapsed() >= self.exile {
                return Err(ShuttleError::Stalled { patience: self.exile, last: Box::new(error) });
            }
        } else if !error.is_passing() || (self.takes_full && error.code() == Some(STORAGE_FULL)) {
            return Err(error);
        } else {
            self.shut_out = None;
            if self.moved.elapsed() >= self.patience {
                return Err(ShuttleError::Stalled { patience: self.patience, last: Box::new(error) });
            }
        }
        tracing::debug!(%error, "the transfer is tried again");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(BACKOFF.1);
        Ok(())
    }
}
