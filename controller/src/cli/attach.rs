//! `laneyard attach`: waits for an attempt, and finishes it if its own client was killed.

use std::process::ExitCode;
use std::time::Duration;

use agent::config::Config;
use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::receipt::status_of;
use agent::wire::attempt::AttemptState;
use futures_util::StreamExt as _;
use serde_json::Value;

use super::connect::{Adoption, ConnectError};
use super::output::{self, Talk};
use super::record::{Held, RecordError, Records};
use super::run::drive::OnLost;
use super::run::lane::{News, word};
use super::run::signals::Latch;
use super::{adopt, connect, follow};

/// How often it is looked whether the client still lives.
const LOOK: Duration = Duration::from_millis(500);

/// Wait for an attempt; if its client was killed, put answer and receipt where that one reserved them.
#[derive(Debug, clap::Args)]
pub struct Attach {
    /// Id of the attempt.
    attempt: AttemptId,
    /// Say nothing on stderr while it runs.
    #[arg(long)]
    quiet: bool,
    /// What to do when the attempt's worker is lost: wait for it, or end. By default what its client was told, else wait.
    #[arg(long, value_enum, value_name = "WHAT")]
    on_lost: Option<OnLost>,
}

impl Attach {
    /// Prints the receipt's line and ends with the attempt's own code, as `run` would have.
    ///
    /// # Errors
    /// The attempt is unknown, or cannot be taken over.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let talk = Talk::new(false, self.quiet);
        match Records::of(&config.state_dir).take(self.attempt) {
            Ok(held) => finish(config, held, talk, self.on_lost).await,
            Err(RecordError::Busy { pid, .. }) => {
                talk.say(&format!("process {pid} is the client of this attempt; watching"));
                self.beside_client(config, talk).await
            }
            Err(RecordError::Unknown { .. }) => self.without_client(config, talk).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Watches, and finishes the attempt should its client die meanwhile.
    async fn beside_client(self, config: &Config, talk: Talk) -> anyhow::Result<ExitCode> {
        let watching = self.watch(config, talk);
        tokio::pin!(watching);
        loop {
            tokio::select! {
                code = &mut watching => return code,
                () = tokio::time::sleep(LOOK) => {
                    if let Ok(held) = Records::of(&config.state_dir).take(self.attempt) {
                        return finish(config, held, talk, self.on_lost).await;
                    }
                }
            }
        }
    }

    /// No client waits for it: an attempt of a fleet, or one that is over, or one that nobody drives.
    async fn without_client(self, config: &Config, talk: Talk) -> anyhow::Result<ExitCode> {
        if !follow::log_path(config, self.attempt).is_file() {
            return self.watch(config, talk).await;
        }
        let local = Config { controller: None, ..config.clone() };
        let connection = match connect::open(&local, false, Adoption::One(self.attempt)).await {
            Ok(connection) => Some(connection),
            // Over, or driven by another process: the log tells all.
            Err(ConnectError::Adopt(error)) => {
                tracing::debug!(%error, "not taken over");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let code = self.watch(config, talk).await;
        if let Some(connection) = connection {
            connection.close().await;
        }
        code
    }

    async fn watch(&self, config: &Config, talk: Talk) -> anyhow::Result<ExitCode> {
        let mut news = follow::news(config, self.attempt)?;
        while let Some(told) = news.next().await {
            match told? {
                News::Event(Event { body: EventBody::Terminal { receipt, .. }, .. }) => return Ok(print(&receipt)),
                News::Event(Event { body: EventBody::Status { note: Some(note), .. }, .. }) => talk.say(&note),
                News::State(state) => {
                    if let Some(word) = word(&state) {
                        talk.say(&word);
                    }
                    if let (Some(OnLost::Fail), AttemptState::Interrupted { worker, .. }) = (self.on_lost, state) {
                        anyhow::bail!("worker {worker} is lost with attempt {}; its late receipt counts", self.attempt);
                    }
                }
                News::Word(word) => talk.say(&word),
                News::Event(_) | News::Live(_) => {}
            }
        }
        anyhow::bail!("the events of attempt {} ended without a receipt", self.attempt)
    }
}

async fn finish(config: &Config, held: Held, talk: Talk, on_lost: Option<OnLost>) -> anyhow::Result<ExitCode> {
    let mut latch = Latch::install()?;
    talk.say(&format!("finishing attempt {} for its killed client", held.record.attempt));
    let on_lost = on_lost.unwrap_or(held.record.on_lost());
    let settled = adopt::finish(config, held, &mut latch, (talk, on_lost)).await?;
    settled.print();
    Ok(ExitCode::from(settled.exit_code()))
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
