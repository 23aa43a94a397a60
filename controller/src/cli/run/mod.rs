//! `laneyard run`, and the whole of `pstack-runner`: one lane from its flags to its files (runner sections 1 and 2).
//! Order: validate, strict stop, reserve, open progress, read the prompt, then the attempt, then answer and receipt.

pub mod check;
pub mod deliver; // answer and receipt
pub mod drive; // events to the end
pub mod feed;
pub mod flags;
pub mod help;
pub mod home; // a result into the caller's worktree
pub mod lane; // the controller as a lane sees it
pub mod options; // flags
pub mod plan;
pub mod report; // what the caller got, to the controller
pub mod reserve; // the paths
pub mod signals; // SIGINT and SIGTERM
pub mod travel; // the working directory to the controller
pub mod waiting; // what a lane waits for, in words

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use agent::assignment::Assignment;
use agent::attempt::fault;
use agent::config::{Config, Environment, WorktreeWay};
use agent::descriptor::Contract;
use agent::driver::{STRICT_EVIDENCE, strict_reason};
use agent::progress::{Reporter, State, system_tokens};
use agent::receipt::{Receipt, ReceiptError, Status, launcher_evidence, status_of};
use agent::wire::attempt::Submit;
use agent::wire::error::code::STORAGE_FULL;
use time::OffsetDateTime;

use self::deliver::{Failure, Settled, Shut, deliver, launcher_failure, settle, unseen};
use self::drive::{OnLost, Unseen, drive};
use self::options::{Options, UsageError};
use self::report::report;
use self::reserve::{Reservation, canonical};
use self::signals::Latch;
use super::connect::{self, Adoption, Connection};
use super::credential;
use super::output::{self, Talk, chain};
use super::place;
use super::record::{FileRecord, Held, Record, RecordError, Records, WorktreeRecord};
use super::{USAGE, adopt, tidy};

/// Runs one lane. `compatible`: under the name `pstack-runner`. `entered` is when the program was entered.
pub fn main(words: Vec<OsString>, compatible: bool, environment: &Environment, entered: OffsetDateTime) -> ExitCode {
    match prepare(words, compatible, environment, entered) {
        Ok(None) => {
            output::raw(&help::text(compatible));
            ExitCode::SUCCESS
        }
        Ok(Some(lane)) => match super::lane_runtime() {
            Ok(runtime) => runtime.block_on(lane.run()).unwrap_or_else(|error| refused(&error.into(), compatible)),
            Err(error) => refused(&UsageError(format!("could not start: {error}")).into(), compatible),
        },
        Err(error) => refused(&error, compatible),
    }
}

/// A lane that cannot begin.
struct Refusal {
    error: UsageError,
    /// The flags themselves are wrong, so that reading about them helps.
    flags: bool,
}

impl Refusal {
    const fn flags(error: UsageError) -> Self {
        Self { error, flags: true }
    }
}

impl From<UsageError> for Refusal {
    fn from(error: UsageError) -> Self {
        Self { error, flags: false }
    }
}

/// The runner prints its usage with every refusal (runner 1.5); under our own name that would bury what happened.
fn refused(Refusal { error, flags }: &Refusal, compatible: bool) -> ExitCode {
    output::line(&match (compatible, flags) {
        (true, _) => format!("error: {error}\n\n{}", help::text(true).trim_end()),
        (false, true) => format!("error: {error}\nsee laneyard run --help"),
        (false, false) => format!("error: {error}"),
    });
    ExitCode::from(USAGE)
}

/// Exit code of a lane that the controller's full disk does not admit: the same call may succeed later.
const FULL: u8 = 74;

/// A lane without a receipt.
enum Untaken {
    /// It was not taken: nothing of it is left.
    Usage(UsageError),
    /// The same.
    Full(String),
    /// It may go on, and we may not look: its files stay reserved and its record stays, for `attach`.
    Shut(Shut),
}

/// Exit code of a lane whose end cannot be told (runner 1.5, launcher failure).
const SHUT: u8 = 70;

impl From<Shut> for Untaken {
    fn from(shut: Shut) -> Self {
        Self::Shut(shut)
    }
}

