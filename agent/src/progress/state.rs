//! What a snapshot says, and how it changes: pure (runner 7.1).

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::KIND;
use super::file::FileRef;
use crate::descriptor::Provider;
use crate::event::{Settled, SettledCause, SettledOutcome};
use crate::receipt::iso_millis;

/// Where the lane is, derived from the observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Setup,
    Preflight,
    PreflightRetryWait,
    WorkloadRunning,
    WorkloadDraining,
    Postprocess,
    Terminal,
}

impl Phase {
    /// All phases, in the order of a lane's life.
    pub const ALL: &'static [Self] = &[
        Self::Setup,
        Self::Preflight,
        Self::PreflightRetryWait,
        Self::WorkloadRunning,
        Self::WorkloadDraining,
        Self::Postprocess,
        Self::Terminal,
    ];

    /// The spelling in the snapshot.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Preflight => "preflight",
            Self::PreflightRetryWait => "preflight-retry-wait",
            Self::WorkloadRunning => "workload-running",
            Self::WorkloadDraining => "workload-draining",
            Self::Postprocess => "postprocess",
            Self::Terminal => "terminal",
        }
    }
}

/// Which direct child is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildRole {
    Preflight,
    Workload,
}

impl ChildRole {
    /// The spelling in the snapshot.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preflight => "preflight",
            Self::Workload => "workload",
        }
    }
}

/// A signal that asks a lane to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Int,
    Term,
}

impl Signal {
    /// `SIGINT` or `SIGTERM`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Int => "SIGINT",
            Self::Term => "SIGTERM",
        }
    }
}

/// Last observed state of the direct child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    pub role: ChildRole,
    pub pid: u64,
    pub start_token: Option<String>,
    pub running: bool,
    pub exit_code: Option<u64>,
    pub drained: bool,
}

/// The launcher is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminal {
    pub at: OffsetDateTime,
    pub receipt_written: bool,
}

/// Everything that was observed so far. Times have milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub attempt_id: String,
    pub provider: Provider,
    pub runner_pid: u64,
    pub started_at: OffsetDateTime,
    pub runner_token: Option<String>,
    pub child: Option<Child>,
    pub retry_wait: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub last_activity_at: Option<OffsetDateTime>,
    pub cancel: Option<(Signal, OffsetDateTime)>,
    pub settled: Option<(Settled, OffsetDateTime)>,
    pub terminal: Option<Terminal>,
    pub receipt: Option<FileRef>,
}

/// A snapshot as read: the state, and which write it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub seq: u64,
    /// As written.
    pub updated_at: String,
    /// As written, not derived again.
    pub phase: Phase,
    pub state: State,
}

/// Something that was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Spawned {
        role: ChildRole,
        pid: u64,
    },
    Exited {
        role: ChildRole,
        exit_code: Option<u64>,
    },
    Drained {
        role: ChildRole,
    },
    /// Totals so far, of the workload.
    Bytes {
        stdout: u64,
        stderr: u64,
    },
    RetryWait(bool),
    CancelRequested(Signal),
    ChildSettled(Settled),
    RunnerToken(String),
    ChildToken {
        pid: u64,
        token: String,
    },
    Terminal {
        receipt_written: bool,
    },
}

impl State {
    /// A lane that has just reserved its paths.
    #[must_use]
    pub fn new(attempt_id: String, provider: Provider, started_at: OffsetDateTime, receipt: Option<FileRef>) -> Self {
        Self {
            attempt_id,
            provider,
            runner_pid: u64::from(std::process::id()),
            started_at,
            runner_token: None,
            child: None,
            retry_wait: false,
            stdout_bytes: 0,
            stderr_bytes: 0,
            last_activity_at: None,
            cancel: None,
            settled: None,
            terminal: None,
            receipt,
        }
    }

