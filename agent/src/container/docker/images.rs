//! Images: one that is named, and those of ours that nothing names and no container uses.

use std::collections::HashSet;

use bollard::{Docker, query_parameters as query};
use serde_json::Value;

use super::{ASK, Engine, WORK, raw, read, within};
use crate::container::{EngineError, Image, Superseded};

/// Label of an image that holds a provider's CLI.
const CLI: &str = "laneyard.image.cli";

/// See [`Engine::image`].
pub(super) async fn look(address: &str, docker: &Docker, reference: &str) -> Result<Option<Image>, EngineError> {
    let operation = format!("look at image `{reference}`");
    match within(address, &operation, ASK, docker.inspect_image(reference)).await {
        Ok(found) => Ok(Some(read::image(reference, &found))),
        Err(EngineError::Refused { status: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Engine {
    /// Images of provider CLIs that carry no name any more, because a newer one took it, and that no container uses.
    ///
    /// # Errors
    /// The engine could not be asked.
    pub async fn superseded(&self) -> Result<Vec<Superseded>, EngineError> {
        let filters = format!("%7B%22label%22%3A%5B%22{CLI}%22%5D%2C%22dangling%22%3A%5B%22true%22%5D%7D");
        let path = format!("/v{}/images/json?filters={filters}", self.info().api);
        let images = raw::get(&self.info().address, "list images", &path, ASK).await?;
        let path = format!("/v{}/containers/json?all=true", self.info().api);
        let containers = raw::get(&self.info().address, "list containers", &path, ASK).await?;
        let text = |one: &Value, key: &str| one[key].as_str().map(str::to_owned);
        let used: HashSet<String> =
            containers.as_array().into_iter().flatten().filter_map(|one| text(one, "ImageID")).collect();
        // The filter is the engine's; the check is ours.
        let nameless = |one: &&Value| {
            let names = one["RepoTags"].as_array().into_iter().flatten().filter_map(Value::as_str);
            one["Labels"].get(CLI).is_some() && names.into_iter().all(|name| name == "<none>:<none>")
        };
        let superseded = images.as_array().into_iter().flatten().filter(nameless).filter_map(|one| {
            let created = u64::try_from(one["Created"].as_i64()?).ok()?;
            Some(Superseded { id: text(one, "Id")?, created, bytes: one["Size"].as_u64().unwrap_or(0) })
        });
        Ok(superseded.filter(|image| !used.contains(&image.id)).collect())
    }

    /// Removes an image that nothing names. False if it is gone, or used after all.
    ///
    /// # Errors
    /// The engine could not be asked.
    pub async fn remove_superseded(&self, id: &str) -> Result<bool, EngineError> {
        let options = query::RemoveImageOptionsBuilder::default().force(false).build();
        let removing = self.docker.remove_image(id, Some(options), None);
        match self.call(&format!("remove image `{id}`"), WORK, removing).await {
            Ok(_) => Ok(true),
            Err(EngineError::Refused { status: 404 | 409, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
