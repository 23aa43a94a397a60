//! Receipt to JSON: the two exact key orders of runner 2.1, additive fields last.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::macros::format_description;

use super::number::{number_value, plain};
use super::{Receipt, ReceiptError, Usage, cap};

/// Longest `error.message`, in UTF-16 units, so that every reader's way of counting characters agrees.
pub(super) const MESSAGE_CAP: usize = 500;
/// Longest `error.evidence`, in UTF-16 units.
pub(super) const EVIDENCE_CAP: usize = 4_000;

/// ISO 8601 in UTC with exactly three digits of a second: `2026-10-01T10:00:00.000Z`.
#[must_use]
pub fn iso_millis(at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    at.to_offset(time::UtcOffset::UTC).format(format).unwrap_or_else(|_| "1970-01-01T00:00:00.000Z".to_owned())
}

/// Milliseconds since 1970, rounded down like the text of [`iso_millis`].
fn unix_millis(at: OffsetDateTime) -> i128 {
    at.unix_timestamp_nanos().div_euclid(1_000_000)
}

fn words(list: &[String]) -> Value {
    Value::Array(list.iter().map(|word| Value::String(word.clone())).collect())
}

fn usage_value(usage: Option<&Usage>) -> Value {
    let Some(usage) = usage else { return Value::Null };
    let mut map = Map::new();
    for (name, number) in [
        ("inputTokens", &usage.input_tokens),
        ("cachedInputTokens", &usage.cached_input_tokens),
        ("cacheCreationInputTokens", &usage.cache_creation_input_tokens),
        ("outputTokens", &usage.output_tokens),
        ("reasoningTokens", &usage.reasoning_tokens),
        ("totalTokens", &usage.total_tokens),
    ] {
        if let Some(number) = number {
            map.insert(name.to_owned(), plain(number));
        }
    }
    if map.is_empty() { Value::Null } else { Value::Object(map) }
}

fn error_value(error: Option<&ReceiptError>) -> Value {
    error.map_or(
        Value::Null,
        |error| json!({"message": cap(&error.message, MESSAGE_CAP), "evidence": cap(&error.evidence, EVIDENCE_CAP)}),
    )
}

impl Receipt {
    /// Whole milliseconds between start and completion; never negative, even if the clock stepped back.
    #[must_use]
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from((unix_millis(self.completed_at) - unix_millis(self.started_at)).max(0)).unwrap_or(u64::MAX)
    }

    /// The JSON object in its exact key order (runner 2.1).
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| {
            map.insert(key.to_owned(), value);
        };
        put("schemaVersion", json!(2));
        put("parent", json!(self.parent));
        put("provider", json!(self.provider));
        put("model", json!(self.model));
        put("effort", json!(self.effort));
        put("mode", json!(self.mode));
        put("cwd", json!(self.paths.cwd));
        put("promptPath", json!(self.paths.prompt));
        put("outputPath", json!(self.paths.output));
        put("receiptPath", json!(self.paths.receipt));
        put("executionId", json!(self.execution_id));
        let canonical = &self.paths.canonical;
        put("canonicalPaths", json!({"cwd": canonical.cwd, "output": canonical.output, "receipt": canonical.receipt}));
        put("timeoutMs", self.timeout_ms.map_or(Value::Null, number_value));
        put("contract", json!(self.contract));
        if self.workload.is_none() {
            put("status", json!(self.status));
        }
        put("startedAt", json!(iso_millis(self.started_at)));
        put("completedAt", json!(iso_millis(self.completed_at)));
        put("elapsedMs", json!(self.elapsed_ms()));
        put("executable", json!(self.executable));
        let preflight = &self.preflight;
        put(
            "preflight",
            json!({"argv": words(&preflight.argv), "status": preflight.status,
                "evidence": cap(&preflight.evidence, EVIDENCE_CAP)}),
        );
        put("argv", words(&self.argv));
        put("exitCode", json!(self.exit_code));
        put("signal", json!(self.signal));
        if self.workload.is_some() {
            put("status", json!(self.status));
        }
        put("reportedModel", json!(self.report.reported_model));
        put("modelVerified", json!(self.report.model_verified));
        put("modelEvidence", json!(self.report.model_evidence));
        put("sessionId", json!(self.report.session_id));
        put("usage", usage_value(self.report.usage.as_ref()));
        put("costUsd", self.report.cost_usd.as_ref().map_or(Value::Null, plain));
        let workload = self.workload.as_ref();
        if let Some(denial) = workload.and_then(|fields| fields.tool_denial.as_ref()) {
            put("toolDenial", json!(denial));
        }
        if let Some(handoff) = workload.and_then(|fields| fields.handoff.as_ref()) {
            put("handoff", handoff.clone());
        }
        if workload.is_some_and(|fields| fields.handoff_malformed) {
            put("handoffMalformed", json!(true));
        }
        put("error", error_value(self.error.as_ref()));
        put("failurePhase", json!(self.failure_phase));
        put("processStarted", json!(self.process_started));
        put("apiSpend", json!(self.api_spend.map_or("legacy", crate::descriptor::ApiSpend::as_str)));
        if let Some(success) = workload.and_then(|fields| fields.terminal_success) {
            put("terminalSuccess", json!(success));
        }
        for (key, value) in &self.additive {
            if !super::read::KNOWN_KEYS.contains(&key.as_str()) {
                map.insert(key.clone(), value.clone());
            }
        }
        Value::Object(map)
    }

    /// One line without a newline: what the runner prints.
    #[must_use]
    pub fn compact(&self) -> String {
        self.to_value().to_string()
    }

    /// The file's bytes: indented by two spaces, one final newline.
    #[must_use]
    pub fn pretty(&self) -> String {
        pretty_value(&self.to_value())
    }
}

/// The file form of a receipt that came over the wire as JSON.
#[must_use]
pub fn pretty_value(receipt: &Value) -> String {
    let mut text = serde_json::to_string_pretty(receipt).unwrap_or_default();
    text.push('\n');
    text
}
