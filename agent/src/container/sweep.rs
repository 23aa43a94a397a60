//! Leftovers of attempts that are over. Touches only what carries our owner label, by exact id.

use std::collections::BTreeSet;

use crate::container::{Engine, EngineError, Found};
use crate::ids::{AttemptId, OwnerId};

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    pub removed: Vec<Found>,
    /// Containers of attempts that are still open: the caller adopts them.
    pub kept: Vec<Found>,
    /// Removals that failed; the next sweep tries again.
    pub failed: Vec<(Found, EngineError)>,
}

/// Removes this owner's containers whose attempt is not in `open` (unknown or terminal). Call it with the attempts'
/// locks settled: an attempt that is about to create its container must be in `open`.
///
/// # Errors
/// The engine could not list containers.
pub async fn containers(engine: &Engine, owner: &OwnerId, open: &BTreeSet<AttemptId>) -> Result<Swept, EngineError> {
    let mut swept = Swept::default();
    for found in engine.list(owner).await? {
        if open.contains(&found.labels.attempt) {
            swept.kept.push(found);
            continue;
        }
        match engine.remove(&found.id).await {
            Ok(()) => swept.removed.push(found),
            Err(error) => swept.failed.push((found, error)),
        }
    }
    Ok(swept)
}
