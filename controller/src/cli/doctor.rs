//! `laneyard doctor`: is this machine ready, and what to do if not.

use std::path::PathBuf;
use std::process::ExitCode;

use agent::config::Config;
use agent::container::discover::Surroundings;
use agent::container::image::{Reference, default_reference};
use agent::descriptor::Provider;
use agent::doctor::{Check, State};
use agent::driver;

use super::output;

/// Check this machine: engine, isolation, images, disk, working directory.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// A working directory to check as well; default: the current one.
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Prints the checks; ends with 1 if one failed.
    ///
    /// # Errors
    /// The checks cannot be printed.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let checks = agent::doctor::run(&agent::doctor::Config {
            engine: config.engine.clone(),
            around: Surroundings::from_env(),
            state_dir: config.state_dir.clone(),
            cwd: self.cwd.or_else(|| std::env::current_dir().ok()),
            images: images(config),
        })
        .await;
        for check in &checks {
            if self.json { output::data(&serde_json::to_string(check)?) } else { print(check) }
        }
        let failed = checks.iter().any(|check| check.state == State::Fail);
        Ok(ExitCode::from(u8::from(failed)))
    }
}

/// The image of every provider that this build runs, configured or by default.
fn images(config: &Config) -> Vec<(Provider, Reference)> {
    let runs = Provider::ALL.iter().filter(|provider| driver::of(**provider).is_some());
    let image = |provider| config.images.get(&provider).cloned().unwrap_or_else(|| default_reference(provider));
    runs.map(|provider| (*provider, image(*provider))).collect()
}

fn print(check: &Check) {
    let word = match check.state {
        State::Ok => "ok  ",
        State::Warn => "warn",
        State::Fail => "FAIL",
    };
    output::data(&format!("{word} {}: {}", check.name, check.saw));
    if !check.remedy.is_empty() {
        output::data(&format!("     do: {}", check.remedy.replace('\n', "\n         ")));
    }
}
