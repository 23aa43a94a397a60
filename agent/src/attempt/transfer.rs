//! What people are told while bytes travel: the first word soon, later ones further and further apart, so that the event log of
//! a transfer of hours has few of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::record::Record;
use crate::event::Phase;
use crate::shuttle::Tell;

/// Pauses between two words: doubled from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Runs a transfer, and tells how far it has come: `what`, then `what, N of M`.
pub(super) async fn told<T, F: Future<Output = T>>(
    record: &mut Record,
    phase: Phase,
    what: &str,
    transfer: impl FnOnce(Tell) -> F,
) -> T {
    let (far, mut seen) = watch::channel((0, 0));
    let transfer = transfer(Arc::new(move |done, total| {
        far.send_replace((done, total));
    }));
    tokio::pin!(transfer);
    let (mut pause, mut next) = (PAUSES.0, Instant::now() + PAUSES.0);
    seen.mark_changed(); // the first word comes also while the other side prepares
    loop {
        tokio::select! {
            biased;
            ended = &mut transfer => return ended,
            () = moved(&mut seen, next) => {
                let (done, total) = *seen.borrow_and_update();
                let far = format!(", {} of {}", bytesize::ByteSize(done), bytesize::ByteSize(total));
                record.note(phase, if total == 0 { what.to_owned() } else { format!("{what}{far}") });
                pause = (pause * 2).min(PAUSES.1);
                next = Instant::now() + pause;
            }
        }
    }
}

/// Resolves at `next`, or later when something moved again; never when nothing does.
async fn moved(seen: &mut watch::Receiver<(u64, u64)>, next: Instant) {
    tokio::time::sleep_until(next).await;
    if seen.changed().await.is_err() {
        std::future::pending().await
    }
}