impl From<UsageError> for Untaken {
    fn from(error: UsageError) -> Self {
        Self::Usage(error)
    }
}

/// A lane that passed every check and has touched nothing yet.
struct Checked {
    options: Options,
    config: Config,
    assignment: Assignment,
    talk: Talk,
    compatible: bool,
}

fn prepare(
    words: Vec<OsString>,
    compatible: bool,
    environment: &Environment,
    entered: OffsetDateTime,
) -> Result<Option<Checked>, Refusal> {
    let words = words
        .into_iter()
        .map(|word| word.into_string().map_err(|word| UsageError(format!("`{}` is not UTF-8", word.display()))))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Refusal::flags)?;
    let here = std::env::current_dir()
        .map_err(|error| UsageError(format!("the current directory cannot be used: {error}")))?;
    let Some(options) = options::read(&words, compatible, &here).map_err(Refusal::flags)? else { return Ok(None) };
    check::check(&options).map_err(Refusal::flags)?;
    let config = Config::load(environment).map_err(|error| UsageError(error.to_string()))?;
    let mut config = overridden(config, &options)?;
    check::effective(&options, &config)?;
    if config.controller.is_none() {
        config.require.clear(); // this machine runs its own lanes
    }
    let assignment = plan::assignment(&options, &config, environment, entered)?;
    let mounts = assignment.contract == Contract::Legacy && plan::will_need_engine(&assignment, &config);
    if config.controller.is_none() && mounts {
        let private = [config.state_dir.clone()];
        agent::worktree::check_place(Path::new(&options.cwd), &private).map_err(|error| UsageError(chain(&error)))?;
    }
    if config.controller.is_some() && config.worktree == WorktreeWay::Snapshot {
        travel::check_state(&config, Path::new(&options.cwd)).map_err(|error| UsageError(chain(&error)))?;
    }
    let talk = if compatible { Talk::SILENT } else { Talk::new(options.own.verbose, options.own.quiet) };
    Ok(Some(Checked { options, config, assignment, talk, compatible }))
}

/// Flags win over the file.
fn overridden(mut config: Config, options: &Options) -> Result<Config, UsageError> {
    let own = options.own.clone();
    config.engine = own.engine.or(config.engine);
    config.state_dir = own.state_dir.unwrap_or(config.state_dir);
    config.worktree = own.worktree.unwrap_or(config.worktree);
    config.snapshot.history = own.history.unwrap_or(config.snapshot.history);
    config.snapshot.lfs = own.lfs.unwrap_or(config.snapshot.lfs);
    config.controller = place::controller(config.controller, own.controller, own.proof)?;
    Ok(config)
}

impl Checked {
    async fn run(mut self) -> Result<ExitCode, UsageError> {
        let mut latch = Latch::install().map_err(|error| UsageError(format!("signals cannot be handled: {error}")))?;
        let mut reservation = Reservation::take(&self.options)?;
        match canonical(&self.options) {
            Ok(canonical) => self.assignment.paths.canonical = canonical,
            Err(error) => {
                reservation.give_back();
                return Err(error);
            }
        }
        let progress = self.open_progress(&reservation);
        let settled = match self.attempt(&mut reservation, &mut latch, &progress).await {
            Ok(settled) => settled,
            Err(error) => {
                progress.finish(false).await;
                let (message, code) = match error {
                    Untaken::Usage(error) => {
                        reservation.give_back();
                        return Err(error);
                    }
                    Untaken::Full(message) => {
                        reservation.give_back();
                        (message, FULL)
                    }
                    Untaken::Shut(shut) => (shut.to_string(), SHUT),
                };
                output::line(&format!("error: {message}"));
                return Ok(ExitCode::from(code));
            }
        };
        progress.finish(settled.written).await;
        settled.print();
        tidy::in_background(&self.config);
        Ok(ExitCode::from(settled.exit_code()))
    }

    fn open_progress(&self, reservation: &Reservation) -> Reporter {
        let Some(file) = &reservation.progress else { return Reporter::off() };
        let assignment = &self.assignment;
        let receipt = Some(reservation.receipt.identity());
        let state = State::new(assignment.attempt.to_string(), assignment.provider, assignment.started_at, receipt);
        Reporter::open(file.path(), state, system_tokens())
    }

