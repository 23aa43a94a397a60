//! `laneyard attempts`: what this machine, or a controller, knows.

use std::process::ExitCode;

use agent::attempt::directory::StateDir;
use agent::config::Config;
use agent::ids::AttemptId;
use agent::receipt::status_of;
use agent::wire::attempt::AttemptState;
use serde_json::{Value, json};

use super::record::Records;
use super::{connect, output};

/// List attempts, oldest first.
#[derive(Debug, clap::Args)]
pub struct Attempts {
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

struct Row {
    attempt: AttemptId,
    descriptor: String,
    state: String,
    place: String,
}

impl Attempts {
    /// Prints the list.
    ///
    /// # Errors
    /// The state directory or the controller cannot be read.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let rows = if config.controller.is_some() { remote(config).await? } else { local(config)? };
        for row in rows {
            if self.json {
                let value: Value = json!({"attempt": row.attempt, "descriptor": row.descriptor,
                    "state": row.state, "place": row.place});
                output::data(&value.to_string());
            } else {
                let line = format!("{}  {:<22} {:<36} {}", row.attempt, row.state, row.descriptor, row.place);
                output::data(line.trim_end());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn local(config: &Config) -> anyhow::Result<Vec<Row>> {
    let records = Records::of(&config.state_dir);
    let mut rows = Vec::new();
    if !config.state_dir.join("attempts").is_dir() {
        return Ok(rows);
    }
    let state = StateDir::open(&config.state_dir)?;
    for attempt in state.attempts()? {
        let accepted = state.accepted(attempt).ok();
        let descriptor = accepted.as_ref().map_or_else(String::new, |accepted| {
            let lane = &accepted.assignment;
            format!("{}:{}@{}", lane.provider, lane.model, lane.effort)
        });
        let receipt = std::fs::read(state.attempt_path(attempt).join("receipt.json")).ok();
        let ended = receipt.and_then(|bytes| status_of(&serde_json::from_slice(&bytes).ok()?));
        let state_word = match ended {
            Some(status) => status.as_str().to_owned(),
            None if !state.is_driven(attempt) => "left".to_owned(),
            None => "running".to_owned(),
        };
        let place = if records.is_held(attempt) { "client waits" } else { "" }.to_owned();
        rows.push(Row { attempt, descriptor, state: state_word, place });
    }
    Ok(rows)
}

async fn remote(config: &Config) -> anyhow::Result<Vec<Row>> {
    let client = connect::remote(config)?;
    let views = connect::every_page(async |after, limit| client.attempts(after, limit).await).await?;
    let mut rows: Vec<Row> = views
        .into_iter()
        .map(|view| {
            let provider = view.provider.map_or_else(|| "?".to_owned(), |provider| provider.to_string());
            let (state, place) = match view.state {
                AttemptState::Queued { position, reason } => (format!("queued at {position}"), reason),
                AttemptState::Offered { worker, .. } => ("offered".to_owned(), worker.to_string()),
                AttemptState::Running { worker, .. } => ("running".to_owned(), worker.to_string()),
                AttemptState::Unreachable { worker, .. } => ("unreachable".to_owned(), worker.to_string()),
                AttemptState::Interrupted { worker, .. } => ("interrupted".to_owned(), worker.to_string()),
                AttemptState::Ended { status, worker } => (status, worker.map_or_else(String::new, |w| w.to_string())),
            };
            Row {
                attempt: view.attempt,
                descriptor: format!("{provider}:{}", view.model.unwrap_or_default()),
                state,
                place,
            }
        })
        .collect();
    rows.sort_by_key(|row| row.attempt);
    Ok(rows)
}
