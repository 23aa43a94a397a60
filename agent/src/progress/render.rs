//! A lane's verdict as a line, a change key and JSON (runner 7.4, 7.5).

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::file::Unreadable;
use super::state::{Snapshot, cause_word, outcome_word};
use super::verdict::{ChildVerdict, LaneView, UnknownReason};
use crate::event::SettledOutcome;
use crate::receipt::{Status, iso_millis};

const QUIET: &str = "backend progress unknown; quiet is not failure";
const DESCENDANTS: &str = "descendants not verified";
const NO_VERDICT: &str = "not a failure verdict";

/// What a person and a watching program see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Without the lane's label.
    pub line: String,
    /// Equal as long as nothing but time and bytes changed; without the attempt's id.
    pub change_key: String,
}

impl LaneView {
    /// `terminal`, `unknown`, `interrupted` or `active`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Terminal { .. } => "terminal",
            Self::Unknown { .. } => "unknown",
            Self::Interrupted { .. } => "interrupted",
            Self::Active { .. } => "active",
        }
    }

    /// The snapshot behind the verdict.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Self::Terminal { snapshot, .. } | Self::Unknown { snapshot, .. } => snapshot.as_deref(),
            Self::Interrupted { snapshot, .. } | Self::Active { snapshot } => Some(snapshot),
        }
    }
}

fn millis(from: OffsetDateTime, to: OffsetDateTime) -> i64 {
    i64::try_from((to - from).whole_milliseconds()).unwrap_or(i64::MAX)
}

fn duration(ms: i64) -> String {
    let seconds = (ms.max(0) + 500) / 1_000;
    let (hours, minutes, rest) = (seconds / 3_600, seconds % 3_600 / 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest:02}s"),
        _ => format!("{hours}h{minutes:02}m"),
    }
}

fn bytes(count: u64) -> String {
    const KB: u64 = 1 << 10;
    const MB: u64 = 1 << 20;
    match count {
        MB.. => format!("{} MB", (count + MB / 2) / MB),
        KB.. => format!("{} KB", (count + KB / 2) / KB),
        _ => format!("{count} B"),
    }
}

/// Fields of a change key: missing ones are empty.
fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// The line and the change key of one lane.
#[must_use]
pub fn render(view: &LaneView, now: OffsetDateTime) -> Rendered {
    let (parts, joint, key) = match view {
        LaneView::Terminal { status, snapshot } => terminal(*status, snapshot.as_deref()),
        LaneView::Unknown { reason, snapshot } => unknown(*reason, snapshot.as_deref(), now),
        LaneView::Interrupted { reused, child, snapshot } => interrupted(*reused, *child, snapshot),
        LaneView::Active { snapshot } => active(snapshot, now),
    };
    let mut fields = vec![view.kind().to_owned()];
    fields.extend(key);
    Rendered { line: parts.join(joint), change_key: fields.join("|") }
}

