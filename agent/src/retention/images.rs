//! Images of provider CLIs that a newer version has replaced.

use std::time::{Duration, SystemTime};

use super::{Candidate, Item, Kind, Rules, choose};
use crate::container::{Engine, EngineError};

/// What the rules take away from the engine now. Ages count from an image's making.
///
/// # Errors
/// The engine could not be asked.
pub async fn plan(engine: &Engine, rules: &Rules, now: SystemTime) -> Result<Vec<Item>, EngineError> {
    let superseded = engine.superseded().await?;
    let all = superseded.into_iter().map(|image| Candidate {
        subject: image.id,
        since: SystemTime::UNIX_EPOCH + Duration::from_secs(image.created),
        bytes: image.bytes,
    });
    Ok(choose(Kind::Images, rules.images, all.collect(), now).0)
}

/// Removes one item of [`plan`]. False if somebody uses it by now.
///
/// # Errors
/// The engine could not be asked.
pub async fn remove(engine: &Engine, item: &Item) -> Result<bool, EngineError> {
    engine.remove_superseded(&item.subject).await
}
