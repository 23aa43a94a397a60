//! `laneyard doctor`: is this machine ready, and what to do if not.

use std::path::PathBuf;
use std::process::ExitCode;

use agent::config::Config;
use agent::container::discover::Surroundings;
use agent::container::image::{Reference, default_reference};
use agent::descriptor::Provider;
use agent::doctor::{Check, State};
use agent::driver;
use time::OffsetDateTime;

use super::record::Records;
use super::{connect, later, output};

/// Check this machine: engine, isolation, images, disk, working directory; with a controller that one instead of an engine.
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
        let here = agent::doctor::Config {
            engine: config.engine.clone(),
            around: Surroundings::from_env(),
            state_dir: config.state_dir.clone(),
            cwd: self.cwd.or_else(|| std::env::current_dir().ok()),
            images: images(config),
        };
        let mut checks = match &config.controller {
            None => agent::doctor::run(&here).await,
            // The workers have the engines.
            Some(address) => {
                let mut checks = vec![controller(config, &address.url).await];
                checks.extend(agent::doctor::client(&here).await);
                checks
            }
        };
        checks.extend(waiting(config));
        for check in &checks {
            if self.json { output::data(&serde_json::to_string(check)?) } else { print(check) }
        }
        let failed = checks.iter().any(|check| check.state == State::Fail);
        Ok(ExitCode::from(u8::from(failed)))
    }
}

/// Lanes of killed clients that the background could not finish.
fn waiting(config: &Config) -> Option<Check> {
    let now = OffsetDateTime::now_utc();
    let lanes = later::waiting(&Records::of(&config.state_dir));
    let saw = lanes.iter().map(|lane| format!("attempt {}: {}", lane.attempt, lane.sentence(now)));
    let remedy = lanes.iter().map(|lane| format!("laneyard attach {}", lane.attempt));
    let (saw, remedy) = (saw.collect::<Vec<_>>().join("; "), remedy.collect::<Vec<_>>().join("\n"));
    (!lanes.is_empty()).then(|| Check::warn("unfinished-lanes", saw, remedy))
}

/// Does the controller answer, and does it know us?
async fn controller(config: &Config, url: &str) -> Check {
    let asked = async {
        let client = connect::remote(config)?;
        let health = client.health().await?;
        client.attempts(None, 1).await?;
        Ok::<_, anyhow::Error>(health.version)
    };
    match asked.await {
        Ok(api) => Check::ok("controller", format!("{url} speaks API {api} and takes our credential")),
        Err(error) => Check::fail(
            "controller",
            format!("{url}: {}", output::chain(error.as_ref())),
            "see that `laneyard serve` runs there, and that --ca and --token-file are of this controller",
        ),
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
