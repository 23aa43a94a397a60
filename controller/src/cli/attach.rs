//! `laneyard attach`: waits for an attempt, and finishes it if its own client was killed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use agent::config::{Config, Proof};
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
    pub attempt: AttemptId,
    /// Say nothing on stderr while it runs.
    #[arg(long)]
    quiet: bool,
    /// What to do when the attempt's worker is lost: wait for it, or end. By default what its client was told, else wait.
    #[arg(long, value_enum, value_name = "WHAT")]
    on_lost: Option<OnLost>,
    /// The credential that this command's flags name, instead of the client's.
    #[arg(skip)]
    pub proof: Proof,
}

impl Attach {
    /// Prints the receipt's line and ends with the attempt's own code, as `run` would have.
    ///
    /// # Errors
    /// The attempt is unknown, or cannot be taken over.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let talk = Talk::new(false, self.quiet);
        match Records::of(&config.state_dir).take(self.attempt) {
            Ok(held) => self.finish(config, held, talk).await,
            Err(RecordError::Busy { pid, .. }) => {
                talk.say(&format!("process {pid} is the client of this attempt; watching"));
                self.beside_client(config, talk).await
            }
            Err(RecordError::Unknown { .. }) => self.without_client(config, talk).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Watches, and finishes the attempt should its client die meanwhile. The end is told as the client wrote it down:
    /// only that one knows whether the answer and the changes reached their places.
    async fn beside_client(self, config: &Config, talk: Talk) -> anyhow::Result<ExitCode> {
        let records = Records::of(&config.state_dir);
        let file = records.look(self.attempt).ok().map(|record| record.receipt.path);
        let watching = self.watch(config, talk);
        tokio::pin!(watching);
        let mut ended = None;
        loop {
            tokio::select! {
                receipt = &mut watching, if ended.is_none() => ended = Some(receipt?),
                () = tokio::time::sleep(LOOK) => {}
            }
            match (records.take(self.attempt), &ended) {
                (Ok(held), _) => return self.finish(config, held, talk).await,
                (Err(RecordError::Busy { .. }), _) | (Err(_), None) => {}
                (Err(RecordError::Unknown { .. }), Some(receipt)) => return Ok(self.show(receipt, file)),
                (Err(error), Some(_)) => return Err(error.into()),
            }
        }
    }

    /// No client waits for it: an attempt of a fleet, or one that is over, or one that nobody drives.
    async fn without_client(self, config: &Config, talk: Talk) -> anyhow::Result<ExitCode> {
        if !follow::log_path(config, self.attempt).is_file() {
            return Ok(self.show(&self.watch(config, talk).await?, None));
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
        let ended = self.watch(config, talk).await;
        if let Some(connection) = connection {
            connection.close().await;
        }
        Ok(self.show(&ended?, None))
    }

    /// Prints what its client wrote down of this end, if that is on this machine, else the end as the worker told it.
    fn show(&self, receipt: &Value, file: Option<PathBuf>) -> ExitCode {
        let file = file.or_else(|| receipt["receiptPath"].as_str().map(PathBuf::from));
        if let Some(written) = file.and_then(|path| written(&path, receipt)) {
            return print(&written);
        }
        if receipt["result"].is_object() && receipt["result"]["outcome"].is_null() {
            let attempt = self.attempt;
            output::line(&format!("nothing was applied by this command; see `laneyard result show {attempt}`"));
        }
        print(receipt)
    }

    /// Waits for the receipt, as the worker wrote it.
    async fn watch(&self, config: &Config, talk: Talk) -> anyhow::Result<Value> {
        let mut news = follow::news(config, self.attempt)?;
        while let Some(told) = news.next().await {
            match told? {
                News::Event(Event { body: EventBody::Terminal { receipt, .. }, .. }) => return Ok(receipt),
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

    async fn finish(&self, config: &Config, held: Held, talk: Talk) -> anyhow::Result<ExitCode> {
        let mut latch = Latch::install()?;
        talk.say(&format!("finishing attempt {} for its killed client", held.record.attempt));
        let on_lost = self.on_lost.unwrap_or(held.record.on_lost());
        let own = adopt::Own { proof: self.proof.clone(), gives_up: self.on_lost == Some(OnLost::Fail) };
        let settled = adopt::finish(config, &own, held, &mut latch, (talk, on_lost)).await?;
        settled.print();
        Ok(ExitCode::from(settled.exit_code()))
    }
}

/// The receipt in a file, if it is of this very end: not of another attempt, and not of a client that gave up earlier.
fn written(path: &Path, receipt: &Value) -> Option<Value> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None; // the path may be of another machine, and anything may stand there
    }
    let found: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let same = |key: &str| found[key].is_string() && found[key] == receipt[key];
    (same("attempt") && same("completedAt")).then_some(found)
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
