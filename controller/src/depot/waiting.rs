//! What workers say of results that they could not bring. Only in memory: they say it again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::ids::{AttemptId, WorkerId};
use agent::wire::snapshot::Waiting;

/// The last word of every worker. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(Arc<Mutex<BTreeMap<AttemptId, (WorkerId, Waiting)>>>);

impl Told {
    /// All that `worker` has now.
    pub(super) fn hear(&self, worker: &WorkerId, waiting: Vec<Waiting>) {
        let mut told = self.lock();
        told.retain(|_, (by, _)| by != worker);
        told.extend(waiting.into_iter().map(|waiting| (waiting.attempt, (worker.clone(), waiting))));
    }

    pub(super) fn look(&self, attempt: AttemptId) -> Option<Waiting> {
        self.lock().get(&attempt).map(|(_, waiting)| waiting.clone())
    }

    /// The result is here.
    pub(super) fn came(&self, attempt: AttemptId) {
        self.lock().remove(&attempt);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptId, (WorkerId, Waiting)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
