//! One process that the agent asked for.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, ptr};

use laneyard_supervisor::protocol::{End, Exit, Phase, Start, StdinMode, StepId, StepState, Streams};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2, setsid};
use tokio::sync::mpsc;

use super::Input;
use super::feeder::Feeder;
use super::spool::{self, Counters, Stream};

/// Between the TERM and the KILL of a passed deadline (runner section 9).
const GRACE: Duration = Duration::from_secs(1);

/// Bytes a pipe holds, where the system allows: fewer wake-ups in a flood.
const PIPE: i32 = 256 << 10;

/// When the out-of-memory killer has to choose, it takes a step and not its supervisor.
const OOM_SCORE: &str = "500";

/// A step, from its start to the end of its output.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) id: StepId,
    pub(super) phase: Phase,
    pub(super) counters: Arc<Counters>,
    started: Instant,
    open_streams: u8,
    pub(super) limit_reported: bool,
    pub(super) failure_reported: bool,
    pub(super) reported: Streams,
    pub(super) feeder: Option<Feeder>,
    /// Requests whose bytes are not in the pipe yet.
    pub(super) feeding: Vec<Feeding>,
    pub(super) stdin_bytes: u64,
    pub(super) stdin_closed: bool,
    deadline: Option<Instant>,
    kill_at: Option<Instant>,
    by_deadline: bool,
}

/// Bytes of stdin that are on their way, and the request that waits for them.
#[derive(Debug)]
pub(super) struct Feeding {
    pub(super) piece: u64,
    pub(super) request: u64,
}

/// A process that runs.
struct Spawned {
    pid: u32,
    feeder: Option<Feeder>,
}

/// Why there is none.
type NotSpawned = (String, io::Error);

impl Step {
    /// Starts it, once and for all: a failure is final too.
    pub(super) fn launch(
        start: Start,
        spools: [OwnedFd; 2],
        index: usize,
        inputs: &mpsc::Sender<Input>,
        now: Instant,
    ) -> Self {
        let deadline = start.deadline_ms.and_then(|ms| now.checked_add(Duration::from_millis(ms)));
        let counters = Counters::new(start.output_limit);
        let (phase, feeder, open_streams) = match spawn(&start, spools, index, inputs, &counters) {
            Ok(Spawned { pid, feeder }) => (Phase::Running { pid }, feeder, 2),
            Err((what, error)) => {
                let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                (Phase::NotStarted { errno, message: format!("{what}: {error}") }, None, 0)
            }
        };
        Self {
            id: start.step,
            phase,
            counters,
            started: now,
            open_streams,
            limit_reported: false,
            failure_reported: false,
            reported: Streams::default(),
            feeder,
            feeding: Vec::new(),
            stdin_bytes: 0,
            stdin_closed: start.stdin == StdinMode::Null,
            deadline,
            kill_at: None,
            by_deadline: false,
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        match self.phase {
            Phase::Running { pid } => Some(pid),
            Phase::NotStarted { .. } | Phase::Exited { .. } => None,
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        self.open_streams == 0
    }

    /// One stream is at its end; true when it was the last one.
    pub(super) fn on_stream_end(&mut self) -> bool {
        let last = self.open_streams == 1;
        self.open_streams = self.open_streams.saturating_sub(1);
        last
    }

    pub(super) fn on_exit(&mut self, pid: u32, exit: Exit, now: Instant) -> End {
        let elapsed_ms = u64::try_from(now.duration_since(self.started).as_millis()).unwrap_or(u64::MAX);
        let end = End { exit, elapsed_ms, deadline: self.by_deadline };
        self.phase = Phase::Exited { pid, end };
        self.deadline = None;
        self.kill_at = None;
        self.feeder = None;
        self.stdin_closed = true;
        end
    }

    /// Signals the direct child, which has not been collected yet: the number is still its own.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        let pid = self.pid().ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let signal = Signal::try_from(signal)?;
        Ok(kill(Pid::from_raw(pid.cast_signed()), signal)?)
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.kill_at).min()
    }

    /// Carries out the deadline.
    pub(super) fn on_time(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.kill_at = now.checked_add(GRACE);
            self.by_deadline = self.signal(libc::SIGTERM).is_ok();
        }
        if self.kill_at.is_some_and(|kill_at| kill_at <= now) {
            self.kill_at = None;
            let _ = self.signal(libc::SIGKILL);
        }
    }

    pub(super) fn state(&self) -> StepState {
        StepState {
            step: self.id.clone(),
            phase: self.phase.clone(),
            streams: self.counters.streams(),
            drained: self.is_drained(),
            limit_reached: self.counters.limit_reached(),
            spool_errno: self.counters.errno(),
            stdin_bytes: self.stdin_bytes,
        }
    }
}

fn spawn(
    start: &Start,
    [stdout, stderr]: [OwnedFd; 2],
    index: usize,
    inputs: &mpsc::Sender<Input>,
    counters: &Arc<Counters>,
) -> Result<Spawned, NotSpawned> {
    let program = start.argv.first().filter(|program| program.starts_with('/'));
    let program = program.ok_or_else(|| ("executable".to_owned(), io::Error::from_raw_os_error(libc::EINVAL)))?;
    check_directory(&start.cwd).map_err(|error| (format!("working directory {}", start.cwd), error))?;
    let pipes = |error| ("pipes".to_owned(), error);
    let mut command = Command::new(program);
    command.args(&start.argv[1..]).env_clear().envs(&start.env).current_dir(&start.cwd);
    // The threads come first: a process that nobody reads must not exist.
    for (spool, which) in [(stdout, Stream::Stdout), (stderr, Stream::Stderr)] {
        let (read, write) = pipe().map_err(pipes)?;
        let _ = fcntl(&read, FcntlArg::F_SETPIPE_SZ(PIPE));
        spool::copy(read, spool, which, Arc::clone(counters), index, inputs.clone()).map_err(pipes)?;
        match which {
            Stream::Stdout => command.stdout(write),
            Stream::Stderr => command.stderr(write),
        };
    }
    let feeder = match start.stdin {
        StdinMode::Null => {
            command.stdin(Stdio::null());
            None
        }
        StdinMode::Pipe => {
            let (read, write) = pipe().map_err(pipes)?;
            command.stdin(read);
            Some(Feeder::new(write, index, inputs.clone()).map_err(pipes)?)
        }
    };
    // SAFETY: the closure only makes system calls, which are safe between fork and exec.
    unsafe { command.pre_exec(be_a_plain_process) };
    let child = command.spawn().map_err(|error| (format!("starting {program}"), error))?;
    let pid = child.id(); // its end is collected with that of all others, not through this handle
    let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), OOM_SCORE);
    Ok(Spawned { pid, feeder })
}

fn check_directory(cwd: &str) -> io::Result<()> {
    let errno = match fs::metadata(cwd)?.is_dir() {
        true if cwd.starts_with('/') => return Ok(()),
        true => libc::EINVAL,
        false => libc::ENOTDIR,
    };
    Err(io::Error::from_raw_os_error(errno))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe2(OFlag::O_CLOEXEC)?)
}

/// Own session, default signals, nothing inherited but the three standard descriptors.
fn be_a_plain_process() -> io::Result<()> {
    setsid()?;
    for signal in 1..=64 {
        // SAFETY: resets a disposition; the few signals that have none to reset answer with an error.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the set is initialised by sigemptyset before it is read.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    // SAFETY: marks descriptors to be closed by exec; an old kernel answers with an error, and they all are anyway.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Ok(())
}
