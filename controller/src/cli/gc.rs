//! `laneyard gc`: takes away what the retention rules do not keep, here and at the controller.

use std::process::ExitCode;
use std::time::SystemTime;

use agent::attempt::EngineSource;
use agent::attempt::directory::StateDir;
use agent::config::Config;
use agent::container::discover::Surroundings;
use agent::retention::{Item, attempts, images};
use bytesize::ByteSize;
use serde_json::json;

use super::table::columns;
use super::{FAILED, connect, output};

/// Remove what the retention rules do not keep: of this machine's attempts and images, and of the controller's attempts if
/// one is configured.
#[derive(Debug, clap::Args)]
pub struct Gc {
    /// Only say what would go.
    #[arg(long)]
    dry_run: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Gc {
    /// Removes, and nobody reads what it lists.
    #[must_use]
    pub const fn unasked() -> Self {
        Self { dry_run: false, json: true }
    }

    /// Removes and lists; what could not be removed is told on stderr and makes the command fail.
    ///
    /// # Errors
    /// The state directory cannot be listed, or the controller cannot be asked.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let (mut here, whole) = self.here(config)?;
        here.extend(self.images(config).await?);
        // What went is told, whatever the controller says then.
        self.show("here", &here)?;
        if config.controller.is_some() {
            let collected = connect::remote(config)?.collect(self.dry_run).await?;
            self.show("controller", &collected.items)?;
        }
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }

    fn here(&self, config: &Config) -> anyhow::Result<(Vec<Item>, bool)> {
        // Opening would create it: a machine without attempts stays untouched.
        if !config.state_dir.join("attempts").is_dir() {
            return Ok((Vec::new(), true));
        }
        let state = StateDir::open(&config.state_dir)?;
        let planned = attempts::plan(&state, &config.retention, SystemTime::now())?;
        if self.dry_run {
            return Ok((planned, true));
        }
        attempts::sweep(&state);
        let (mut gone, mut whole) = (Vec::new(), true);
        for item in planned {
            if item.kept {
                gone.push(item);
                continue;
            }
            match attempts::remove(&state, &item) {
                Ok(true) => gone.push(item),
                Ok(false) => {}
                Err(error) => {
                    output::failure(&error);
                    whole = false;
                }
            }
        }
        Ok((gone, whole))
    }

    /// Of the engine, if there is one.
    async fn images(&self, config: &Config) -> anyhow::Result<Vec<Item>> {
        let source = EngineSource::new(config.engine.clone(), Surroundings::from_env());
        let Some(engine) = source.found().await else { return Ok(Vec::new()) };
        let planned = images::plan(&engine, &config.retention, SystemTime::now()).await?;
        if self.dry_run {
            return Ok(planned);
        }
        let mut gone = Vec::new();
        for item in planned {
            if images::remove(&engine, &item).await? {
                gone.push(item);
            }
        }
        Ok(gone)
    }

    fn show(&self, place: &str, all: &[Item]) -> anyhow::Result<()> {
        if self.json {
            for item in all {
                let mut value = serde_json::to_value(item)?;
                value["place"] = json!(place);
                output::data(&value.to_string());
            }
        } else if !all.is_empty() {
            output::raw(&columns(&all.iter().map(|item| self.row(place, item)).collect::<Vec<_>>()));
        }
        Ok(())
    }

    fn row(&self, place: &str, item: &Item) -> Vec<String> {
        let word = match (item.kept, self.dry_run) {
            (true, _) => "kept",
            (false, true) => "would remove",
            (false, false) => "removed",
        };
        vec![
            word.to_owned(),
            item.kind.as_str().to_owned(),
            item.subject.clone(),
            ByteSize(item.bytes).to_string(),
            place.to_owned(),
            item.reason.clone(),
        ]
    }
}
