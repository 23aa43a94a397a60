//! What a reader may conclude from a progress file and a receipt (runner 7.3). Never that a quiet lane has failed.

use std::path::Path;

use super::decode::decode;
use super::file::{FileRef, Unreadable, read_bounded};
use super::probe::{Identity, Probe, identity};
use super::state::Snapshot;
use crate::receipt::{Status, status_of};

/// Largest snapshot that is read, in bytes.
const SNAPSHOT_LIMIT: u64 = 8_192;
/// Largest receipt that is read, in bytes.
const RECEIPT_LIMIT: u64 = 262_144;

/// One lane as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneView {
    /// The receipt is there.
    Terminal { status: Status, snapshot: Option<Box<Snapshot>> },
    /// The launcher that wrote the snapshot still runs.
    Active { snapshot: Box<Snapshot> },
    /// The launcher is gone, its number was given to another process if `reused`.
    Interrupted { reused: bool, child: ChildVerdict, snapshot: Box<Snapshot> },
    /// Nothing can be said.
    Unknown { reason: UnknownReason, snapshot: Option<Box<Snapshot>> },
}

/// Why nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownReason {
    /// The receipt is reserved, there is no snapshot.
    NotStarted,
    /// The snapshot cannot be used, or neither file exists.
    Snapshot(Unreadable),
    TerminalWithoutReceipt {
        receipt_written: bool,
    },
    LauncherUnverified,
}

impl UnknownReason {
    /// The reason's spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "not-started",
            Self::Snapshot(why) => why.as_str(),
            Self::TerminalWithoutReceipt { .. } => "terminal-without-receipt",
            Self::LauncherUnverified => "launcher-unverified",
        }
    }
}

/// What became of an interrupted lane's direct child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildVerdict {
    None,
    Exited,
    PossiblyRunning,
    Gone,
    Reused,
    Unverified,
}

impl ChildVerdict {
    /// The verdict's spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exited => "exited",
            Self::PossiblyRunning => "possibly-running",
            Self::Gone => "gone",
            Self::Reused => "reused",
            Self::Unverified => "unverified",
        }
    }
}

struct ReceiptView {
    status: Option<Status>,
    exists: bool,
}

fn read_receipt(path: &Path, only: Option<FileRef>) -> ReceiptView {
    match read_bounded(path, RECEIPT_LIMIT, only) {
        Ok(text) => {
            let document = serde_json::from_str(&text).ok();
            ReceiptView { status: document.as_ref().and_then(status_of), exists: true }
        }
        Err(why) => ReceiptView { status: None, exists: why != Unreadable::Missing },
    }
}

fn read_snapshot(path: &Path) -> Result<Snapshot, Unreadable> {
    decode(&read_bounded(path, SNAPSHOT_LIMIT, None)?).ok_or(Unreadable::Undecodable)
}

/// Reads both files and asks `probe` about the launcher where they leave that open. Changes nothing.
pub fn lane_view(progress: &Path, receipt: &Path, probe: &mut dyn FnMut(u64) -> Probe) -> LaneView {
    let read = read_snapshot(progress);
    let only = read.as_ref().ok().and_then(|snapshot| snapshot.state.receipt);
    let seen = read_receipt(receipt, only);
    if let Some(status) = seen.status {
        return LaneView::Terminal { status, snapshot: read.ok().map(Box::new) };
    }
    let snapshot = match read {
        Ok(snapshot) => snapshot,
        Err(Unreadable::Missing) if seen.exists => {
            return LaneView::Unknown { reason: UnknownReason::NotStarted, snapshot: None };
        }
        Err(why) => return LaneView::Unknown { reason: UnknownReason::Snapshot(why), snapshot: None },
    };
    if let Some(view) = finished(&snapshot) {
        return view;
    }
    let runner = &snapshot.state;
    match identity(runner.runner_pid, runner.runner_token.as_deref(), probe) {
        Identity::Live => LaneView::Active { snapshot: Box::new(snapshot) },
        Identity::Unverified => {
            LaneView::Unknown { reason: UnknownReason::LauncherUnverified, snapshot: Some(Box::new(snapshot)) }
        }
        Identity::Absent => gone(progress, receipt, snapshot, false, probe),
        Identity::Reused => gone(progress, receipt, snapshot, true, probe),
    }
}

fn finished(snapshot: &Snapshot) -> Option<LaneView> {
    let end = snapshot.state.terminal.as_ref()?;
    let reason = UnknownReason::TerminalWithoutReceipt { receipt_written: end.receipt_written };
    Some(LaneView::Unknown { reason, snapshot: Some(Box::new(snapshot.clone())) })
}

/// The launcher is not there: it may have finished between the first reads and the probe, so both files are read again.
fn gone(
    progress: &Path,
    receipt: &Path,
    seen: Snapshot,
    reused: bool,
    probe: &mut dyn FnMut(u64) -> Probe,
) -> LaneView {
    let again = read_snapshot(progress).ok().filter(|again| again.state.attempt_id == seen.state.attempt_id);
    let snapshot = again.unwrap_or(seen);
    if let Some(status) = read_receipt(receipt, snapshot.state.receipt).status {
        return LaneView::Terminal { status, snapshot: Some(Box::new(snapshot)) };
    }
    if let Some(view) = finished(&snapshot) {
        return view;
    }
    let child = match &snapshot.state.child {
        None => ChildVerdict::None,
        Some(child) if !child.running => ChildVerdict::Exited,
        Some(child) => match identity(child.pid, child.start_token.as_deref(), probe) {
            Identity::Live => ChildVerdict::PossiblyRunning,
            Identity::Absent => ChildVerdict::Gone,
            Identity::Reused => ChildVerdict::Reused,
            Identity::Unverified => ChildVerdict::Unverified,
        },
    };
    LaneView::Interrupted { reused, child, snapshot: Box::new(snapshot) }
}
