//! One step inside the container: started at most once, fed, watched to its end, ended early if need be.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::ending::Endings;
use super::journal::{Ending, Entry};
use super::place::{Change, Place, PlaceError};
use super::record::Record;
use crate::driver::{ChildExit, Stdin, Step, StepResult};
use crate::event::{Phase, Settled, SettledCause, SettledOutcome, StepRole, StepStatus};
use crate::supervisor::{
    End, Exit, Phase as ChildPhase, PutFile, Spools, Start, StdinMode, StepId, StepState, Streams,
};

/// Between the polite and the hard signal (runner section 9).
const GRACE: Duration = Duration::from_millis(1_000);

/// After KILL the kernel needs a moment to end a process; longer, and the container goes instead.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// A short step's output beyond this is not looked at.
const CAPTURE: u64 = 1 << 20;

/// The supervisor's own deadline follows ours after so long: it only matters while no agent is there.
const AWAY: Duration = Duration::from_secs(2);

/// A step to run.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub id: StepId,
    pub role: StepRole,
    pub phase: Phase,
    pub step: &'a Step,
    /// Bytes of stdout and stderr together.
    pub output_limit: u64,
}

/// How a step went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepEnd {
    pub exit: ChildExit,
    /// Set when we ended it, or stopped waiting for its pipes.
    pub ended: Option<Ended>,
    /// The operating system refused to start it: error number and text.
    pub not_started: Option<(i32, String)>,
    /// The spool could not be written (error number): output is missing.
    pub spool_errno: Option<i32>,
    /// Bytes that were read and dropped.
    pub dropped: u64,
}

/// An early end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub why: Ending,
    /// A signal really reached the running direct child.
    pub signalled: bool,
}

