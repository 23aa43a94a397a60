//! What attempts left that nobody will come back for: containers by our label, proxies, mounts, socket directories.

use std::collections::BTreeSet;

use super::Deps;
use super::directory::DirectoryError;
use super::journal::Journal;
use crate::container::{Engine, EngineError, prepare, sweep as containers};
use crate::ids::AttemptId;

/// The sweep could not look everywhere.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Removes leftovers of attempts that are over or were never accepted. What carries no label of this state directory
/// is never touched; an attempt that is not over keeps everything, whoever drives it.
///
/// # Errors
/// The state directory cannot be listed, or the engine cannot be asked.
pub async fn sweep(deps: &Deps) -> Result<(), SweepError> {
    let mut open = BTreeSet::new();
    let mut named = Vec::new();
    for attempt in deps.state.attempts()? {
        let path = deps.state.attempt_path(attempt);
        // An unreadable journal proves nothing: its attempt counts as open.
        let standing = Journal::read(&path.join("journal.jsonl"));
        let over = standing.as_ref().is_ok_and(|standing| standing.removed);
        named.extend(standing.ok().and_then(|standing| standing.engine).filter(|engine| !named.contains(engine)));
        if over {
            prepare::sweep_mounts(&path);
        } else {
            open.insert(attempt);
        }
    }
    let mut swept = BTreeSet::new();
    for choice in std::iter::once(None).chain(named.iter().map(Some)) {
        // One that does not answer has its turn at a later sweep.
        if let Ok(engine) = deps.engine.of(choice).await
            && swept.insert(engine.info().address.clone())
        {
            sweep_engine(deps, &engine, &open).await?;
        }
    }
    Ok(())
}

async fn sweep_engine(deps: &Deps, engine: &Engine, open: &BTreeSet<AttemptId>) -> Result<(), SweepError> {
    let swept = containers::containers(engine, &deps.state.owner()?, open).await?;
    for found in &swept.removed {
        tracing::info!(container = %found.id, attempt = %found.labels.attempt, "removed a leftover container");
    }
    for (found, error) in &swept.failed {
        tracing::warn!(container = %found.id, %error, "a leftover container could not be removed");
    }
    Ok(())
}
