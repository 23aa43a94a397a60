//! Which image an attempt runs, and that it is here and fits this CPU, before anything is created.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::container::{Engine, EngineError, Image};
use crate::descriptor::Provider;

/// May an image be fetched?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PullPolicy {
    /// Only what is on the engine.
    #[default]
    Never,
    /// Fetch it when it is not there.
    IfMissing,
}

/// The whole pull.
const PULL_DEADLINE: Duration = Duration::from_secs(1800);

/// The image of a provider where nothing else is configured: `laneyard/<provider>:current`.
#[must_use]
pub fn default_reference(provider: Provider) -> String {
    format!("laneyard/{}:current", provider.as_str())
}

/// Finds the image and compares its platform with the engine's. Create the container from [`Image::id`].
///
/// # Errors
/// Not there (the message says how to get it), for another platform, or the engine could not be asked.
pub async fn resolve(engine: &Engine, reference: &str, policy: PullPolicy) -> Result<Image, EngineError> {
    let mut image = engine.image(reference).await?;
    if image.is_none() && policy == PullPolicy::IfMissing {
        engine.pull(reference, PULL_DEADLINE).await?;
        image = engine.image(reference).await?;
    }
    let info = engine.info();
    let Some(image) = image else {
        return Err(EngineError::NoImage {
            reference: reference.to_owned(),
            engine: info.kind.as_str(),
            address: info.address.clone(),
            remedy: remedy(reference),
        });
    };
    if image.arch != info.arch || (!image.os.is_empty() && image.os != info.os) {
        return Err(EngineError::WrongPlatform {
            reference: reference.to_owned(),
            image: format!("{}/{}", image.os, image.arch),
            engine: info.platform(),
        });
    }
    Ok(image)
}

fn remedy(reference: &str) -> String {
    match reference.strip_prefix("laneyard/").and_then(|rest| rest.split(':').next()) {
        Some(provider) => {
            format!("build it with `images/build --only {provider}` for this engine, or name another with --image")
        }
        None => "load or pull it on this engine, or name another with --image".to_owned(),
    }
}
