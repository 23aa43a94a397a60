//! The decision log: one JSON line when something is decided, one when a connection ends. Written before the decision
//! takes effect; what cannot be logged is refused.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::ids::AttemptId;

/// No new connections once the log has this size, in bytes: a lane must not fill the host's disk with refusals.
const SIZE_LIMIT: u64 = 64 << 20;

/// What a line reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum What {
    /// A connection was allowed; it has not been made yet.
    Open,
    /// A connection was refused; it has no further line.
    Refused,
    /// An allowed connection ended.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Allowed,
    Refused,
}

/// One line. Absent values are left out; sizes are bytes on the wire of the outer connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    #[serde(with = "time::serde::rfc3339")]
    pub(super) at: OffsetDateTime,
    pub(super) attempt: AttemptId,
    pub(super) event: What,
    /// Joins the lines of one connection; counts from 1 in each proxy process.
    pub(super) connection: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<u16>,
    pub(super) verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_up: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_down: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration_ms: Option<u64>,
}

/// What a request asked for, as far as it may be logged.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) method: Option<String>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
}

/// Bytes of one outer connection.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
}

pub(super) struct DecisionLog {
    attempt: AttemptId,
    file: Mutex<(File, u64)>,
    connections: AtomicU64,
}

impl DecisionLog {
    pub(super) fn open(path: &Path, attempt: AttemptId) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { attempt, file: Mutex::new((file, size)), connections: AtomicU64::new(0) })
    }

    /// A refusal. Best effort: it is refused either way.
    pub(super) fn refused(&self, asked: &Asked, reason: &str, address: Option<String>) {
        let line = Line { reason: Some(reason.to_owned()), address, ..self.line(asked, What::Refused) };
        let _ = self.append(&line, SIZE_LIMIT);
    }

    /// An allowed connection, before it is made. The value writes the closing line when it is dropped.
    ///
    /// # Errors
    /// The line could not be written, or the log is full: the connection must not be made.
    pub(super) fn opened(self: &Arc<Self>, asked: &Asked, address: String) -> io::Result<Opened> {
        let line = Line { address: Some(address), ..self.line(asked, What::Open) };
        self.append(&line, SIZE_LIMIT)?;
        Ok(Opened { log: Arc::clone(self), line, since: Instant::now(), counters: Arc::default() })
    }

    fn line(&self, asked: &Asked, event: What) -> Line {
        Line {
            at: OffsetDateTime::now_utc(),
            attempt: self.attempt,
            event,
            connection: self.connections.fetch_add(1, Ordering::Relaxed) + 1,
            method: asked.method.clone(),
            host: asked.host.clone(),
            port: asked.port,
            verdict: if event == What::Refused { Verdict::Refused } else { Verdict::Allowed },
            reason: None,
            address: None,
            bytes_up: None,
            bytes_down: None,
            duration_ms: None,
        }
    }

    fn append(&self, line: &Line, limit: u64) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, size) = &mut *guard;
        if *size + text.len() as u64 > limit {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the egress log is full"));
        }
        *size += text.len() as u64;
        file.write_all(&text)
    }
}

/// An allowed connection that has not ended yet.
pub(super) struct Opened {
    log: Arc<DecisionLog>,
    line: Line,
    since: Instant,
    pub(super) counters: Arc<Counters>,
}

impl Opened {
    /// The address that was really connected to.
    pub(super) fn connected(&mut self, address: String) {
        self.line.address = Some(address);
    }

    /// Why it ended, if it did not simply end.
    pub(super) fn because(&mut self, reason: &str) {
        self.line.reason = Some(reason.to_owned());
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.line.event = What::Close;
        self.line.at = OffsetDateTime::now_utc();
        self.line.bytes_up = Some(self.counters.up.load(Ordering::Relaxed));
        self.line.bytes_down = Some(self.counters.down.load(Ordering::Relaxed));
        self.line.duration_ms = Some(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX));
        // Closing lines have room beyond the limit: there are never more than open connections.
        let _ = self.log.append(&self.line, SIZE_LIMIT * 2);
    }
}
