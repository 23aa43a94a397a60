//! Normalized records of what happened during an attempt (design section 10).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use crate::receipt::Usage;

/// One record of an attempt's append-only log. `seq` counts from 1 without holes; it is also the SSE id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub seq: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    #[serde(flatten)]
    pub body: EventBody,
}

/// What happened. Unknown kinds of a newer writer are an error of the reader, never dropped silently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventBody {
    /// The provider named its session and, perhaps, its model.
    Session { id: Option<String>, model: Option<String> },
    /// A message that was given to the provider.
    User { text: String },
    /// Text of the assistant.
    Text { text: String },
    /// Reasoning that the provider showed.
    Thinking { text: String },
    /// A tool was called; `input` is capped (see [`cap_input`]).
    ToolCall { id: Option<String>, name: String, input: Value },
    /// A tool answered; `output` is capped like an input.
    ToolResult { id: Option<String>, output: Value, is_error: bool },
    /// Token counts so far.
    Usage { usage: Usage, cost_usd: Option<serde_json::Number> },
    /// The provider decided on a permission by itself.
    Permission { tool: Option<String>, granted: bool, reason: Option<String> },
    /// The provider waits for a decision.
    Approval { id: String, tool: String, input: Value },
    /// The provider's own terminal record.
    Result { success: bool, text: Option<String> },
    /// The attempt moved to a phase, one of its steps changed, or something about its surroundings is worth telling.
    Status {
        phase: Phase,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StepStatus>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settled: Option<Settled>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Live only, never kept: bytes of the workload's streams so far.
    Activity { stdout_bytes: u64, stderr_bytes: u64 },
    /// Live only, never kept: text as it grows, coalesced; the whole text follows as its own event.
    Delta { text: String },
    /// The provider or the agent reported an error; `transient` ones may recover.
    Error { message: String, transient: bool },
    /// The login is missing or no longer honoured.
    AuthExpired { message: String },
    /// The provider proved that its quota is used up; `resets_at` is its own structured value, never parsed from text.
    QuotaExhausted { message: String, resets_at: Option<i64> },
    /// Events that are no longer kept: `from..=to`.
    Gap { from: u64, to: u64 },
    /// The attempt is over; nothing follows. `receipt` is the receipt's JSON.
    Terminal { receipt: Value, answer_bytes: Option<u64> },
}

impl EventBody {
    /// True for kinds that are shown while they happen and never kept or numbered.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Activity { .. } | Self::Delta { .. })
    }
}

/// Where an attempt is (design section 5), as the progress snapshot and `status` tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Queued,
    Accepted,
    Preparing,
    Preflight,
    PreflightRetryWait,
    Running,
    Settling,
    Terminal,
}

/// Last observed state of one step's direct child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    pub role: StepRole,
    /// Process id on the worker host where it is known, else inside the container.
    pub pid: u32,
    pub running: bool,
    pub exit_code: Option<i32>,
    /// Both of its output streams reached their end.
    pub drained: bool,
}

/// What a step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepRole {
    Probe,
    Preflight,
    Workload,
    Export,
}

/// How a child ended after a cancel or a deadline (runner 7.1 `childSettled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub outcome: SettledOutcome,
    pub cause: SettledCause,
}

/// Whether the child still ran when it was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettledOutcome {
    SignalledAndExited,
    AlreadyExited,
}

/// Why the child was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettledCause {
    Cancel,
    Deadline,
}

/// Longest tool input that is kept whole, in characters of its JSON text.
pub const INPUT_CAP: usize = 2_000;

/// Caps a tool input: longer ones become `{"truncated":true,"bytes":N,"preview":…}`.
#[must_use]
pub fn cap_input(input: Value) -> Value {
    let text = match &input {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.chars().count() <= INPUT_CAP {
        return input;
    }
    let preview: String = text.chars().take(INPUT_CAP).collect();
    serde_json::json!({"truncated": true, "bytes": text.len(), "preview": preview})
}
