//! `laneyard queue`: what waits at a controller, and for what.

use std::process::ExitCode;

use agent::config::Config;
use agent::wire::attempt::QueueEntry;
use serde_json::json;
use time::OffsetDateTime;

use super::connect::{self, every_page};
use super::output;
use super::table::columns;

/// Show the attempts that wait at a controller, in the order in which they are served.
#[derive(Debug, clap::Args)]
pub struct Queue {
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Queue {
    /// Prints the queue.
    ///
    /// # Errors
    /// No controller is configured, or it cannot be asked.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let client = connect::remote(config)?;
        let entries = every_page(async |after, limit| client.queue(after, limit).await).await?;
        let now = OffsetDateTime::now_utc();
        if self.json {
            for entry in &entries {
                output::data(&line(entry, now)?);
            }
        } else if !entries.is_empty() {
            output::raw(&columns(&entries.iter().map(|entry| row(entry, now)).collect::<Vec<_>>()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn age(entry: &QueueEntry, now: OffsetDateTime) -> u64 {
    u64::try_from((now - entry.submitted_at).whole_seconds()).unwrap_or(0)
}

fn line(entry: &QueueEntry, now: OffsetDateTime) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(entry)?;
    value["ageSeconds"] = json!(age(entry, now));
    Ok(value.to_string())
}

fn row(entry: &QueueEntry, now: OffsetDateTime) -> Vec<String> {
    let age = humantime::format_duration(std::time::Duration::from_secs(age(entry, now))).to_string();
    vec![entry.position.to_string(), entry.attempt.to_string(), entry.submitter.clone(), age, entry.reason.clone()]
}
