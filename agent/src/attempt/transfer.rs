//! What people are told while bytes travel: the first word soon, later ones further and further apart, so that the event log of
//! a transfer of hours has few of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::record::Record;
use crate::event::Phase;
use crate::shuttle::{Far, Tell};

/// Pauses between two words: doubled from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Runs a transfer, and tells how far it has come: `what`, then `what, N of M`, of the objects of its pack or of bytes.
pub(super) async fn told<T, F: Future<Output = T>>(
    record: &mut Record,
    phase: Phase,
    what: &str,
    transfer: impl FnOnce(Tell) -> F,
) -> T {
    let (far, mut seen) = watch::channel(None);
    let transfer = transfer(Arc::new(move |now| {
        far.send_replace(Some(now));
    }));
    tokio::pin!(transfer);
    let (mut pause, mut next) = (PAUSES.0, Instant::now() + PAUSES.0);
    seen.mark_changed(); // the first word comes also while the other side prepares
    loop {
        tokio::select! {
            biased;
            ended = &mut transfer => return ended,
            () = moved(&mut seen, next) => {
                let far = *seen.borrow_and_update();
                record.note(phase, far.map_or_else(|| what.to_owned(), |far| format!("{what}, {far}")));
                pause = (pause * 2).min(PAUSES.1);
                next = Instant::now() + pause;
            }
        }
    }
}

/// Resolves at `next`, or later when something moved again; never when nothing does.
async fn moved(seen: &mut watch::Receiver<Option<Far>>, next: Instant) {
    tokio::time::sleep_until(next).await;
    if seen.changed().await.is_err() {
        std::future::pending().await
    }
}