type Pieces = (Vec<String>, &'static str, Vec<String>);

fn settled_outcome(snapshot: Option<&Snapshot>) -> String {
    text(snapshot.and_then(|s| s.state.settled).map(|(settled, _)| outcome_word(settled.outcome)))
}

fn terminal(status: Status, snapshot: Option<&Snapshot>) -> Pieces {
    let mut parts = vec![format!("terminal {} (from receipt)", status.as_str())];
    if let Some(Snapshot { state, .. }) = snapshot {
        parts.push(state.terminal.as_ref().map_or_else(
            || "elapsed unknown".to_owned(),
            |end| format!("elapsed {}", duration(millis(state.started_at, end.at))),
        ));
        if status == Status::Cancelled {
            let ended = state.terminal.is_some();
            parts.push(
                match &state.child {
                    None if ended => "cancellation confirmed, no child launched",
                    Some(child) if ended && !child.running && state.settled.is_some() => {
                        "cancellation confirmed, direct child settled"
                    }
                    _ => "cancellation recorded, child settlement unverified",
                }
                .to_owned(),
            );
            parts.push(DESCENDANTS.to_owned());
        }
    }
    let child_running = snapshot.and_then(|s| s.state.child.as_ref()).map(|child| child.running);
    let key = vec![
        status.as_str().to_owned(),
        snapshot.is_some_and(|s| s.state.terminal.is_some()).to_string(),
        text(child_running),
        settled_outcome(snapshot),
    ];
    (parts, " ", key)
}

fn unknown(reason: UnknownReason, snapshot: Option<&Snapshot>, now: OffsetDateTime) -> Pieces {
    let phase = snapshot.map_or("setup", |s| s.phase.as_str());
    let detail = match reason {
        UnknownReason::LauncherUnverified => format!("launcher identity unverified; last observed {phase}"),
        UnknownReason::TerminalWithoutReceipt { receipt_written: false } => {
            "runner exited without a receipt".to_owned()
        }
        UnknownReason::TerminalWithoutReceipt { receipt_written: true } => {
            "runner marked finished but the receipt is unreadable".to_owned()
        }
        UnknownReason::NotStarted => "receipt reserved, no progress yet".to_owned(),
        UnknownReason::Snapshot(Unreadable::Missing) => "no progress or receipt yet".to_owned(),
        UnknownReason::Snapshot(why) => format!("progress unreadable ({})", why.as_str()),
    };
    let mut parts = vec![format!("unknown: {detail}"), NO_VERDICT.to_owned()];
    let mut key = vec![reason.as_str().to_owned(), text(receipt_written(reason))];
    if let (UnknownReason::LauncherUnverified, Some(seen)) = (reason, snapshot) {
        let state = &seen.state;
        parts.push(format!("elapsed {}", duration(millis(state.started_at, now))));
        if let Some(child) = &state.child {
            let word = if child.running { "running" } else { "exited" };
            parts.push(format!("last observed direct child {word}"));
        }
        if let Some((signal, _)) = state.cancel {
            parts.push(format!("cancel {} requested, confirmation requires receipt", signal.as_str()));
            parts.push(DESCENDANTS.to_owned());
        }
        parts.push(QUIET.to_owned());
        key.push(phase.to_owned());
        key.extend(child_fields(seen));
        key.push(text(state.cancel.map(|(signal, _)| signal.as_str())));
        key.push(settled_outcome(snapshot));
    }
    (parts, " ", key)
}

fn receipt_written(reason: UnknownReason) -> Option<bool> {
    match reason {
        UnknownReason::TerminalWithoutReceipt { receipt_written } => Some(receipt_written),
        _ => None,
    }
}

/// `running`, `exitCode` and `drained` of the child.
fn child_fields(snapshot: &Snapshot) -> [String; 3] {
    let child = snapshot.state.child.as_ref();
    [
        text(child.map(|child| child.running)),
        text(child.and_then(|child| child.exit_code)),
        text(child.map(|child| child.drained)),
    ]
}

const fn interruption(reused: bool) -> &'static str {
    if reused { "pid-reused" } else { "launcher-gone" }
}

fn interrupted(reused: bool, child: ChildVerdict, snapshot: &Snapshot) -> Pieces {
    let phase = snapshot.phase.as_str();
    let launcher = if reused { "pid reused" } else { "gone" };
    let mut parts = vec![format!("interrupted: launcher {launcher}"), format!("last phase {phase}")];
    match child {
        ChildVerdict::None => {}
        ChildVerdict::PossiblyRunning => parts.push("direct child may still be running".to_owned()),
        word => parts.push(format!("direct child {}", word.as_str())),
    }
    parts.push(NO_VERDICT.to_owned());
    let key = vec![interruption(reused).to_owned(), child.as_str().to_owned(), phase.to_owned()];
    (parts, " · ", key)
}

fn active(snapshot: &Snapshot, now: OffsetDateTime) -> Pieces {
    let state = &snapshot.state;
    let phase = snapshot.phase.as_str();
    let mut parts = vec![format!("{phase} {}", duration(millis(state.started_at, now)))];
    if let Some(child) = &state.child {
        parts.push(if child.running {
            "last observed direct child running".to_owned()
        } else {
            let code = child.exit_code.map_or_else(|| "?".to_owned(), |code| code.to_string());
            format!("child exited {code}{}", if child.drained { "" } else { ", pipe open" })
        });
    }
    parts.push(state.last_activity_at.map_or_else(
        || "no output observed yet".to_owned(),
        |at| {
            let total = state.stdout_bytes.saturating_add(state.stderr_bytes);
            format!("last output {} ago ({})", duration(millis(at, now)), bytes(total))
        },
    ));
    parts.push("runner present".to_owned());
    let outcome = state.settled.map(|(settled, _)| settled.outcome);
    match (state.cancel, outcome) {
        (Some((signal, _)), None) => parts.push(format!("cancel {} requested, unconfirmed", signal.as_str())),
        (Some(_), Some(SettledOutcome::SignalledAndExited)) => {
            parts.push("cancel requested, direct child signalled and exited".to_owned());
        }
        (Some(_), Some(SettledOutcome::AlreadyExited)) => {
            parts.push("cancel requested, child had already exited".to_owned());
        }
        (None, Some(SettledOutcome::SignalledAndExited)) => {
            parts.push("deadline: direct child signalled and exited".to_owned());
        }
        (None, Some(SettledOutcome::AlreadyExited)) => parts.push("deadline: child had already exited".to_owned()),
        (None, None) => {}
    }
    if state.cancel.is_some() {
        parts.push(DESCENDANTS.to_owned());
    }
    parts.push(QUIET.to_owned());
    let mut key = vec![phase.to_owned()];
    key.extend(child_fields(snapshot));
    key.push("live".to_owned());
    key.push(text(state.cancel.map(|(signal, _)| signal.as_str())));
    key.push(settled_outcome(Some(snapshot)));
    key.push(text(state.settled.map(|(settled, _)| cause_word(settled.cause))));
    (parts, " · ", key)
}

