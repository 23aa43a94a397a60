//! `laneyard attach`: waits for an attempt, and finishes it if its own client was killed.

use std::process::ExitCode;

use agent::config::Config;
use agent::event::EventBody;
use agent::ids::AttemptId;
use agent::receipt::status_of;
use futures_util::StreamExt as _;
use serde_json::Value;

use super::output::{self, Talk};
use super::record::{RecordError, Records};
use super::run::signals::Latch;
use super::{adopt, connect, follow};

/// Wait for an attempt; if its client was killed, put answer and receipt where that one reserved them.
#[derive(Debug, clap::Args)]
pub struct Attach {
    /// Id of the attempt.
    attempt: AttemptId,
    /// Say nothing on stderr while it runs.
    #[arg(long)]
    quiet: bool,
}

impl Attach {
    /// Prints the receipt's line and ends with the attempt's own code, as `run` would have.
    ///
    /// # Errors
    /// The attempt is unknown, or cannot be taken over.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let talk = Talk::new(false, self.quiet);
        match Records::of(&config.state_dir).take(self.attempt) {
            Ok(held) => {
                let mut latch = Latch::install()?;
                talk.say(&format!("finishing attempt {} for its killed client", self.attempt));
                let settled = adopt::finish(config, held, &mut latch, talk).await?;
                settled.print();
                Ok(ExitCode::from(settled.exit_code()))
            }
            Err(RecordError::Busy { pid, .. }) => {
                talk.say(&format!("process {pid} is the client of this attempt; watching"));
                self.watch(config, talk).await
            }
            Err(RecordError::Unknown { .. }) => self.without_client(config, talk).await,
            Err(error) => Err(error.into()),
        }
    }

    /// No client waits for it: an attempt of a fleet, or one that is over, or one that nobody drives.
    async fn without_client(self, config: &Config, talk: Talk) -> anyhow::Result<ExitCode> {
        let here = follow::log_path(config, self.attempt).is_file();
        if !here {
            return self.watch(config, talk).await;
        }
        let local = Config { controller: None, ..config.clone() };
        let connection = connect::open(&local, false).await?;
        // Over, or driven by another process: then there is nothing to take over, and the log tells all.
        let adopted = connection.adopt(self.attempt);
        if let Err(error) = adopted {
            tracing::debug!(%error, "not taken over");
        }
        let code = self.watch(config, talk).await;
        connection.close().await;
        code
    }

    async fn watch(&self, config: &Config, talk: Talk) -> anyhow::Result<ExitCode> {
        let mut events = follow::events(config, self.attempt, true)?;
        while let Some(event) = events.next().await {
            match event?.body {
                EventBody::Terminal { receipt, .. } => return Ok(print(&receipt)),
                EventBody::Status { note: Some(note), .. } => talk.say(&note),
                _ => {}
            }
        }
        anyhow::bail!("the events of attempt {} ended without a receipt", self.attempt)
    }
}

fn print(receipt: &Value) -> ExitCode {
    let code = status_of(receipt).map_or(70, agent::receipt::Status::exit_code);
    let line = receipt.to_string();
    if code == 0 {
        output::data(&line)
    } else {
        output::line(&line)
    }
    ExitCode::from(code)
}
