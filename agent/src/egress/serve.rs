//! The proxy process: start, listen, know when it is over.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::dial::Policy;
use super::identity::ProcessIdentity;
use super::log::{Asked, DecisionLog};
use super::process::{pid_path, socket_path};
use super::proxy::{Shared, answer};
use super::spec::EgressSpec;

/// Most client connections at a time.
const CONNECTIONS: usize = 512;
/// Most bytes and fields of a request's head.
const HEAD_BYTES: usize = 64 << 10;
const HEAD_FIELDS: usize = 128;
/// Time for a request's head, from the start of the connection.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// How often the process asks itself whether it is still wanted.
const TICK: Duration = Duration::from_secs(2);
/// Time for the closing lines of open connections at the end.
const END_LIMIT: Duration = Duration::from_millis(500);

/// Entry of the proxy process: both binaries call it when their first argument is [`super::ENTRY`], before anything else.
/// The spec comes by stdin; `ready` or one line of error goes to stdout, which is then closed.
pub fn main(_arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stdout(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<()> {
    // An own session: no terminal and no process group of the starter reaches it. Fails only for a group leader.
    let _ = nix::unistd::setsid();
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let mut config = Vec::new();
    io::stdin().read_to_end(&mut config).context("could not read the configuration")?;
    let spec: EgressSpec = serde_json::from_slice(&config).context("the configuration is not valid")?;
    drop(config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(Duration::from_secs(1))
        .build()
        .context("could not start the runtime")?;
    runtime.block_on(run(spec))?;
    runtime.shutdown_background(); // a resolver's answer may still be out
    Ok(())
}

async fn run(spec: EgressSpec) -> anyhow::Result<()> {
    let socket = socket_path(&spec.run_dir);
    let log = DecisionLog::open(&spec.log, spec.attempt)
        .with_context(|| format!("could not open the log `{}`", spec.log.display()))?;
    let mut term = signal(SignalKind::terminate())?;
    let _ignored = (signal(SignalKind::hangup())?, signal(SignalKind::interrupt())?);
    let listener = listen(&socket).await?;
    write_pid_file(&spec.run_dir)?;
    raise_open_files();
    io::stdout().write_all(b"ready\n").context("could not report")?;
    close_stdio()?;

    let shared = Arc::new(Shared {
        policy: Policy::new(&spec),
        log: Arc::new(log),
        ending: tokio_util::sync::CancellationToken::new(),
        tasks: tokio_util::task::TaskTracker::new(),
    });
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut life = Life::new(spec, &socket);
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    life.used();
                    accept(&shared, &slots, stream);
                }
                // Out of descriptors: those in use will be given back.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            _ = term.recv() => break,
            _ = tick.tick() => if life.is_over(slots.available_permits() == CONNECTIONS) { break },
        }
    }
    shared.ending.cancel();
    shared.tasks.close();
    let _ = tokio::time::timeout(END_LIMIT, shared.tasks.wait()).await;
    life.remove_own_files(&socket);
    Ok(())
}

fn accept(shared: &Arc<Shared>, slots: &Arc<Semaphore>, stream: UnixStream) {
    let Ok(slot) = Arc::clone(slots).try_acquire_owned() else {
        shared.log.refused(&Asked::default(), "too-many-connections", None);
        let _ = stream.try_write(b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        return;
    };
    let (slot, task) = (Arc::new(slot), Arc::clone(shared));
    shared.tasks.spawn(async move {
        let service = {
            let shared = Arc::clone(&task);
            service_fn(move |request| answer(Arc::clone(&shared), Arc::clone(&slot), request))
        };
        let connection = hyper::server::conn::http1::Builder::new()
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEAD_FIELDS)
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        tokio::select! {
            done = connection => {
                // hyper has answered 400, 414 or 431 by itself.
                if done.is_err_and(|error| error.is_parse() || error.is_parse_too_large()) {
                    task.log.refused(&Asked::default(), "malformed-request", None);
                }
            }
            () = task.ending.cancelled() => {}
        }
    });
}

/// Decides when nobody needs the proxy any more (see the module's head).
struct Life {
    spec: EgressSpec,
    identity: Option<(u64, u64)>,
    used: Instant,
}

impl Life {
    fn new(spec: EgressSpec, socket: &Path) -> Self {
        Self { spec, identity: identity_of(socket), used: Instant::now() }
    }

    fn used(&mut self) {
        self.used = Instant::now();
    }

    fn is_over(&mut self, idle: bool) -> bool {
        if !idle {
            self.used();
        }
        let receipt = self.spec.over_when.as_deref().and_then(|path| fs::metadata(path).ok());
        let socket = identity_of(&socket_path(&self.spec.run_dir));
        // A socket that was gone before it was ever looked at is gone all the same.
        socket.is_none()
            || socket != self.identity
            || receipt.is_some_and(|file| file.len() > 0)
            || self.used.elapsed() >= self.spec.idle_limit
    }

    /// Another proxy may have taken the place: only its own files are removed.
    fn remove_own_files(&self, socket: &Path) {
        if identity_of(socket) == self.identity {
            let _ = fs::remove_file(socket);
            let _ = fs::remove_file(pid_path(&self.spec.run_dir));
        }
    }
}

fn identity_of(socket: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(socket).ok().map(|file| (file.dev(), file.ino()))
}

async fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    let name = socket.display();
    if socket.exists() {
        // Left by a proxy that was killed, unless somebody answers.
        let answered = UnixStream::connect(socket).await.is_ok();
        anyhow::ensure!(!answered, "another proxy serves `{name}`");
        fs::remove_file(socket).with_context(|| format!("could not remove the old socket `{name}`"))?;
    }
    let listener = UnixListener::bind(socket).with_context(|| format!("could not listen on `{name}`"))?;
    // The container's user may be any; the directory keeps the host's other users out.
    fs::set_permissions(socket, Permissions::from_mode(0o666))
        .with_context(|| format!("could not open up the socket `{name}`"))?;
    Ok(listener)
}

fn write_pid_file(run_dir: &Path) -> anyhow::Result<()> {
    let own = ProcessIdentity::of(std::process::id().cast_signed()).context("could not read the own start time")?;
    let path = pid_path(run_dir);
    let mut file = tempfile::NamedTempFile::new_in(run_dir)
        .with_context(|| format!("could not write in `{}`", run_dir.display()))?;
    file.write_all(&serde_json::to_vec(&own)?)?;
    file.persist(&path).with_context(|| format!("could not write `{}`", path.display()))?;
    Ok(())
}

fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // Best effort: with the usual soft limit of 1024 it does as well.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(4096), hard);
    }
}

/// The starter sees the end of stdout and lets go.
fn close_stdio() -> anyhow::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null").context("could not open /dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    Ok(())
}