/// The labelled line of lane `number` (from 1), without a newline.
#[must_use]
pub fn text_line(number: usize, view: &LaneView, now: OffsetDateTime) -> String {
    let line = render(view, now).line;
    match view.snapshot() {
        None => format!("L{number} {line}"),
        Some(Snapshot { state, .. }) => {
            format!("L{number} {}:{} {line}", state.provider, state.attempt_id.get(..8).unwrap_or(&state.attempt_id))
        }
    }
}

/// The document of `status --json`, without a newline.
#[must_use]
pub fn lanes_json(views: &[LaneView], now: OffsetDateTime) -> String {
    let lanes: Vec<Value> = views.iter().enumerate().map(|(at, view)| lane_json(at + 1, view, now)).collect();
    json!({"schemaVersion": 1, "lanes": lanes}).to_string()
}

fn elapsed(view: &LaneView, now: OffsetDateTime) -> Option<i64> {
    let state = &view.snapshot()?.state;
    let end = state.terminal.as_ref().map(|end| end.at);
    if end.is_none() && matches!(view, LaneView::Terminal { .. }) {
        return None;
    }
    Some(millis(state.started_at, end.unwrap_or(now)).max(0))
}

fn lane_json(number: usize, view: &LaneView, now: OffsetDateTime) -> Value {
    let snapshot = view.snapshot();
    let state = snapshot.map(|s| &s.state);
    let rendered = render(view, now);
    let owner = state.map_or_else(|| number.to_string(), |state| state.attempt_id.clone());
    let cancellation = state.map(|state| match view {
        LaneView::Active { .. } => json!({
            "requested": state.cancel.map(|(signal, _)| json!({"signal": signal.as_str()})),
            "childSettled": state.settled.map(|(settled, _)| {
                json!({"outcome": outcome_word(settled.outcome), "cause": cause_word(settled.cause)})
            }),
        }),
        _ => json!({
            "requested": state.cancel.map(|(signal, _)| signal.as_str()),
            "childSettled": state.settled.map(|(settled, _)| outcome_word(settled.outcome)),
            "confirmed": state.terminal.is_some()
                && matches!(view, LaneView::Terminal { status: Status::Cancelled, .. })
                && state.child.as_ref().is_none_or(|child| !child.running && state.settled.is_some()),
        }),
    });
    let mut lane = Map::new();
    let mut put = |key: &str, value: Value| lane.insert(key.to_owned(), value);
    put("lane", json!(number));
    put("provider", json!(state.map(|state| state.provider)));
    put("attemptId", json!(state.map(|state| &state.attempt_id)));
    put("kind", json!(view.kind()));
    put("updatedAt", json!(snapshot.map(|s| &s.updated_at)));
    put("seq", json!(snapshot.map(|s| s.seq)));
    put("line", json!(rendered.line));
    put("changeKey", json!(format!("{owner}|{}", rendered.change_key)));
    put("elapsedMs", json!(elapsed(view, now)));
    put("cancellation", json!(cancellation));
    let phase = json!(snapshot.map(|s| s.phase.as_str()));
    match view {
        LaneView::Terminal { status, .. } => {
            put("status", json!(status.as_str()));
        }
        LaneView::Unknown { reason, .. } => {
            put("reason", json!(reason.as_str()));
            put("receiptWritten", json!(receipt_written(*reason)));
            put("phase", phase);
        }
        LaneView::Interrupted { reused, child, .. } => {
            put("reason", json!(interruption(*reused)));
            put("child", json!(child.as_str()));
            put("phase", phase);
        }
        LaneView::Active { snapshot } => {
            let state = &snapshot.state;
            put("phase", phase);
            put("launcher", json!("live"));
            put("retryWait", json!(state.retry_wait));
            put(
                "child",
                json!(state.child.as_ref().map(|child| {
                    json!({"role": child.role.as_str(), "running": child.running,
                        "exitCode": child.exit_code, "drained": child.drained})
                })),
            );
            put(
                "activity",
                json!({"stdoutBytes": state.stdout_bytes, "stderrBytes": state.stderr_bytes,
                    "lastActivityAt": state.last_activity_at.map(iso_millis)}),
            );
        }
    }
    Value::Object(lane)
}
