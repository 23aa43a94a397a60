//! `laneyard cancel`: asks an attempt to end, as an interrupt to its own client would.

use std::process::ExitCode;

use agent::attempt::directory::StateDir;
use agent::config::{Config, Proof};
use agent::ids::AttemptId;
use agent::receipt::{Status, status_of};
use agent::wire::attempt::{AttemptState, AttemptView, CancelSignal};
use serde_json::{Value, json};

use super::record::{RecordError, Records};
use super::run::drive::OnLost;
use super::run::signals::Latch;
use super::{adopt, connect, credential, output, reach};

/// End an attempt; its receipt will say `cancelled`.
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// Id of the attempt.
    pub attempt: AttemptId,
    /// Ask with SIGTERM instead of SIGINT.
    #[arg(long)]
    term: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Cancel {
    /// Asks and returns; for an attempt whose client was killed, finishes it here.
    ///
    /// # Errors
    /// The attempt is unknown, or its client or controller cannot be reached.
    pub async fn run(self, config: &Config, flags: &Proof) -> anyhow::Result<ExitCode> {
        let signal = if self.term { CancelSignal::Terminate } else { CancelSignal::Interrupt };
        let records = Records::of(&config.state_dir);
        match records.look(self.attempt) {
            Ok(record) if record.controller.is_some() => {
                let controller = credential::address(config, flags, &record).await;
                let there = Config { controller, ..config.clone() };
                self.told(&connect::remote(&there)?.cancel(self.attempt, signal).await?)
            }
            Ok(_) => self.local(config, &records, signal).await,
            Err(RecordError::Unknown { .. }) if config.controller.is_some() => {
                self.told(&connect::remote(config)?.cancel(self.attempt, signal).await?)
            }
            Err(error) => match ended(config, self.attempt) {
                Some(status) => self.ended(&status),
                None => Err(error.into()),
            },
        }
    }

    /// What the controller answered.
    fn told(&self, view: &AttemptView) -> anyhow::Result<ExitCode> {
        match &view.state {
            AttemptState::Ended { status, .. } => self.ended(status),
            AttemptState::Unreachable { worker, .. } | AttemptState::Interrupted { worker, .. } => {
                let text = format!("worker {worker} is silent: it is told when it comes back");
                self.say(&json!({"outcome": "worker-silent", "worker": worker}), &text)
            }
            _ => self.asked(),
        }
    }

    fn ended(&self, status: &str) -> anyhow::Result<ExitCode> {
        let text = format!("attempt {} has ended already: {status}", self.attempt);
        self.say(&json!({"outcome": "ended", "status": status}), &text)
    }

    /// Whoever drives it was told.
    fn asked(&self) -> anyhow::Result<ExitCode> {
        self.say(&json!({"outcome": "asked"}), "")
    }

    /// What came of it, as data with the attempt's id, or in words if there are any.
    fn say(&self, outcome: &Value, words: &str) -> anyhow::Result<ExitCode> {
        if self.json {
            let mut value = json!({"attempt": self.attempt});
            if let (Some(value), Some(outcome)) = (value.as_object_mut(), outcome.as_object()) {
                value.extend(outcome.clone());
            }
            output::data(&value.to_string());
        } else if !words.is_empty() {
            output::line(words);
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn local(self, config: &Config, records: &Records, signal: CancelSignal) -> anyhow::Result<ExitCode> {
        match records.take(self.attempt) {
            Err(RecordError::Busy { .. }) => {
                reach::ask_holder(records, self.attempt, signal)?;
                self.asked()
            }
            Ok(held) => {
                let (_keep, asked) = tokio::sync::watch::channel(Some(signal));
                let mut latch = Latch::of(asked);
                let settled = adopt::finish(
                    config,
                    &adopt::Own::default(),
                    held,
                    &mut latch,
                    (output::Talk::SILENT, OnLost::Wait),
                )
                .await?;
                if self.json {
                    let status = status_of(&settled.receipt).map(Status::as_str);
                    return self.say(&json!({"outcome": "finished", "status": status, "receipt": settled.receipt}), "");
                }
                output::data(&settled.receipt.to_string());
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// How an attempt of this machine ended, if it did.
fn ended(config: &Config, attempt: AttemptId) -> Option<String> {
    if !config.state_dir.join("attempts").is_dir() {
        return None;
    }
    let path = StateDir::open(&config.state_dir).ok()?.attempt_path(attempt).join("receipt.json");
    let receipt = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(status_of(&receipt).map_or_else(|| "with an unknown status".to_owned(), |status| status.as_str().to_owned()))
}