    /// The phase that the observations add up to.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match &self.child {
            _ if self.terminal.is_some() => Phase::Terminal,
            _ if self.retry_wait => Phase::PreflightRetryWait,
            None => Phase::Setup,
            Some(Child { role: ChildRole::Preflight, .. }) => Phase::Preflight,
            Some(child) if child.running => Phase::WorkloadRunning,
            Some(child) if child.drained => Phase::Postprocess,
            Some(_) => Phase::WorkloadDraining,
        }
    }

    /// Takes a change in; false if it says nothing new: anything after the end, a second cancel, the exit of a child
    /// that was replaced.
    pub fn apply(&mut self, change: &Change, now: OffsetDateTime) -> bool {
        if self.terminal.is_some() {
            return false;
        }
        let before = self.clone();
        match change {
            Change::Spawned { role, pid } => {
                self.retry_wait = false;
                self.child = Some(Child {
                    role: *role,
                    pid: *pid,
                    start_token: None,
                    running: true,
                    exit_code: None,
                    drained: false,
                });
            }
            Change::Exited { role, exit_code } => {
                if let Some(child) = self.child.as_mut().filter(|child| child.role == *role && child.running) {
                    child.running = false;
                    child.exit_code = *exit_code;
                }
            }
            Change::Drained { role } => {
                if let Some(child) = self.child.as_mut().filter(|child| child.role == *role && !child.running) {
                    child.drained = true;
                }
            }
            Change::Bytes { stdout, stderr } => {
                let workload = self.child.as_ref().is_some_and(|child| child.role == ChildRole::Workload);
                if workload && (*stdout > self.stdout_bytes || *stderr > self.stderr_bytes) {
                    self.stdout_bytes = self.stdout_bytes.max(*stdout);
                    self.stderr_bytes = self.stderr_bytes.max(*stderr);
                    self.last_activity_at = Some(now);
                }
            }
            Change::RetryWait(on) => self.retry_wait = *on,
            Change::CancelRequested(signal) => {
                self.cancel.get_or_insert((*signal, now));
            }
            Change::ChildSettled(settled) => {
                if self.settled.map(|(known, _)| known) != Some(*settled) {
                    self.settled = Some((*settled, now));
                }
            }
            Change::RunnerToken(token) => self.runner_token = Some(token.clone()),
            Change::ChildToken { pid, token } => {
                if let Some(child) = self.child.as_mut().filter(|child| child.pid == *pid && child.running) {
                    child.start_token = Some(token.clone());
                }
            }
            Change::Terminal { receipt_written } => {
                self.terminal = Some(Terminal { at: now, receipt_written: *receipt_written });
            }
        }
        *self != before
    }

    /// The snapshot's compact JSON in its fixed key order.
    #[must_use]
    pub fn encode(&self, seq: u64, now: OffsetDateTime) -> String {
        let at = |time: &OffsetDateTime| iso_millis(*time);
        let child = self.child.as_ref().map(|child| {
            json!({"role": child.role.as_str(), "pid": child.pid, "startToken": child.start_token,
                "running": child.running, "exitCode": child.exit_code, "drained": child.drained})
        });
        let settled = self.settled.as_ref().map(|(settled, time)| {
            json!({"outcome": outcome_word(settled.outcome), "cause": cause_word(settled.cause), "at": at(time)})
        });
        let value: Value = json!({
            "schemaVersion": 1,
            "kind": KIND,
            "seq": seq,
            "updatedAt": iso_millis(now),
            "phase": self.phase().as_str(),
            "attemptId": self.attempt_id,
            "provider": self.provider,
            "runner": {"pid": self.runner_pid, "startedAt": at(&self.started_at), "startToken": self.runner_token},
            "child": child,
            "retryWait": self.retry_wait,
            "activity": {"stdoutBytes": self.stdout_bytes, "stderrBytes": self.stderr_bytes,
                "lastActivityAt": self.last_activity_at.as_ref().map(at)},
            "cancellation": {"requested":
                self.cancel.as_ref().map(|(signal, time)| json!({"signal": signal.as_str(), "at": at(time)}))},
            "childSettled": settled,
            "terminal": self.terminal.as_ref()
                .map(|end| json!({"at": at(&end.at), "receiptWritten": end.receipt_written})),
            "receiptRef": self.receipt.map(|file| json!({"dev": file.dev, "ino": file.ino})),
        });
        value.to_string()
    }
}

/// `signalled-and-exited` or `already-exited`.
pub(super) const fn outcome_word(outcome: SettledOutcome) -> &'static str {
    match outcome {
        SettledOutcome::SignalledAndExited => "signalled-and-exited",
        SettledOutcome::AlreadyExited => "already-exited",
    }
}

/// `cancel` or `deadline`.
pub(super) const fn cause_word(cause: SettledCause) -> &'static str {
    match cause {
        SettledCause::Cancel => "cancel",
        SettledCause::Deadline => "deadline",
    }
}
