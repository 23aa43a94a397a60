//! Packs that are being made, for those who wait for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::snapshot::transfer::Packing;
use agent::snapshot::{Oid, ProjectId};

use super::Goods;

/// What is packed: of which project, for attempts that start from which snapshot.
pub(super) type What = (ProjectId, Oid, Goods);

/// How far each of them is.
#[derive(Clone, Debug, Default)]
pub(super) struct Making(Arc<Mutex<BTreeMap<What, Packing>>>);

/// One of them. It is over when this goes.
pub(super) struct Made<'a> {
    making: &'a Making,
    what: What,
}

impl Making {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<What, Packing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one.
    pub(super) const fn begin(&self, what: What) -> Made<'_> {
        Made { making: self, what }
    }

    /// How far it is; `None` when it is not being made, or has told nothing yet.
    pub(super) fn look(&self, what: &What) -> Option<Packing> {
        self.lock().get(what).copied()
    }
}

impl Made<'_> {
    /// It has come so far.
    pub(super) fn tell(&self, far: Packing) {
        self.making.lock().insert(self.what.clone(), far);
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        self.making.lock().remove(&self.what);
    }
}
