//! Growing pauses between tries, and the end of patience.

use std::time::Duration;

use tokio::time::Instant;

use super::ShuttleError;

/// Waits between tries: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Tries of one transfer.
pub(super) struct Retry {
    patience: Duration,
    pause: Duration,
    moved: Instant,
    furthest: u64,
}

impl Retry {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, pause: BACKOFF.0, moved: Instant::now(), furthest: 0 }
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
        if !error.is_passing() {
            return Err(error);
        }
        if self.moved.elapsed() >= self.patience {
            return Err(ShuttleError::Stalled { patience: self.patience, last: Box::new(error) });
        }
        tracing::debug!(%error, "the transfer is tried again");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(BACKOFF.1);
        Ok(())
    }
}
