//! A proxy process with its directories, and small servers and clients around it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::egress::{self, Allow, EgressHandle, EgressSpec};
use agent::ids::AttemptId;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::time::timeout;

/// No step of these tests takes long.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) handle: EgressHandle,
}

pub(crate) fn spec_in(dir: &Path) -> EgressSpec {
    let run_dir = dir.join("run");
    std::fs::create_dir_all(&run_dir).unwrap();
    let mut spec = EgressSpec::new(AttemptId::generate(), run_dir, dir.join("egress.jsonl"));
    spec.program = Some(env!("CARGO_BIN_EXE_laneyard-agent").into());
    spec
}

impl World {
    pub(crate) async fn start(configure: impl FnOnce(&mut EgressSpec)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = spec_in(dir.path());
        configure(&mut spec);
        let handle = egress::spawn(&spec).await.unwrap();
        Self { dir, handle }
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.dir.path().join("egress.jsonl")
    }

    /// Ends the proxy, so that its log is complete, and reads it.
    pub(crate) async fn log(&self) -> Vec<Value> {
        let _ = self.handle.stop(LIMIT).await.unwrap();
        let text = std::fs::read_to_string(self.log_path()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) async fn dial(&self) -> UnixStream {
        UnixStream::connect(self.handle.socket()).await.unwrap()
    }

    /// Sends a whole request and reads the answer to its end.
    pub(crate) async fn ask(&self, request: &str) -> String {
        let mut stream = self.dial().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("no answer in time").unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// Opens a tunnel, which must be allowed.
    pub(crate) async fn tunnel(&self, target: &str) -> UnixStream {
        let mut stream = self.dial().await;
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.handle.is_alive() {
            let pid = nix::unistd::Pid::from_raw(self.handle.pid());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// Reads up to the empty line, byte by byte.
pub(crate) async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(LIMIT, stream.read_u8()).await.expect("no head in time").expect("closed before its head"));
    }
    String::from_utf8(head).unwrap()
}

/// Reads exactly this text.
pub(crate) async fn expect_text(stream: &mut (impl tokio::io::AsyncRead + Unpin), text: &str) {
    let mut found = vec![0; text.len()];
    let read = timeout(LIMIT, stream.read_exact(&mut found)).await.unwrap_or_else(|_| panic!("no `{text}` in time"));
    read.unwrap_or_else(|error| panic!("`{text}`: {error}"));
    assert_eq!(String::from_utf8_lossy(&found), text);
}

pub(crate) async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

pub(crate) fn trusted(port: u16) -> Allow {
    Allow::endpoint(&format!("http://127.0.0.1:{port}/v1")).unwrap()
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