/// Why a step could not be seen through.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// The journal or a spool cannot be written.
    #[error("the attempt's record cannot be written")]
    Record(#[from] io::Error),
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Runs a step. `seen` is told how many bytes of each stream are in the spool.
///
/// # Errors
/// The record cannot be written, or the supervisor refuses what it should do.
pub(super) async fn run(
    record: &mut Record,
    place: &mut Place,
    endings: &mut Endings,
    plan: Plan<'_>,
    mut seen: impl FnMut(u64, u64),
) -> Result<StepEnd, StepError> {
    let mut feeding = None;
    begin(record, place, endings, &plan).await?;
    let mut told = None;
    let mut linger = Linger::default();
    let ended = loop {
        let Some(view) = place.step(&plan.id) else { break None };
        tell(record, place, &plan, &view, &mut told);
        seen(view.streams.stdout, view.streams.stderr);
        // The pipes may reach their end before the child's end is collected: both must be known.
        let over = match view.phase {
            ChildPhase::NotStarted { .. } => true,
            ChildPhase::Running { .. } => false,
            ChildPhase::Exited { .. } => view.drained,
        };
        if over || place.is_gone() {
            break None;
        }
        if view.limit_reached && matches!(view.phase, ChildPhase::Running { .. }) {
            break Some(end(record, place, &plan, Ending::OutputLimit).await?);
        }
        keep_feeding(place, &plan, &mut feeding);
        tokio::select! {
            biased;
            why = endings.wait() => break Some(end(record, place, &plan, why).await?),
            change = place.change() => {
                if matches!(change?, Change::Reconnected) {
                    feeding = None;
                }
            }
            // The child is over and somebody it left behind holds its pipes: the container is ours to end.
            () = linger.over(&view) => {
                place.kill_tree(GRACE).await;
            }
        }
    };
    if let Some(Feeding { task, .. }) = feeding {
        task.abort();
    }
    let view = place.step(&plan.id);
    if let Some(view) = &view {
        tell(record, place, &plan, view, &mut told);
        seen(view.streams.stdout, view.streams.stderr);
    }
    // A deadline that passed while the last bytes were drained still counts (runner section 9).
    let ended = ended.or_else(|| deadline_passed(endings, view.as_ref()));
    if let Some(ended) = ended {
        settle(record, &plan, ended);
    }
    Ok(result(view, ended))
}

/// What a short step printed, cut at 1 MiB a stream.
///
/// # Errors
/// A spool cannot be read.
pub(super) fn capture(record: &Record, id: &StepId, exit: ChildExit) -> io::Result<StepResult> {
    let read = |name: &str| {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        match std::fs::File::open(spool(record, id, name)) {
            Ok(file) => file.take(CAPTURE).read_to_end(&mut bytes).map(|_| bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(bytes),
            Err(error) => Err(error),
        }
    };
    Ok(StepResult { exit, stdout: read("out")?, stderr: read("err")? })
}

/// Path of a step's spool; `stream` is `out` or `err`.
#[must_use]
pub(super) fn spool(record: &Record, id: &StepId, stream: &str) -> PathBuf {
    record.dir().spool(&format!("{id}.{stream}"))
}

/// Starts the step unless the supervisor knows it already.
async fn begin(record: &mut Record, place: &mut Place, endings: &Endings, plan: &Plan<'_>) -> Result<(), StepError> {
    if place.step(&plan.id).is_some() || place.is_gone() {
        return Ok(());
    }
    for file in &plan.step.files {
        let put = PutFile { path: &file.path, mode: file.mode, dir_mode: 0o700, content: &file.content };
        place.put_file(put).await?;
    }
    record.enter(Entry::StepIntent { step: step_number(plan.role), role: plan.role })?;
    let start = Start {
        step: plan.id.clone(),
        argv: plan.step.argv.clone(),
        env: plan.step.environment.clone(),
        cwd: plan.step.cwd.clone(),
        stdin: match plan.step.stdin {
            Stdin::Null => StdinMode::Null,
            Stdin::Bytes(_) => StdinMode::Pipe,
        },
        output_limit: plan.output_limit,
        deadline_ms: endings.remaining().and_then(|left| u64::try_from((left + AWAY).as_millis()).ok()),
    };
    let (out, err) = (spool(record, &plan.id, "out"), spool(record, &plan.id, "err"));
    place.start(&start, || Ok(Spools { stdout: append_only(&out)?, stderr: append_only(&err)? })).await?;
    Ok(())
}

/// A place in the journal's numbering that stays the same whoever drives the attempt.
const fn step_number(role: StepRole) -> u32 {
    match role {
        StepRole::Probe => 1,
        StepRole::Preflight => 2,
        StepRole::Workload => 3,
        StepRole::Export => 4,
    }
}

fn append_only(path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(Into::into)
}

/// How long descendants of an ended child may still write: so long after their last byte, and so long in all.
const QUIET: Duration = Duration::from_secs(2);
const LINGER: Duration = Duration::from_secs(10);

/// The time since a direct child ended without its pipes reaching their end.
#[derive(Default)]
struct Linger {
    since: Option<Instant>,
    last: Option<(Streams, Instant)>,
}

impl Linger {
    /// Resolves when what the child left behind has had its time; never while the child runs.
    async fn over(&mut self, view: &StepState) {
        if !matches!(view.phase, ChildPhase::Exited { .. }) || view.drained {
            return std::future::pending().await;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let written = match self.last {
            Some((streams, at)) if streams == view.streams => at,
            _ => now,
        };
        self.last = Some((view.streams, written));
        tokio::time::sleep_until((written + QUIET).min(since + LINGER)).await;
        // Once more later, if they outlive the first try.
        self.since = Some(Instant::now());
        self.last = None;
    }
}

struct Feeding {
    task: JoinHandle<()>,
}

/// Feeds stdin on a task of its own, from the beginning after a reconnect: what was taken is skipped on the other side.
fn keep_feeding(place: &Place, plan: &Plan<'_>, feeding: &mut Option<Feeding>) {
    let Stdin::Bytes(input) = &plan.step.stdin else { return };
    if feeding.is_some() {
        return;
    }
    let Some(supervisor) = place.supervisor() else { return };
    let (id, input) = (plan.id.clone(), input.clone());
    let task = tokio::spawn(async move {
        match supervisor.write_all_stdin(&id, &input).await {
            Ok(()) => {}
            // A child may end, or close its stdin, without reading all of it.
            Err(error) if error.stdin_closed() => {}
            Err(error) => tracing::debug!(step = %id, %error, "stdin was not fed to its end"),
        }
    });
    *feeding = Some(Feeding { task });
}

/// Ends the direct child: the signal, a second, KILL. A child that is gone already gets nothing.
async fn end(record: &mut Record, place: &mut Place, plan: &Plan<'_>, why: Ending) -> Result<Ended, StepError> {
    record.enter(Entry::Ending { why, role: Some(plan.role) })?;
    if !running(place, &plan.id) {
        return Ok(Ended { why, signalled: false });
    }
    let signal = match why {
        Ending::Cancel { signal } => signal.number(),
        Ending::Deadline | Ending::OutputLimit => 15,
    };
    let signalled = place.signal(&plan.id, signal).await?;
    if !wait_for_exit(place, &plan.id, GRACE).await? {
        place.signal(&plan.id, 9).await?;
        if !wait_for_exit(place, &plan.id, AFTER_KILL).await? {
            tracing::warn!(step = %plan.id, "the child outlived KILL; its container goes next");
        }
    }
    Ok(Ended { why, signalled })
}

fn running(place: &Place, id: &StepId) -> bool {
    !place.is_gone() && place.step(id).is_some_and(|view| matches!(view.phase, ChildPhase::Running { .. }))
}

async fn wait_for_exit(place: &mut Place, id: &StepId, patience: Duration) -> Result<bool, StepError> {
    let until = Instant::now() + patience;
    while running(place, id) {
        match timeout_at(until, place.change()).await {
            Ok(change) => drop(change?),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// The deadline has passed although the step ended by itself (or was ended by the supervisor while we were away).
fn deadline_passed(endings: &Endings, view: Option<&StepState>) -> Option<Ended> {
    let signalled = matches!(view?.phase, ChildPhase::Exited { end: End { deadline: true, .. }, .. });
    let late = signalled || endings.remaining().is_some_and(|left| left.is_zero());
    late.then_some(Ended { why: Ending::Deadline, signalled })
}

/// Tells followers when the child's state changed.
fn tell(record: &mut Record, place: &Place, plan: &Plan<'_>, view: &StepState, told: &mut Option<StepStatus>) {
    let (pid, exit) = match &view.phase {
        ChildPhase::NotStarted { .. } => return,
        ChildPhase::Running { pid } => (*pid, None),
        ChildPhase::Exited { pid, end } => (*pid, Some(child_exit(end.exit))),
    };
    // Once it has ended, nobody can say which process it was here.
    let known = told.as_ref().map(|told| told.pid);
    let status = StepStatus {
        role: plan.role,
        pid: known.unwrap_or_else(|| place.host_pid(pid)),
        running: exit.is_none(),
        exit_code: exit.and_then(ChildExit::receipt_code),
        drained: view.drained,
    };
    if told.as_ref() != Some(&status) {
        record.step(plan.phase, status.clone());
        *told = Some(status);
    }
}

fn settle(record: &mut Record, plan: &Plan<'_>, ended: Ended) {
    let cause = match ended.why {
        Ending::Cancel { .. } => SettledCause::Cancel,
        Ending::Deadline => SettledCause::Deadline,
        Ending::OutputLimit => return,
    };
    let outcome = if ended.signalled { SettledOutcome::SignalledAndExited } else { SettledOutcome::AlreadyExited };
    record.settled(plan.phase, Settled { outcome, cause });
}

fn result(view: Option<StepState>, ended: Option<Ended>) -> StepEnd {
    let Some(view) = view else {
        return StepEnd { exit: ChildExit::Unknown, ended, not_started: None, spool_errno: None, dropped: 0 };
    };
    let (exit, not_started) = match view.phase {
        ChildPhase::NotStarted { errno, message } => (ChildExit::Unknown, Some((errno, message))),
        ChildPhase::Running { .. } => (ChildExit::Unknown, None),
        ChildPhase::Exited { end, .. } => (child_exit(end.exit), None),
    };
    StepEnd { exit, ended, not_started, spool_errno: view.spool_errno, dropped: view.streams.dropped }
}

const fn child_exit(exit: Exit) -> ChildExit {
    match exit {
        Exit::Code(code) => ChildExit::Code(code),
        Exit::Signal(signal) => ChildExit::Signal(signal),
    }
}
