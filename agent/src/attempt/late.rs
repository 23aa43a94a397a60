//! Results that stayed on this worker although nothing is wrong with them: offered to the controller again and again, ever
//! more rarely, until it has them or somebody lets them go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Deps;
use super::bring_home::carry;
use super::directory::{DirectoryError, RELEASED};
use super::journal::Journal;
use super::kept::{self, KeptWorktree};
use super::snapshot::{open, worktree_of};
use super::stop::describe;
use crate::ids::AttemptId;
use crate::shuttle::ShuttleError;
use crate::snapshot::SnapshotError;
use crate::snapshot::result::{ResultTree, collect};
use crate::wire::snapshot::Waiting;

/// Without any progress for so long a try has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pauses between two tries: doubled from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(1800));
/// The pause after a refusal that is not cured by waiting: somebody may have given the controller more room.
const REFUSED: Duration = Duration::from_secs(3600);

/// A result could not be delivered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LateError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("its records cannot be read: {0}")]
    Records(#[from] std::io::Error),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Send(#[from] ShuttleError),
    #[error("what it started from is not in this worker's cache")]
    NoSnapshot,
}

impl LateError {
    /// The controller's own word, not a lost connection.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Send(error) if error.code().is_some())
    }

    /// The same will be refused again, until people change something.
    fn is_lasting(&self) -> bool {
        matches!(self, Self::Send(error @ ShuttleError::Call(_)) if error.code().is_some())
    }

    fn is_busy(&self) -> bool {
        matches!(self, Self::Directory(DirectoryError::Busy { .. }))
    }
}

#[derive(Debug)]
struct Try {
    next: Instant,
    pause: Duration,
    reason: String,
    refused: bool,
}

/// What is known of the tries of one worker.
#[derive(Debug, Default)]
pub(crate) struct Late {
    tries: Mutex<BTreeMap<AttemptId, Try>>,
    news: Notify,
}

impl Late {
    /// Offers every result whose turn it is, one after the other. The controller's word for the terminal event comes first: until
    /// then the attempt's driver, or its successor, has this to do.
    pub(crate) async fn deliver(&self, deps: &Deps) {
        let kept = match kept::list(&deps.state) {
            Ok(kept) => kept,
            Err(error) => return tracing::warn!(%error, "kept worktrees could not be listed"),
        };
        let waiting: Vec<AttemptId> = kept.iter().filter(|kept| !kept.result_kept).map(|kept| kept.attempt).collect();
        self.lock().retain(|attempt, _| waiting.contains(attempt));
        for attempt in waiting {
            let due = self.lock().get(&attempt).is_none_or(|tried| tried.next <= Instant::now());
            if !due || !deps.state.attempt_path(attempt).join(RELEASED).exists() {
                continue;
            }
            match deliver(deps, attempt).await {
                Ok(()) => {
                    tracing::info!(%attempt, "the result that had stayed here is at the controller");
                    self.lock().remove(&attempt);
                }
                Err(error) if error.is_busy() => {}
                Err(error) => self.failed(attempt, &error),
            }
        }
    }

    fn failed(&self, attempt: AttemptId, error: &LateError) {
        let (reason, refused) = (describe(error), error.is_refusal());
        let mut tries = self.lock();
        let before = tries.get(&attempt);
        if before.is_none_or(|before| before.reason != reason) {
            tracing::warn!(%attempt, reason, "the result stays on this worker, and is offered again");
            self.news.notify_one();
        }
        let pause = match before {
            _ if error.is_lasting() => REFUSED,
            Some(before) => (before.pause * 2).min(PAUSES.1),
            None => PAUSES.0,
        };
        tries.insert(attempt, Try { next: Instant::now() + pause, pause, reason, refused });
    }

    /// There is something new to tell the controller.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// The controller answers again: what only did not get through is tried at once.
    pub(crate) fn reconnected(&self) {
        for tried in self.lock().values_mut().filter(|tried| !tried.refused) {
            (tried.next, tried.pause) = (Instant::now(), PAUSES.0);
        }
    }

    /// What the controller is told of the results that it does not have.
    pub(crate) fn waiting(&self, kept: &[KeptWorktree]) -> Vec<Waiting> {
        let tries = self.lock();
        let waiting = kept.iter().filter(|kept| !kept.result_kept);
        waiting
            .filter_map(|kept| {
                let tried = tries.get(&kept.attempt)?;
                let since = OffsetDateTime::now_utc() - kept.age;
                let path = kept.path.display().to_string();
                let (reason, refused) = (tried.reason.clone(), tried.refused);
                Some(Waiting { attempt: kept.attempt, path, since, reason, refused })
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptId, Try>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends one result; the attempt's lock keeps its worktree from being removed meanwhile.
async fn deliver(deps: &Deps, attempt: AttemptId) -> Result<(), LateError> {
    let Some(supply) = &deps.supply else { return Err(LateError::NoSnapshot) };
    let (dir, accepted) = deps.state.adopt(attempt)?;
    let wanted = accepted.assignment.snapshot.as_ref().ok_or(LateError::NoSnapshot)?;
    let (lease, snapshot) = open(deps, &dir, wanted).await?.ok_or(LateError::NoSnapshot)?;
    let result = match Journal::read(&dir.file("journal.jsonl"))?.collected {
        Some(collected) => ResultTree::load(&lease, &snapshot, &collected.tree).await?,
        // It could not be read then.
        None => collect(&lease, &worktree_of(&dir), &snapshot).await?,
    };
    let under = (attempt, accepted.generation);
    carry(supply, &deps.worker, under, (&lease, &snapshot, &result), PATIENCE, Arc::new(|_| {})).await?;
    Ok(kept::brought(dir.path())?)
}