    /// Everything between the reservation and the files.
    async fn attempt(
        &mut self,
        reservation: &mut Reservation,
        latch: &mut Latch,
        progress: &Reporter,
    ) -> Result<Settled, Untaken> {
        let (output, receipt) = (&mut reservation.output, &mut reservation.receipt);
        if self.assignment.contract == Contract::Strict {
            return Ok(settle(strict(&self.assignment).to_value(), output, receipt));
        }
        match tokio::fs::read(&self.assignment.paths.prompt).await {
            Ok(prompt) => self.assignment.prompt = prompt,
            Err(error) => {
                let detail = format!("the prompt `{}` could not be read: {error}", self.assignment.paths.prompt);
                let failure = Failure { evidence: launcher_evidence(&error), detail, started: false };
                let failed = launcher_failure(&self.assignment, failure, latch);
                return Ok(settle(failed.to_value(), output, receipt));
            }
        }
        if !self.compatible {
            adopt::in_background(&self.config);
        }
        let refused = |error: &dyn std::error::Error| UsageError(chain(error));
        let engine = plan::will_need_engine(&self.assignment, &self.config) && latch.seen().is_none();
        let connection =
            connect::open(&self.config, engine, Adoption::Nothing).await.map_err(|error| refused(&error))?;
        if self.travels()
            && let Some(settled) = self.travel(&connection, (output, receipt), latch).await?
        {
            connection.close().await;
            return Ok(settled);
        }
        let attempt = self.assignment.attempt;
        let record = Record {
            attempt,
            pid: std::process::id(),
            background: false,
            execution_id: self.assignment.execution_id.clone(),
            controller: self.config.controller.as_ref().map(|address| address.url.clone()),
            proof: self.config.controller.as_ref().map(|address| address.proof.clone()).unwrap_or_default(),
            credential: self.config.controller.as_ref().and_then(|address| credential::digest(&address.proof)),
            output: FileRecord::of(output),
            receipt: FileRecord::of(receipt),
            assignment: Some(Box::new(self.assignment.to_remember())),
            on_lost_fail: self.options.own.on_lost == OnLost::Fail,
            worktree: self.worktree(),
        };
        let held = match self.remember(record).await {
            Ok(held) => held,
            Err(error) => {
                connection.close().await;
                return Err(refused(&error).into());
            }
        };
        fault::point("client", "recorded");
        let settled = self.submit_and_follow(&connection, (output, receipt), latch, progress).await;
        connection.close().await;
        let over = match &settled {
            Ok(settled) => settled.written,
            Err(error) => !matches!(error, Untaken::Shut(_)),
        };
        if over {
            held.forget();
        }
        settled
    }

    /// Before a controller hears of the attempt, its record outlasts a power cut. Embedded, a power cut ends the attempt too:
    /// nothing waits.
    async fn remember(&self, record: Record) -> Result<Held, RecordError> {
        let held = Records::of(&self.config.state_dir).hold(record)?;
        let durable = held.durable();
        if self.config.controller.is_some()
            && let Err(error) = durable.await
        {
            held.forget();
            return Err(error);
        }
        Ok(held)
    }

    /// With a controller the working directory travels, unless the worker sees it anyway.
    fn travels(&self) -> bool {
        self.config.controller.is_some() && self.config.worktree == WorktreeWay::Snapshot
    }

    /// Sends the working directory. A signal or the deadline ends that with a receipt.
    async fn travel(
        &mut self,
        connection: &Connection,
        files: (&mut reserve::Reserved, &mut reserve::Reserved),
        latch: &mut Latch,
    ) -> Result<Option<Settled>, Untaken> {
        let sending =
            travel::send(&self.config, connection.client(), &self.assignment, &self.options.own.refs, self.talk);
        let sent = tokio::select! {
            biased;
            _ = latch.first() => None,
            () = deadline(&self.assignment) => None,
            sent = sending => Some(sent),
        };
        match sent {
            Some(Ok(reference)) => {
                self.assignment.snapshot = Some(reference);
                Ok(None)
            }
            Some(Err(error)) if error.is_full() => Err(Untaken::Full(chain(&error))),
            Some(Err(error)) => Err(UsageError(chain(&error)).into()),
            None => {
                let detail = "the working directory was still on its way".to_owned();
                let failure = Failure { evidence: "Error".to_owned(), detail, started: false };
                let failed = launcher_failure(&self.assignment, failure, latch);
                Ok(Some(settle(failed.to_value(), files.0, files.1)))
            }
        }
    }

