//! What a killed client left behind: its attempt goes on in its container, its files are still reserved. The next
//! command on this machine starts one process that finishes both.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use agent::attempt::directory::StateDir;
use agent::config::{Config, Proof};
use agent::ids::AttemptId;
use agent::progress::Reporter;
use agent::receipt::status_of;
use agent::wire::error::code::NO_SUCH_ATTEMPT;
use agent::worker::Worker;
use futures_util::future::join_all;
use time::OffsetDateTime;

use super::connect::{self, Adoption, ConnectError, Connection};
use super::credential;
use super::later::Later;
use super::output::{Talk, chain};
use super::record::{Held, Record, RecordError, Records};
use super::run::deliver::{Settled, Shut, deliver, deliver_receipt, unseen};
use super::run::drive::{Ended, OnLost, Unseen, drive};
use super::run::home;
use super::run::lane::{Lane, Patient};
use super::run::report::report;
use super::run::signals::Latch;
use super::unsent;

/// Hidden command of the process that adopts.
pub const COMMAND: &str = "__adopt";
/// How long a worker may take to tell its controller what it took over, and a killed client's submission to arrive.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// A controller that is away for longer is left to a later command.
const AWAY: Duration = Duration::from_secs(600);

/// Starts the adopting process if anything was left, and does not wait for it.
pub fn in_background(config: &Config) {
    if config.state_dir.is_dir() && anything_left(config) {
        start(config, COMMAND);
    }
}

/// Starts a hidden command for this state directory, and does not wait for it.
pub(super) fn start(config: &Config, command: &str) {
    let Ok(program) = std::env::current_exe() else { return };
    use std::os::unix::process::CommandExt as _;
    let started = Command::new(program)
        .arg(command)
        .arg("--state-dir")
        .arg(&config.state_dir)
        .args(config.engine.iter().flat_map(|engine| ["--engine".to_owned(), engine.to_string()]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0) // the terminal's signals are not for it
        .spawn();
    if let Err(error) = started {
        tracing::warn!(%error, command, "a process in the background could not be started");
    }
}

fn anything_left(config: &Config) -> bool {
    let records = Records::of(&config.state_dir);
    let left = |attempt| !records.is_held(attempt) && is_due(&records, attempt);
    records.all().into_iter().any(left) || unsent::any_due(&records) || any_orphans(config)
}

/// True unless it was tried in vain, and not long ago.
fn is_due(records: &Records, attempt: AttemptId) -> bool {
    let now = OffsetDateTime::now_utc();
    Later::of(records, attempt).is_none_or(|later| later.is_due(now))
}

fn any_orphans(config: &Config) -> bool {
    // Opening would create it: a machine without attempts stays untouched.
    config.state_dir.join("attempts").is_dir()
        && StateDir::open(&config.state_dir).and_then(|state| Ok((Worker::orphans(&state)?, state))).is_ok_and(
            |(orphans, state)| orphans.into_iter().any(|attempt| !connect::belongs_elsewhere(&state, attempt)),
        )
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
    let mut seen = BTreeSet::new();
    let (mut here, mut there) = take_left(config, &mut seen);
    let words = unsent::send_due(config);
    if here.is_empty() && there.is_empty() && !any_orphans(config) {
        words.await;
        return ExitCode::SUCCESS; // another process was faster, or there is nothing but words
    }
    let finishing = finish_left(config, (&mut here, &mut there), &mut seen, &latch);
    futures_util::future::join(finishing, words).await.0
}

async fn finish_left(
    config: &Config,
    (here, there): (&mut Vec<Held>, &mut Vec<Held>),
    seen: &mut BTreeSet<AttemptId>,
    latch: &Latch,
) -> ExitCode {
    let local = Config { controller: None, ..config.clone() };
    let first = here.iter().map(|held| held.record.attempt).collect();
    let connection = match connect::open(&local, false, Adoption::Everything(first)).await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::error!(error = %chain(&error), "nothing could be taken over");
            let records = Records::of(&config.state_dir);
            for held in here.iter().chain(there.iter()) {
                Later::put_off(&records, held.record.attempt, &chain(&error));
            }
            return ExitCode::FAILURE;
        }
    };
    // A client may be killed while others' attempts are finished here: look again until nothing new was left.
    loop {
        let finishing = here.drain(..).map(|held| settle_one(config, Some(&connection), held, latch));
        let fetching = there.drain(..).map(|held| settle_one(config, None, held, latch));
        futures_util::future::join(join_all(finishing), join_all(fetching)).await;
        connection.finish_everything().await;
        (*here, *there) = take_left(config, seen);
        if here.is_empty() && there.is_empty() {
            break;
        }
        for held in here.iter() {
            connection.adopt(held.record.attempt).await;
        }
    }
    connection.close().await;
    ExitCode::SUCCESS
}

