//! What the controller keeps of ended attempts, and for how long: plans from its state, and carries out what it planned.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use agent::ids::AttemptId;
use agent::retention::{Candidate, Item, Kind, Rules, choose};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::depot::{Depot, DepotError, Left};
use crate::reactor::retain::on_forget;
use crate::store::{Store, StoreError};
use crate::supervisor::{AskError, Supervisor};

/// Attempts that are forgotten in one commit.
const BATCH: usize = 50;
/// How often it is looked whether the reserve can be filled again after a full disk.
const FILL_EVERY: Duration = Duration::from_secs(2);

/// Retention could not be applied, or not to the end.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Depot(#[from] DepotError),
}

/// Retention of one controller.
#[derive(Debug)]
pub struct Retention {
    rules: Rules,
    /// Bytes of the logs of ended attempts: they do not change any more.
    sizes: Mutex<HashMap<AttemptId, u64>>,
    /// One at a time applies the rules.
    applying: tokio::sync::Mutex<()>,
    /// Results of writers, where they are kept.
    depot: Option<Depot>,
}

/// An ended attempt.
struct Ended {
    id: AttemptId,
    at: SystemTime,
    last_seq: u64,
    answer_bytes: u64,
}

impl Retention {
    /// By these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, sizes: Mutex::default(), applying: tokio::sync::Mutex::default(), depot: None }
    }

    /// Spares attempts whose results nobody has looked at, and takes away results that are reviewed and old.
    #[must_use]
    pub fn with_results(self, depot: Depot) -> Self {
        Self { depot: Some(depot), ..self }
    }

    /// Applies the rules from time to time until `shutdown`, and keeps the reserve whole.
    pub async fn run(&self, supervisor: &Supervisor, store: &Store, shutdown: CancellationToken) {
        let mut due = tokio::time::interval(self.rules.every);
        let mut fill = tokio::time::interval(FILL_EVERY);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        fill.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = fill.tick() => store.fill_reserve(),
                _ = due.tick() => match self.apply(supervisor, store, false).await {
                    Ok(items) if items.iter().all(|item| item.kept) => {}
                    Ok(items) => info!(items = items.len(), "retention took away what is over"),
                    Err(failure) => warn!(%failure, "retention was not applied"),
                },
            }
        }
    }

    /// Applies the rules now and tells what went; with `dry_run` only what would go.
    ///
    /// # Errors
    /// The store fails. What was removed until then stays removed.
    pub async fn apply(
        &self,
        supervisor: &Supervisor,
        store: &Store,
        dry_run: bool,
    ) -> Result<Vec<Item>, RetentionError> {
        let _one = self.applying.lock().await;
        let mut ended = ended(supervisor).await?;
        if let Some(depot) = &self.depot {
            ended.retain(|attempt| !depot.waits(attempt.id));
        }
        let items = self.plan(&ended, store).await?;
        if dry_run {
            return Ok(items);
        }
        let (kept, items): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| item.kept);
        let (results, items): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| item.kind == Kind::Results);
        let (whole, logs): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| item.kind == Kind::Receipts);
        let mut gone = Vec::new();
        for some in whole.chunks(BATCH) {
            gone.extend(self.forget(some, supervisor).await?);
        }
        // A forgotten attempt leaves no result either.
        let forgotten = gone.clone();
        for item in results.into_iter().chain(forgotten) {
            if let (Some(depot), Ok(id)) = (&self.depot, item.subject.parse()) {
                depot.remove(id)?;
                gone.extend(Some(item).filter(|item| item.kind == Kind::Results));
            }
        }
        for item in logs {
            if let Some(attempt) = ended.iter().find(|ended| ended.id.to_string() == item.subject) {
                store.trim_events(attempt.id, attempt.last_seq).await?;
                self.sizes().insert(attempt.id, 0);
                gone.push(item);
            }
        }
        store.compact(&answers(supervisor).await?).await?;
        gone.extend(kept);
        gone.sort_by_key(|item| (item.kept, item.kind));
        Ok(gone)
    }

    async fn plan(&self, ended: &[Ended], store: &Store) -> Result<Vec<Item>, RetentionError> {
        let now = SystemTime::now();
        let mut logs = HashMap::new();
        for attempt in ended {
            let known = self.sizes().get(&attempt.id).copied();
            let bytes = match known {
                Some(bytes) => bytes,
                None => store.event_bytes(attempt.id, attempt.last_seq).await?,
            };
            self.sizes().insert(attempt.id, bytes);
            logs.insert(attempt.id.to_string(), bytes);
        }
        let whole = ended.iter().map(|attempt| {
            let subject = attempt.id.to_string();
            let bytes = attempt.answer_bytes + logs.get(&subject).copied().unwrap_or(0);
            Candidate { subject, since: attempt.at, bytes }
        });
        let (mut items, stays) = choose(Kind::Receipts, self.rules.receipts, whole.collect(), now);
        let with_logs = stays.into_iter().filter_map(|candidate| {
            let bytes = logs.get(&candidate.subject).copied().filter(|bytes| *bytes > 0)?;
            Some(Candidate { bytes, ..candidate })
        });
        items.extend(choose(Kind::Logs, self.rules.logs, with_logs.collect(), now).0);
        if let Some(depot) = &self.depot {
            let (reviewed, waiting): (Vec<_>, Vec<_>) = depot.all_left()?.into_iter().partition(|left| left.reviewed);
            // Its objects belong to its project and are counted there.
            let candidate =
                |left: Left| Candidate { subject: left.attempt.to_string(), since: left.kept_at.into(), bytes: 0 };
            let old = |some: Vec<Left>| {
                choose(Kind::Results, self.rules.results, some.into_iter().map(candidate).collect(), now).0
            };
            items.extend(old(reviewed));
            items.extend(old(waiting).into_iter().map(Item::waits_for_review));
        }
        items.sort_by_key(|item| (item.kept, item.kind));
        Ok(items)
    }

    async fn forget(&self, items: &[Item], supervisor: &Supervisor) -> Result<Vec<Item>, RetentionError> {
        let wanted: Vec<(AttemptId, Item)> =
            items.iter().filter_map(|item| Some((item.subject.parse().ok()?, item.clone()))).collect();
        let gone = supervisor.ask(move |world, effects, now| {
            let forgotten = wanted.into_iter().filter(|(id, _)| on_forget(world, effects, now, *id));
            forgotten.collect::<Vec<_>>()
        });
        let gone = gone.await?;
        let mut sizes = self.sizes();
        for (id, _) in &gone {
            sizes.remove(id);
        }
        drop(sizes);
        Ok(gone.into_iter().map(|(_, item)| item).collect())
    }

    fn sizes(&self) -> MutexGuard<'_, HashMap<AttemptId, u64>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attempts that may be forgotten, as far as the state knows.
async fn ended(supervisor: &Supervisor) -> Result<Vec<Ended>, AskError> {
    let ended = supervisor.ask(|world, _, _| {
        let attempts = world.core.attempts().iter().filter(|(id, _)| world.core.may_forget(**id));
        let ended = attempts.filter_map(|(id, attempt)| {
            Some(Ended {
                id: *id,
                at: attempt.ended_at?.into(),
                last_seq: attempt.last_seq,
                answer_bytes: attempt.answer.as_ref().map_or(0, |(_, bytes)| *bytes),
            })
        });
        ended.collect()
    });
    ended.await
}

/// Digests of all answers that are still named.
async fn answers(supervisor: &Supervisor) -> Result<BTreeSet<String>, AskError> {
    let digests = supervisor.ask(|world, _, _| {
        let attempts = world.core.attempts().values();
        attempts.filter_map(|attempt| Some(attempt.answer.as_ref()?.0.clone())).collect()
    });
    digests.await
}