    /// Where a writer's result belongs.
    fn worktree(&self) -> Option<WorktreeRecord> {
        let snapshot = self.assignment.snapshot.clone().filter(|_| self.assignment.mode.writes())?;
        Some(WorktreeRecord { dir: self.assignment.paths.real_cwd(), snapshot })
    }

    async fn submit_and_follow(
        &self,
        connection: &Connection,
        files: (&mut reserve::Reserved, &mut reserve::Reserved),
        latch: &mut Latch,
        progress: &Reporter,
    ) -> Result<Settled, Untaken> {
        let attempt = self.assignment.attempt;
        let lane = connection.lane();
        let labels = self.config.require.iter().chain(&self.options.own.require);
        let labels = labels.map(|(name, value)| (name.clone(), value.clone())).collect();
        let submit = Submit { labels, ..Submit::new(self.assignment.clone()) };
        if let Err(error) = lane.submit(&submit).await {
            if let Some(worktree) = self.worktree().filter(|_| error.code().is_some()) {
                travel::let_go(&self.config, attempt, &worktree.snapshot);
            }
            if error.is(STORAGE_FULL) {
                return Err(Untaken::Full(chain(&error)));
            }
            if error.code().is_some() {
                return Err(UsageError(chain(&error)).into()); // an answer: it was not taken
            }
            tracing::error!(%attempt, error = %chain(&error), "whether it was taken is not known");
            let failed = unseen(&self.assignment, &Unseen::Call(error), latch);
            let settled = settle(failed.to_value(), files.0, files.1);
            report::later(&self.config, connection, attempt, &settled);
            return Ok(settled);
        }
        fault::point("client", "submitted");
        self.talk.say(&format!("attempt {attempt}; after a crash: laneyard attach {attempt}"));
        match drive(lane, attempt, latch, progress, (self.talk, self.options.own.on_lost)).await {
            Ok(ended) => {
                let by_worker = status_of(&ended.receipt);
                let ended = match &self.worktree() {
                    Some(worktree) => {
                        home::settle(&self.config, connection.client(), attempt, worktree, ended, self.talk).await?
                    }
                    None => ended,
                };
                let settled = deliver(lane, attempt, ended, files).await?;
                fault::point("client", "delivered");
                report(&self.config, connection, attempt, by_worker, &settled).await;
                Ok(settled)
            }
            Err(Unseen::Call(error)) if error.is_of_credential() => Err(Shut { attempt, reason: chain(&error) }.into()),
            Err(error) => {
                tracing::error!(%attempt, error = %chain(&error), "the attempt's end was not seen");
                let failed = unseen(&self.assignment, &error, latch);
                let settled = settle(failed.to_value(), files.0, files.1);
                match error {
                    // The controller is there, the worker is not.
                    Unseen::Lost(_) => report(&self.config, connection, attempt, None, &settled).await,
                    Unseen::Call(_) => report::later(&self.config, connection, attempt, &settled),
                }
                Ok(settled)
            }
        }
    }
}

/// Waits for the explicit deadline; for ever if there is none.
async fn deadline(assignment: &Assignment) {
    let Some(limit) = assignment.timeout() else { return std::future::pending().await };
    let spent = std::time::Duration::try_from(OffsetDateTime::now_utc() - assignment.started_at).unwrap_or_default();
    tokio::time::sleep(limit.saturating_sub(spent)).await;
}

/// The answer to a strict lane: nothing is launched (runner 8.3).
fn strict(assignment: &Assignment) -> Receipt {
    let error =
        ReceiptError { message: strict_reason(assignment.provider).to_owned(), evidence: STRICT_EVIDENCE.to_owned() };
    Receipt::not_started(assignment, Status::UnsupportedCapability, error, OffsetDateTime::now_utc())
}