/// Takes the records that nobody holds and that were not taken here before: of this machine's attempts, and of a
/// controller's.
fn take_left(config: &Config, seen: &mut BTreeSet<AttemptId>) -> (Vec<Held>, Vec<Held>) {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let records = Records::of(&config.state_dir);
    for attempt in records.all() {
        if seen.contains(&attempt) || !is_due(&records, attempt) {
            continue;
        }
        match records.take_as(attempt, true) {
            Ok(held) => {
                seen.insert(attempt);
                if held.record.controller.is_some() { there.push(held) } else { here.push(held) }
            }
            Err(RecordError::Busy { .. } | RecordError::Unknown { .. }) => {}
            Err(error) => {
                seen.insert(attempt);
                tracing::warn!(%attempt, error = %chain(&error), "a record cannot be used");
                Later::put_off(&records, attempt, &chain(&error));
            }
        }
    }
    (here, there)
}

/// Finishes one lane. A signal to this process is for all of them, a word in the state directory for this one.
async fn settle_one(config: &Config, connection: Option<&Connection>, held: Held, latch: &Latch) {
    let (attempt, mut all) = (held.record.attempt, latch.clone());
    let records = Records::of(&config.state_dir);
    let (asked, first) = tokio::sync::watch::channel(None);
    let listening = async {
        let signal = tokio::select! { signal = all.first() => signal, signal = records.asked(attempt) => signal };
        asked.send_replace(Some(signal));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = settle(config, connection, held, Latch::of(first)) => {}
        () = listening => {}
    }
}

async fn settle(config: &Config, connection: Option<&Connection>, held: Held, mut latch: Latch) {
    let attempt = held.record.attempt;
    let waiting = (Talk::SILENT, held.record.on_lost());
    let settled = match connection {
        Some(connection) => {
            let own = Own { gives_up: true, ..Own::default() };
            let settled = finish_on(config, connection, &held, &mut latch, waiting, &own).await;
            forget_if_over(held, &settled);
            settled
        }
        None => {
            let own = Own { patience: Some(AWAY), ..Own::default() };
            finish(config, &own, held, &mut latch, waiting).await
        }
    };
    if let Err(error) = settled {
        tracing::warn!(%attempt, error = %chain(&error), "the attempt could not be finished");
        let records = Records::of(&config.state_dir);
        if records.look(attempt).is_ok() {
            Later::put_off(&records, attempt, &chain(&error));
        }
    }
}

/// What a command that finishes a lane was told by its own flags.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub proof: Proof,
    /// An attempt that nobody knows is to be ended.
    pub gives_up: bool,
    /// How long the controller may be away; `None`: for ever.
    pub patience: Option<Duration>,
}

/// An attempt could not be finished for its killed client.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Unseen(#[from] Unseen),
    #[error(transparent)]
    Shut(#[from] Shut),
    #[error(
        "{reason}; it may be known to another controller, or under another credential: its files stay reserved. Pass the \
         one that submitted it; if nobody will ever know it, `laneyard attach {attempt} --on-lost fail` ends it"
    )]
    Doubt { attempt: AttemptId, reason: String },
    #[error("the receipt of attempt {attempt} at `{}` cannot be written: {source}", path.display())]
    File { attempt: AttemptId, path: PathBuf, source: io::Error },
    /// Nobody has the reserved file any more; there is nothing to be tried again.
    #[error(
        "the receipt of attempt {attempt} reserved at `{}` is gone: the attempt ended as {status}, its receipt is in {kept}",
        path.display()
    )]
    Gone { attempt: AttemptId, path: PathBuf, status: String, kept: String },
}

/// A record whose attempt needs nothing more is forgotten.
fn forget_if_over(held: Held, settled: &Result<Settled, FinishError>) {
    if matches!(settled, Ok(Settled { written: true, .. }) | Err(FinishError::Gone { .. })) {
        held.forget();
    }
}

/// The file is not ours any more, and never will be again.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, Other};
    matches!(error.kind(), NotFound | NotADirectory | Other) || error.raw_os_error() == Some(nix::libc::ELOOP)
}

