//! Checks of this machine as data: what was looked at, what was seen, what to do. Printing is the command's.

mod engine; // the engine and what it can enforce
mod host; // disk, git, the working directory

use std::path::PathBuf;

use serde::Serialize;

use crate::container::discover::{self, EngineChoice, Surroundings};
use crate::descriptor::Provider;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    Warn,
    Fail,
}

/// One line of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable kebab-case name.
    pub name: &'static str,
    pub state: State,
    /// What was seen, with numbers and paths.
    pub saw: String,
    /// What to do; empty when all is well.
    pub remedy: String,
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, saw: impl Into<String>) -> Self {
        Self { name, state: State::Ok, saw: saw.into(), remedy: String::new() }
    }

    /// It works, and something should be seen to.
    pub fn warn(name: &'static str, saw: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Warn, saw: saw.into(), remedy: remedy.into() }
    }

    /// It does not work.
    pub fn fail(name: &'static str, saw: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Fail, saw: saw.into(), remedy: remedy.into() }
    }
}

/// What to look at.
#[derive(Clone, Debug)]
pub struct Config {
    /// `--engine` as given.
    pub engine: Option<EngineChoice>,
    pub around: Surroundings,
    /// Where attempts are kept; it need not exist yet.
    pub state_dir: PathBuf,
    /// A working directory to check.
    pub cwd: Option<PathBuf>,
    /// Images by provider, as configured.
    pub images: Vec<(Provider, crate::container::image::Reference)>,
}

/// Runs all checks; never fails, each trouble is a check of its own.
pub async fn run(config: &Config) -> Vec<Check> {
    let mut checks = lanes(config).await;
    checks.extend(client(config).await);
    checks
}

/// Can lanes run here?
async fn lanes(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    match discover::connect(config.engine.as_ref(), &config.around).await {
        Ok(found) => {
            checks.extend(engine::checks(&found, &config.state_dir));
            checks.extend(engine::images(&found, &config.images).await);
        }
        Err(error) => {
            let text = error.to_string();
            let (saw, remedy) = text.rsplit_once('\n').unwrap_or((&text, ""));
            checks.push(Check::fail("engine", saw, remedy));
        }
    }
    checks
}

/// Can lanes be sent from here? No engine is needed for it.
pub async fn client(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.push(host::git().await);
    checks.push(host::disk("disk-state", &config.state_dir));
    if let Some(cwd) = &config.cwd {
        checks.extend(host::worktree(cwd, &config.state_dir).await);
    }
    checks
}
