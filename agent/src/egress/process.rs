//! Starting, finding and ending the proxy process from outside.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::identity::ProcessIdentity;
use super::spec::EgressSpec;

/// Longest path of a unix socket, in bytes.
pub(super) const SOCKET_PATH_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// Time a new proxy has to say that it listens. It takes some milliseconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(15);

/// The proxy could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error(
        "the egress socket `{path}` would have a path of {bytes} bytes, the system's limit is {SOCKET_PATH_LIMIT}; \
         use a shorter state directory"
    )]
    PathTooLong { path: PathBuf, bytes: usize },
    #[error("could not start the egress proxy from `{program}`")]
    Start { program: PathBuf, source: io::Error },
    #[error("the egress proxy could not start: {message}")]
    Refused { message: String },
    #[error("the egress proxy said nothing within {} seconds of its start", START_LIMIT.as_secs())]
    Silent,
    #[error("could not end the egress proxy, process {pid}")]
    Stop { pid: i32, source: io::Error },
}

/// A running proxy. Dropping the handle ends nothing: the process is meant to outlive the one that started it.
#[derive(Clone, Debug)]
pub struct EgressHandle {
    run_dir: PathBuf,
    identity: ProcessIdentity,
}

/// How a proxy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// It was gone already.
    ByItself,
    AfterTerm,
    AfterKill,
}

pub(super) fn socket_path(run_dir: &Path) -> PathBuf {
    run_dir.join("egress.sock")
}

pub(super) fn pid_path(run_dir: &Path) -> PathBuf {
    run_dir.join("egress.pid")
}

/// Starts the proxy of one attempt; returns once it listens.
///
/// # Errors
/// A socket path over the system's limit, a program that cannot be started, or what the proxy itself said: a run directory
/// or log that cannot be written, a socket that another proxy serves.
pub async fn spawn(spec: &EgressSpec) -> Result<EgressHandle, EgressError> {
    let socket = socket_path(&spec.run_dir);
    let bytes = socket.as_os_str().as_bytes().len();
    if bytes > SOCKET_PATH_LIMIT {
        return Err(EgressError::PathTooLong { path: socket, bytes });
    }
    let program = spec.program.clone().map_or_else(own_program, Ok);
    let program = program.map_err(|source| EgressError::Start { program: "current executable".into(), source })?;
    let failed = |source| EgressError::Start { program: program.clone(), source };
    let mut command = tokio::process::Command::new(&program);
    command
        .arg(super::ENTRY)
        .arg(spec.attempt.to_string()) // for people who read process lists
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // Whoever starts a process stands still until its program is loaded, some milliseconds for one of our size.
    let child = tokio::task::spawn_blocking(move || command.spawn()).await;
    let mut child = child.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(failed)?;
    let exchange = async {
        let config = serde_json::to_vec(spec).map_err(io::Error::other)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A child that ended early explains itself on stdout.
            let _ = stdin.write_all(&config).await;
        }
        let mut answer = String::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(4096).read_to_string(&mut answer).await?;
        }
        Ok(answer)
    };
    let answer = match timeout(START_LIMIT, exchange).await {
        Ok(answer) => answer.map_err(failed)?,
        Err(_) => {
            let _ = child.start_kill();
            return Err(EgressError::Silent);
        }
    };
    match answer.trim_end() {
        "ready" => find(&spec.run_dir)
            .ok_or_else(|| EgressError::Refused { message: "it ended right after its start".to_owned() }),
        "" => Err(EgressError::Refused {
            message: format!("`{}` ended without a word; is it a laneyard program?", program.display()),
        }),
        message => Err(EgressError::Refused { message: message.to_owned() }),
    }
}

/// The proxy that serves this run directory, whoever started it; `None` if it is not running.
#[must_use]
pub fn find(run_dir: &Path) -> Option<EgressHandle> {
    let text = std::fs::read(pid_path(run_dir)).ok()?;
    let identity: ProcessIdentity = serde_json::from_slice(&text).ok()?;
    (identity.is_alive() && socket_path(run_dir).exists())
        .then(|| EgressHandle { run_dir: run_dir.to_owned(), identity })
}

/// Finds the attempt's proxy or starts it.
///
/// # Errors
/// As [`spawn`].
pub async fn ensure(spec: &EgressSpec) -> Result<EgressHandle, EgressError> {
    match find(&spec.run_dir) {
        Some(handle) => Ok(handle),
        None => spawn(spec).await,
    }
}

impl EgressHandle {
    /// The socket that goes into the container.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket_path(&self.run_dir)
    }

    /// Number of the process.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.identity.pid
    }

    /// True while exactly this process runs; a later process with its number does not count.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.identity.is_alive()
    }

    /// Asks the proxy to end, cuts it off after `grace`, and removes what it left. Its log is complete afterwards, unless
    /// it had to be killed.
    ///
    /// # Errors
    /// The signal is refused, or the process survives it.
    pub async fn stop(&self, grace: Duration) -> Result<Stopped, EgressError> {
        let stopped = if !self.is_alive() {
            Stopped::ByItself
        } else if self.signal_and_wait(Signal::SIGTERM, grace).await? {
            Stopped::AfterTerm
        } else if self.signal_and_wait(Signal::SIGKILL, Duration::from_secs(5)).await? {
            Stopped::AfterKill
        } else {
            return Err(EgressError::Stop { pid: self.pid(), source: io::ErrorKind::TimedOut.into() });
        };
        // Only what this process left: another proxy may serve the directory by now.
        if find(&self.run_dir).is_none() {
            let _ = std::fs::remove_file(self.socket());
            let _ = std::fs::remove_file(pid_path(&self.run_dir));
        }
        Ok(stopped)
    }

    /// True if the process was gone before `limit`.
    async fn signal_and_wait(&self, signal: Signal, limit: Duration) -> Result<bool, EgressError> {
        let deadline = Instant::now() + limit;
        if self.is_alive() {
            match kill(Pid::from_raw(self.pid()), signal) {
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(error) => return Err(EgressError::Stop { pid: self.pid(), source: error.into() }),
            }
        }
        while self.is_alive() {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(true)
    }
}

/// On Linux the link works even after an update replaced the program's file.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}