/// Follows the attempt of a killed client to its end and puts answer and receipt where that one reserved them.
///
/// # Errors
/// The attempt cannot be taken over, or the reserved files are not there any more.
pub async fn finish(
    config: &Config,
    own: &Own,
    held: Held,
    latch: &mut Latch,
    waiting: (Talk, OnLost),
) -> Result<Settled, FinishError> {
    let controller = credential::address(config, &own.proof, &held.record).await;
    let certain = controller.as_ref().is_none_or(|address| credential::is_the_clients(address, &held.record));
    let there = Config { controller, ..config.clone() };
    let connection = connect::open(&there, false, Adoption::One(held.record.attempt)).await?;
    let own = Own { gives_up: certain || own.gives_up, ..own.clone() };
    let settled = finish_on(&there, &connection, &held, latch, waiting, &own).await;
    connection.close().await;
    forget_if_over(held, &settled);
    settled
}

async fn finish_on(
    config: &Config,
    connection: &Connection,
    held: &Held,
    latch: &mut Latch,
    waiting: (Talk, OnLost),
    own: &Own,
) -> Result<Settled, FinishError> {
    let record = &held.record;
    let mut receipt = match record.receipt.reopen() {
        Ok(receipt) => receipt,
        Err(error) if is_gone(&error) => {
            let ended = follow(connection, record.attempt, latch, waiting, own).await?;
            return Err(gone(connection, record, &ended));
        }
        Err(source) => {
            let (attempt, path) = (record.attempt, record.receipt.path.clone());
            return Err(FinishError::File { attempt, path, source });
        }
    };
    let (ended, by_worker, lost) = match follow(connection, record.attempt, latch, waiting, own).await {
        Ok(ended) => {
            let status = status_of(&ended.receipt);
            (ended, status, false)
        }
        Err(why) => match record.assignment.as_ref().filter(|_| is_final(&why, own.gives_up)) {
            Some(assignment) => {
                let receipt = unseen(assignment, &why, latch).to_value();
                (Ended { receipt, answer_bytes: None }, None, matches!(why, Unseen::Lost(_)))
            }
            None => return Err(kept(record.attempt, why)),
        },
    };
    let ended = match &record.worktree {
        // What it left may still come, and is applied over the snapshot that this machine has.
        Some(_) if lost => ended,
        Some(worktree) => home::settle(config, connection.client(), record.attempt, worktree, ended, waiting.0).await?,
        None => ended,
    };
    let settled = match record.output.reopen() {
        Ok(mut output) => deliver(connection.lane(), record.attempt, ended, (&mut output, &mut receipt)).await?,
        Err(error) => deliver_receipt(ended, &error, &mut receipt),
    };
    report(config, connection, record.attempt, by_worker, &settled).await;
    Ok(settled)
}

/// Nothing that is tried later would show the end. That nobody knows the attempt counts only from the controller and for
/// the submitter that certainly are the right ones: what another answers ends no lane.
fn is_final(why: &Unseen, certain: bool) -> bool {
    match why {
        Unseen::Lost(_) => true,
        Unseen::Call(error) => certain && error.is(NO_SUCH_ATTEMPT),
    }
}

/// An end that was not seen, and that may be seen by others or later: the lane stays as it is.
fn kept(attempt: AttemptId, why: Unseen) -> FinishError {
    match why {
        Unseen::Call(error) if error.is(NO_SUCH_ATTEMPT) => FinishError::Doubt { attempt, reason: chain(&error) },
        Unseen::Call(error) if error.is_of_credential() => Shut { attempt, reason: chain(&error) }.into(),
        why => why.into(),
    }
}

fn gone(connection: &Connection, record: &Record, ended: &Ended) -> FinishError {
    let attempt = record.attempt;
    let kept = match connection.receipt_path(attempt) {
        Some(path) => format!("`{}`", path.display()),
        None => format!("the controller: laneyard attach {attempt}"),
    };
    let status = status_of(&ended.receipt).map_or("unknown", agent::receipt::Status::as_str).to_owned();
    FinishError::Gone { attempt, path: record.receipt.path.clone(), status, kept }
}

async fn follow(
    connection: &Connection,
    attempt: AttemptId,
    latch: &mut Latch,
    waiting: (Talk, OnLost),
    own: &Own,
) -> Result<Ended, Unseen> {
    let began = tokio::time::Instant::now();
    let patient = own.patience.map(|patience| Patient::new(connection.lane(), patience));
    let lane = patient.as_ref().map_or(connection.lane(), |patient| patient as &dyn Lane);
    loop {
        match drive(lane, attempt, latch, &Reporter::off(), waiting).await {
            // It is on its way still. Where that would decide nothing, nobody waits for it.
            Err(Unseen::Call(error)) if own.gives_up && error.is(NO_SUCH_ATTEMPT) && began.elapsed() < INTRODUCTION => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            ended => return ended,
        }
    }
}
