//! What a killed client left behind: its attempt goes on in its container, its files are still reserved. The next
//! command on this machine starts one process that finishes both.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use agent::attempt::directory::StateDir;
use agent::config::{Config, ControllerAddress};
use agent::ids::AttemptId;
use agent::progress::Reporter;
use agent::wire::error::code::NO_SUCH_ATTEMPT;
use agent::worker::Worker;
use futures_util::future::join_all;

use super::connect::{self, Adoption, ConnectError, Connection};
use super::output::{Talk, chain};
use super::record::{Held, RecordError, Records};
use super::run::deliver::{Settled, deliver};
use super::run::drive::drive;
use super::run::signals::Latch;

/// Hidden command of the process that adopts.
pub const COMMAND: &str = "__adopt";
/// How long a worker may take to tell its controller what it took over.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// Starts the adopting process if anything was left, and does not wait for it.
pub fn in_background(config: &Config) {
    if !config.state_dir.is_dir() || !anything_left(config) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    use std::os::unix::process::CommandExt as _;
    let started = Command::new(program)
        .arg(COMMAND)
        .arg("--state-dir")
        .arg(&config.state_dir)
        .args(config.engine.iter().flat_map(|engine| ["--engine".to_owned(), engine.to_string()]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0) // the terminal's signals are not for it
        .spawn();
    if let Err(error) = started {
        tracing::warn!(%error, "what a killed command left could not be taken over");
    }
}

fn anything_left(config: &Config) -> bool {
    let records = Records::of(&config.state_dir);
    if records.all().into_iter().any(|attempt| !records.is_held(attempt)) {
        return true;
    }
    // Opening would create it: a machine without attempts stays untouched.
    config.state_dir.join("attempts").is_dir()
        && StateDir::open(&config.state_dir)
            .and_then(|state| Worker::orphans(&state))
            .is_ok_and(|orphans| !orphans.is_empty())
}

/// The adopting process: finishes the files of every client that is gone, and every attempt that nobody drives.
pub async fn main(config: &Config) -> ExitCode {
    let latch = match Latch::install() {
        Ok(latch) => latch,
        Err(error) => {
            tracing::error!(%error, "signals cannot be handled");
            return ExitCode::FAILURE;
        }
    };
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let records = Records::of(&config.state_dir);
    for attempt in records.all() {
        match records.take(attempt) {
            Ok(held) if held.record.controller.is_some() => there.push(held),
            Ok(held) => here.push(held),
            Err(RecordError::Busy { .. } | RecordError::Unknown { .. }) => {}
            Err(error) => tracing::warn!(%attempt, error = %chain(&error), "a record cannot be used"),
        }
    }
    let local = Config { controller: None, ..config.clone() };
    let first = here.iter().map(|held| held.record.attempt).collect();
    let connection = match connect::open(&local, false, Adoption::Everything(first)).await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::error!(error = %chain(&error), "nothing could be taken over");
            return ExitCode::FAILURE;
        }
    };
    let finishing = here.into_iter().map(|held| settle_one(config, Some(&connection), held, &latch));
    let fetching = there.into_iter().map(|held| settle_one(config, None, held, &latch));
    futures_util::future::join(join_all(finishing), join_all(fetching)).await;
    connection.finish_everything().await;
    connection.close().await;
    ExitCode::SUCCESS
}

async fn settle_one(config: &Config, connection: Option<&Connection>, held: Held, latch: &Latch) {
    let attempt = held.record.attempt;
    let mut latch = latch.clone();
    let settled = match connection {
        Some(connection) => {
            let settled = finish_on(connection, &held, &mut latch, Talk::SILENT).await;
            if settled.as_ref().is_ok_and(|settled| settled.written) {
                held.forget();
            }
            settled
        }
        None => finish(config, held, &mut latch, Talk::SILENT).await,
    };
    if let Err(error) = settled {
        tracing::warn!(%attempt, error = %chain(&error), "the attempt could not be finished");
    }
}

/// An attempt could not be finished for its killed client.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] agent::transport::CallError),
    #[error("the {name} of attempt {attempt} at `{}` cannot be written: {source}", path.display())]
    File { name: &'static str, attempt: AttemptId, path: std::path::PathBuf, source: std::io::Error },
}

/// Follows the attempt of a killed client to its end and puts answer and receipt where that one reserved them.
///
/// # Errors
/// The attempt cannot be taken over, or the reserved files are not there any more.
pub async fn finish(config: &Config, held: Held, latch: &mut Latch, talk: Talk) -> Result<Settled, FinishError> {
    let connection = open_for(config, &held).await?;
    let settled = finish_on(&connection, &held, latch, talk).await;
    connection.close().await;
    if settled.as_ref().is_ok_and(|settled| settled.written) {
        held.forget();
    }
    settled
}

async fn open_for(config: &Config, held: &Held) -> Result<Connection, ConnectError> {
    let record = &held.record;
    let controller =
        record.controller.clone().map(|url| ControllerAddress { url, token_file: record.token_file.clone() });
    connect::open(&Config { controller, ..config.clone() }, false, Adoption::One(record.attempt)).await
}

async fn finish_on(
    connection: &Connection,
    held: &Held,
    latch: &mut Latch,
    talk: Talk,
) -> Result<Settled, FinishError> {
    let record = &held.record;
    let attempt = record.attempt;
    let file = |name, path: &std::path::Path| {
        let path = path.to_owned();
        move |source| FinishError::File { name, attempt, path, source }
    };
    let mut receipt = record.receipt.reopen().map_err(file("receipt", &record.receipt.path))?;
    let began = tokio::time::Instant::now();
    let ended = loop {
        match drive(connection.lane(), attempt, latch, &Reporter::off(), talk).await {
            // The worker has it and has not said so yet.
            Err(error) if error.is(NO_SUCH_ATTEMPT) && began.elapsed() < INTRODUCTION => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            ended => break ended?,
        }
    };
    let mut output = record.output.reopen().map_err(file("output", &record.output.path))?;
    Ok(deliver(connection.lane(), attempt, ended, (&mut output, &mut receipt)).await)
}
