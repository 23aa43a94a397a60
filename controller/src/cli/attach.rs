//! `laneyard attach`: waits for an attempt, and finishes it if its own client was killed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use agent::config::{Config, Proof};
use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::receipt::{Status, status_of};
use agent::wire::attempt::AttemptState;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::connect::{Adoption, ConnectError};
use super::output::{self, Talk};
use super::reach::Driver;
use super::record::{Held, RecordError, Records};
use super::run::drive::{Lost, OnLost, lost};
use super::run::lane::News;
use super::run::signals::Latch;
use super::run::waiting::Waiting;
use super::{adopt, connect, credential, follow};

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
    /// Print the receipt on stdout whatever it says, or what is known of a worker that is silent: one JSON object.
    #[arg(long)]
    json: bool,
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
        let mut latch = Latch::install()?;
        match Records::of(&config.state_dir).take(self.attempt) {
            Ok(held) => self.finish(config, held, &mut latch, talk).await,
            Err(RecordError::Busy { pid, .. }) => {
                talk.say(&format!("process {pid} is the client of this attempt; watching"));
                self.beside_client(config, latch, talk).await
            }
            Err(RecordError::Unknown { .. }) => self.without_client(config, latch, talk).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Watches, and finishes the attempt should its client die meanwhile. The end is told as the client wrote it down:
    /// only that one knows whether the answer and the changes reached their places.
    async fn beside_client(self, config: &Config, mut latch: Latch, talk: Talk) -> anyhow::Result<ExitCode> {
        let records = Records::of(&config.state_dir);
        let record = records.look(self.attempt).ok();
        let file = record.as_ref().map(|record| record.receipt.path.clone());
        let controller = match &record {
            Some(record) => credential::address(config, &self.proof, record).await,
            None => config.controller.clone(),
        };
        let there = Config { controller, ..config.clone() };
        let driver = match &there.controller {
            Some(_) => Driver::Controller(connect::remote(&there)?),
            None => Driver::Holder(records.clone()),
        };
        let watching = self.watch(&there, latch.clone(), &driver, talk);
        tokio::pin!(watching);
        let mut ended = None;
        let mut asked = false;
        loop {
            tokio::select! {
                seen = &mut watching, if ended.is_none() => match seen? {
                    Seen::End(receipt) => ended = Some(receipt),
                    Seen::Away(lost) => return Ok(self.away(&lost)),
                },
                // It has ended, and its client may still have much to fetch.
                signal = latch.first(), if ended.is_some() && !asked => {
                    asked = true;
                    driver.ask(self.attempt, signal).await?;
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            match (records.take(self.attempt), &ended) {
                (Ok(held), _) => return self.finish(config, held, &mut latch, talk).await,
                (Err(RecordError::Busy { .. }), _) | (Err(_), None) => {}
                (Err(RecordError::Unknown { .. }), Some(receipt)) => return Ok(self.show(receipt, file)),
                (Err(error), Some(_)) => return Err(error.into()),
            }
        }
    }

    /// No client waits for it: an attempt of a fleet, or one that is over, or one that nobody drives.
    async fn without_client(self, config: &Config, latch: Latch, talk: Talk) -> anyhow::Result<ExitCode> {
        let mut connection = None;
        if follow::log_path(config, self.attempt).is_file() {
            let local = Config { controller: None, ..config.clone() };
            connection = match connect::open(&local, false, Adoption::One(self.attempt)).await {
                Ok(connection) => Some(connection),
                // Over, or driven by another process: the log tells all.
                Err(ConnectError::Adopt(error)) => {
                    tracing::debug!(%error, "not taken over");
                    None
                }
                Err(error) => return Err(error.into()),
            };
        }
        let driver = match (&connection, &config.controller) {
            (Some(connection), _) => Driver::Controller(connection.client().clone()),
            (None, Some(_)) => Driver::Controller(connect::remote(config)?),
            (None, None) => Driver::Nobody,
        };
        let seen = self.watch(config, latch, &driver, talk).await;
        if let Some(connection) = connection {
            connection.close().await;
        }
        Ok(match seen? {
            Seen::End(receipt) => self.show(&receipt, None),
            Seen::Away(lost) => self.away(&lost),
        })
    }

    /// Prints what its client wrote down of this end, if that is on this machine, else the end as the worker told it.
    fn show(&self, receipt: &Value, file: Option<PathBuf>) -> ExitCode {
        let file = file.or_else(|| receipt["receiptPath"].as_str().map(PathBuf::from));
        if let Some(written) = file.and_then(|path| written(&path, receipt)) {
            return self.print(&written);
        }
        if receipt["result"].is_object() && receipt["result"]["outcome"].is_null() {
            let attempt = self.attempt;
            output::line(&format!("nothing was applied by this command; see `laneyard result show {attempt}`"));
        }
        self.print(receipt)
    }

    fn print(&self, receipt: &Value) -> ExitCode {
        let code = status_of(receipt).map_or(70, agent::receipt::Status::exit_code);
        let line = receipt.to_string();
        if code == 0 || self.json {
            output::data(&line)
        } else {
            output::line(&line)
        }
        ExitCode::from(code)
    }

    /// Nobody who cancels waits for a silent worker.
    fn away(&self, lost: &Lost) -> ExitCode {
        if self.json {
            let state = if lost.interrupted { "interrupted" } else { "unreachable" };
            output::data(&json!({"attempt": self.attempt, "state": state, "worker": lost.worker}).to_string());
        } else {
            output::line(&format!("cancelled, as far as it can be told: {lost}"));
        }
        ExitCode::from(Status::Cancelled.exit_code())
    }

    /// Waits for the receipt, as the worker wrote it. The first signal becomes a cancel, and the wait goes on, unless the
    /// worker is away.
    async fn watch(&self, config: &Config, mut latch: Latch, driver: &Driver, talk: Talk) -> anyhow::Result<Seen> {
        let mut news = follow::news(config, self.attempt)?;
        let (mut asked, mut silent) = (false, None);
        let mut waiting = Waiting::new(self.attempt, talk);
        loop {
            if let (true, Some(lost)) = (asked, &silent) {
                return Ok(Seen::Away(Lost::clone(lost)));
            }
            let told = tokio::select! {
                biased;
                signal = latch.first(), if !asked => {
                    asked = true;
                    talk.say(&format!("{}: cancelling, waiting for the receipt", signal.as_str()));
                    driver.ask(self.attempt, signal).await?;
                    continue;
                }
                told = news.next() => told,
                () = waiting.tell() => continue,
            };
            match told.transpose()? {
                Some(News::Event(Event { body: EventBody::Terminal { receipt, .. }, .. })) => {
                    return Ok(Seen::End(receipt));
                }
                Some(News::Event(Event { body: EventBody::Status { note: Some(note), .. }, .. })) => talk.say(&note),
                Some(News::State(state)) => {
                    silent = lost(&state);
                    let given_up = self.on_lost == Some(OnLost::Fail);
                    waiting.on(&state, silent.as_ref().is_some_and(|lost| asked || (given_up && lost.interrupted)));
                    if let (true, AttemptState::Interrupted { worker, .. }) = (given_up, state) {
                        anyhow::bail!("worker {worker} is lost with attempt {}; its late receipt counts", self.attempt);
                    }
                }
                Some(News::Word(word)) => talk.say(&word),
                Some(News::Event(_) | News::Live(_)) => {}
                None => anyhow::bail!("the events of attempt {} ended without a receipt", self.attempt),
            }
        }
    }

    async fn finish(&self, config: &Config, held: Held, latch: &mut Latch, talk: Talk) -> anyhow::Result<ExitCode> {
        talk.say(&format!("finishing attempt {} for its killed client", held.record.attempt));
        let on_lost = self.on_lost.unwrap_or(held.record.on_lost());
        let own =
            adopt::Own { proof: self.proof.clone(), gives_up: self.on_lost == Some(OnLost::Fail), patience: None };
        let settled = adopt::finish(config, &own, held, latch, (talk, on_lost)).await?;
        if self.json {
            output::data(&settled.receipt.to_string())
        } else {
            settled.print()
        }
        Ok(ExitCode::from(settled.exit_code()))
    }
}

/// What watching has shown.
enum Seen {
    /// The receipt, as the worker wrote it.
    End(Value),
    /// A cancel waits for a worker that is silent.
    Away(Lost),
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
