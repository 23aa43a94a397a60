//! The agent's socket in the run directory of an attempt.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use laneyard_supervisor::frame::Decoder;
use laneyard_supervisor::protocol::{AGENT_SOCKET, Hello, PROTOCOL, Report};
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use super::connection::{self, Notices};
use super::{Supervisor, SupervisorError, Token};

/// A caller that has not introduced itself by then is dropped.
const INTRODUCTION: Duration = Duration::from_secs(5);

/// Callers that may be introducing themselves at a time; the provider can reach the socket too.
const WAITING_ROOM: usize = 16;

/// Waits for the supervisor of one attempt.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    token: Token,
    peer: Option<i32>,
}

impl Listener {
    /// Listens at `agent.sock` in `run_dir`, in place of a socket that an earlier agent left there. Every local user
    /// may connect, as the container's user is not ours: keep `run_dir` inside a private directory.
    ///
    /// # Errors
    /// [`SupervisorError::Listen`].
    pub fn bind(run_dir: &Path, token: Token) -> Result<Self, SupervisorError> {
        let path = run_dir.join(AGENT_SOCKET);
        let socket = bind_in_place(run_dir, &path).map_err(|source| SupervisorError::Listen { path, source })?;
        Ok(Self { socket, token, peer: None })
    }

    /// From now on only this process (the container's first one, as the engine names it) is let in.
    pub fn expect_peer(&mut self, pid: i32) {
        self.peer = Some(pid);
    }

    /// The next call of the supervisor. Cancel safe: a call that was not taken is made again.
    ///
    /// # Errors
    /// [`SupervisorError::NoCall`] after `patience`, [`SupervisorError::Version`], [`SupervisorError::Listen`].
    pub async fn accept(&self, patience: Duration) -> Result<(Supervisor, Notices), SupervisorError> {
        let until = Instant::now() + patience;
        let mut introductions = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(until) => return Err(SupervisorError::NoCall { waited: patience }),
                Some(introduced) = introductions.join_next() => {
                    if let Ok(Some((stream, hello, rest))) = introduced {
                        return admit(stream, hello, rest);
                    }
                }
                call = self.socket.accept(), if introductions.len() < WAITING_ROOM => match call {
                    Ok((stream, _)) if self.is_expected(&stream) => {
                        let token = self.token.clone();
                        introductions.spawn(async move { timeout(INTRODUCTION, introduce(stream, &token)).await.ok()? });
                    }
                    Ok(_) => debug!("dropped a caller that is not the supervisor"),
                    Err(error) => {
                        debug!(%error, "accept failed"); // out of descriptors: do not spin
                        let _ = timeout_at(until, tokio::time::sleep(Duration::from_millis(50))).await;
                    }
                },
            }
        }
    }

    fn is_expected(&self, stream: &UnixStream) -> bool {
        match (self.peer, stream.peer_cred()) {
            (None, _) => true,
            (Some(expected), Ok(peer)) => peer.pid() == Some(expected),
            (Some(_), Err(_)) => false,
        }
    }
}

fn admit(stream: UnixStream, hello: Hello, rest: Decoder) -> Result<(Supervisor, Notices), SupervisorError> {
    if hello.protocol == PROTOCOL {
        Ok(connection::open(stream, hello, rest))
    } else {
        Err(SupervisorError::Version { spoken: hello.protocol, ours: PROTOCOL })
    }
}

/// Reads the first frame and checks the token.
async fn introduce(mut stream: UnixStream, token: &Token) -> Option<(UnixStream, Hello, Decoder)> {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        match decoder.next_frame() {
            Ok(Some(Report::Hello { token: shown, hello })) if token.matches(&shown) => {
                return Some((stream, hello, decoder));
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return None,
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => decoder.push(&buffer[..n]),
        }
    }
}

/// Binds under another name and renames, so that nobody meets a socket with the wrong mode.
fn bind_in_place(run_dir: &Path, path: &Path) -> io::Result<UnixListener> {
    let temporary = format!(".{AGENT_SOCKET}.{}", std::process::id());
    let staged = run_dir.join(&temporary);
    if let Err(error) = fs::remove_file(&staged)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let socket = bind_however_deep(run_dir, &temporary)?;
    fs::set_permissions(&staged, Permissions::from_mode(0o666))?;
    fs::rename(&staged, path)?;
    Ok(socket)
}

/// A socket's address holds 107 bytes; a deeper directory is reached through its descriptor.
fn bind_however_deep(dir: &Path, name: &str) -> io::Result<UnixListener> {
    use std::os::fd::AsRawFd as _;
    let direct = dir.join(name);
    if direct.as_os_str().len() <= 100 {
        return UnixListener::bind(direct);
    }
    let handle = fs::File::open(dir)?;
    UnixListener::bind(PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd())).join(name))
}
