//! Whether a process is the one that was seen before: its start time as `ps` tells it (runner 7.3). No shortcut through
//! `/proc`: the kernel's ticks and the time of boot round to another second now and then, and a token must be equal.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Longest time for one answer of `ps`.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest answer of `ps`, in bytes.
pub const PROBE_CAP: usize = 256;

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    Token(String),
    Absent,
    Unverified,
}

/// What a probe and a recorded token say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    Live,
    Absent,
    Reused,
    Unverified,
}

/// Compares a recorded token with what `probe` finds; without a token nothing is asked.
pub fn identity(pid: u64, recorded: Option<&str>, probe: &mut dyn FnMut(u64) -> Probe) -> Identity {
    let Some(recorded) = recorded else { return Identity::Unverified };
    match probe(pid) {
        Probe::Token(token) if token == recorded => Identity::Live,
        Probe::Token(_) => Identity::Reused,
        Probe::Absent => Identity::Absent,
        Probe::Unverified => Identity::Unverified,
    }
}

/// Asks `ps`, then signal 0. Waits at most [`PROBE_TIMEOUT`].
#[must_use]
pub fn system_probe(pid: u64) -> Probe {
    if let Some(token) = ps(pid) {
        return Probe::Token(token);
    }
    let Ok(raw) = i32::try_from(pid) else { return Probe::Absent };
    match kill(Pid::from_raw(raw), None) {
        Err(Errno::ESRCH) => Probe::Absent,
        _ => Probe::Unverified,
    }
}

fn ps(pid: u64) -> Option<String> {
    let mut child = Command::new("ps")
        .args(["-o", "lstart=", "-p", &pid.to_string()])
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let (send, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if stdout.take(PROBE_CAP as u64 + 1).read_to_end(&mut bytes).is_ok() {
            let _ = send.send(bytes);
        }
    });
    let deadline = Instant::now() + PROBE_TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                // Reaped, so that no zombie stays; the reader ends with the pipe.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let bytes = answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
    let token = String::from_utf8(bytes).ok()?.trim().to_owned();
    (status.success() && !token.is_empty() && token.len() <= PROBE_CAP).then_some(token)
}

/// The start token of a running process, without blocking anyone; `None` after [`PROBE_TIMEOUT`] or a strange answer.
pub async fn start_token(pid: u64) -> Option<String> {
    use tokio::io::AsyncReadExt as _;
    let mut child = tokio::process::Command::new("ps")
        .args(["-p", &pid.to_string(), "-o", "lstart="])
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let answer = async {
        let mut bytes = Vec::new();
        stdout.take(PROBE_CAP as u64 + 1).read_to_end(&mut bytes).await.ok()?;
        child.wait().await.ok()?.success().then_some(bytes)
    };
    let bytes = tokio::time::timeout(PROBE_TIMEOUT, answer).await.ok()??;
    let token = String::from_utf8(bytes).ok()?.trim().to_owned();
    (!token.is_empty() && super::decode::is_token(&token)).then_some(token)
}

/// True when the process lives in a process namespace below ours, as a container's does. A number that is only valid
/// inside a container names some other process here, and must not lend its token.
#[must_use]
pub fn is_contained(pid: u64) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .is_some_and(|numbers| numbers.split_ascii_whitespace().count() > 1)
}
