//! One line of stream-json, and the result that ends a run.

use serde_json::Number;

use crate::driver::json::{self, Fields, Raw};
use crate::driver::quota::{self, ClaudeError};
use crate::driver::skim::Plan;
use crate::driver::{clip, usage};
use crate::event::EventBody;
use crate::receipt::Usage;

/// Fields that are looked at.
pub(super) const KEYS: [&str; 19] = [
    "type",
    "subtype",
    "parent_tool_use_id",
    "session_id",
    "message",
    "is_error",
    "result",
    "terminal_reason",
    "api_error_status",
    "api_error",
    "usage",
    "total_cost_usd",
    "error",
    "rate_limit_info",
    "api_error_params",
    "model",
    "tool_name",
    "decision_reason",
    "errors",
];

pub(super) static PLAN: Plan = Plan { keys: &KEYS, answer: &["result"] };

/// The fields of one object, unread.
pub(super) struct Record<'a> {
    kind: Option<Raw<'a>>,
    pub subtype: Option<Raw<'a>>,
    pub owner: Option<Raw<'a>>,
    pub session_id: Option<Raw<'a>>,
    pub message: Option<Raw<'a>>,
    is_error: Option<Raw<'a>>,
    result: Option<Raw<'a>>,
    terminal_reason: Option<Raw<'a>>,
    api_error_status: Option<Raw<'a>>,
    api_error: Option<Raw<'a>>,
    usage: Option<Raw<'a>>,
    total_cost_usd: Option<Raw<'a>>,
    pub error: Option<Raw<'a>>,
    rate_limit_info: Option<Raw<'a>>,
    api_error_params: Option<Raw<'a>>,
    pub model: Option<Raw<'a>>,
    pub tool_name: Option<Raw<'a>>,
    pub decision_reason: Option<Raw<'a>>,
    errors: Option<Raw<'a>>,
}

impl<'a> Record<'a> {
    pub(super) fn new(fields: &Fields<'a, { KEYS.len() }>) -> Self {
        let [
            kind,
            subtype,
            owner,
            session_id,
            message,
            is_error,
            result,
            terminal_reason,
            api_error_status,
            api_error,
            usage,
            total_cost_usd,
            error,
            rate_limit_info,
            api_error_params,
            model,
            tool_name,
            decision_reason,
            errors,
        ] = *fields;
        Self {
            kind,
            subtype,
            owner,
            session_id,
            message,
            is_error,
            result,
            terminal_reason,
            api_error_status,
            api_error,
            usage,
            total_cost_usd,
            error,
            rate_limit_info,
            api_error_params,
            model,
            tool_name,
            decision_reason,
            errors,
        }
    }

    pub(super) fn parse(text: &'a str) -> Option<Self> {
        Some(Self::new(&json::object(text, &KEYS)?))
    }

    pub(super) fn is(&self, kind: &str) -> bool {
        json::is(self.kind, kind)
    }

    /// When the account's window opens again, if this says that requests are rejected; epoch seconds.
    pub(super) fn rejected_until(&self) -> Option<i64> {
        // A `rate_limit_event` has it at the top, an assistant's error message among its parameters.
        let inner = || self.api_error_params?.fields(&["rate_limit_info"])?[0];
        let [status, resets_at] = self.rate_limit_info.or_else(inner)?.fields(&["status", "resetsAt"])?;
        json::is(status, "rejected").then_some(())?;
        resets_at?.number()?.as_i64()
    }

    pub(super) fn result(&self, overflow: bool) -> ResultRecord {
        let owned = |field: Option<Raw<'_>>| json::nonempty(field).map(std::borrow::Cow::into_owned);
        ResultRecord {
            is_success: json::is(self.subtype, "success"),
            is_error: self.is_error.and_then(Raw::boolean),
            text: owned(self.result),
            session_id: owned(self.session_id),
            terminal_reason: owned(self.terminal_reason),
            api_error: owned(self.api_error),
            status: self.api_error_status.and_then(Raw::number).and_then(|number| number.as_f64()),
            usage: usage::read(self.usage),
            cost_usd: self.total_cost_usd.and_then(Raw::number),
            detail: self.errors.map(|errors| clip::text(errors.source())),
            overflow,
        }
    }
}

/// A `result` event.
pub(super) struct ResultRecord {
    pub is_success: bool,
    pub is_error: Option<bool>,
    pub text: Option<String>,
    pub session_id: Option<String>,
    terminal_reason: Option<String>,
    api_error: Option<String>,
    status: Option<f64>,
    pub usage: Option<Usage>,
    pub cost_usd: Option<Number>,
    detail: Option<String>,
    /// The text was too large to keep whole.
    pub overflow: bool,
}

impl ResultRecord {
    /// Runner 2.5.
    pub(super) fn succeeded(&self) -> bool {
        self.is_success && self.is_error != Some(true)
    }

    pub(super) fn proves_exhaustion(&self) -> bool {
        self.is_error == Some(true)
            && quota::claude(ClaudeError {
                terminal_reason: self.terminal_reason.as_deref().unwrap_or_default(),
                status: self.status,
                api_error: self.api_error.as_deref().unwrap_or_default(),
                result: self.text.as_deref().unwrap_or_default(),
            })
    }

    pub(super) fn tell(&self, events: &mut Vec<EventBody>) {
        if let Some(usage) = &self.usage {
            events.push(EventBody::Usage { usage: usage.clone(), cost_usd: self.cost_usd.clone() });
        }
        let text = self.text.as_deref().map(clip::text).or_else(|| self.detail.clone());
        events.push(EventBody::Result { success: self.is_success && self.is_error == Some(false), text });
    }
}
