//! What a run receipt must look like before it may become an event (policy-and-contract 9.1). Reads receipts by rules of
//! its own, so that schema 1 and receipts of other writers are judged alike.

use std::fmt::Display;
use std::str::FromStr;

use agent::blank::is_blank;
use agent::descriptor::{Effort, Mode, Parent, ParentOperation, Provider};
use agent::receipt::Status;
use serde_json::{Map, Value};

use super::recovery::is_normalized;
use super::state::{HandoffRecord, OperationScope};
use crate::json;

/// What the receipt must be about.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub parent: Parent,
    pub provider: Provider,
    pub model: &'a str,
    pub effort: Effort,
    pub mode: Mode,
    /// `deny`, `approved` or `legacy`.
    pub api_spend: &'a str,
    pub contract: &'a str,
    /// The path as the caller gave it.
    pub receipt_path: &'a str,
}

/// The facts of a receipt that keeps all rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptFacts {
    pub status: Status,
    /// Set for schema 2.
    pub identity: Option<Identity>,
    /// `exitCode` or `signal` is recorded.
    pub settled: bool,
    pub process_started: Option<bool>,
    pub phase: Option<Phase>,
    /// The receipt records an explicit deadline.
    pub deadline: bool,
    pub terminal_success: Option<bool>,
    pub denial: Option<Denial>,
    pub handoff: Option<HandoffRecord>,
}

/// Schema 2's identity of the execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub id: String,
    pub output: String,
    pub receipt: String,
    pub workspace: String,
}

/// How far a failed attempt got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Preflight,
    Invocation,
    Postprocess,
}

/// A refusal of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    pub verified: bool,
    /// The cause is a concrete permission.
    pub permission: bool,
}

/// The receipt breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    #[error("receipt: {place} {rule}")]
    Rule { place: String, rule: String },
    #[error("receipt: identity mismatch on {}", .fields.join(", "))]
    Identity { fields: Vec<&'static str> },
}

type Result<T, E = ReceiptError> = std::result::Result<T, E>;

fn broken<T>(place: impl Display, rule: impl Into<String>) -> Result<T> {
    Err(ReceiptError::Rule { place: place.to_string(), rule: rule.into() })
}

impl ReceiptFacts {
    /// Checks a decoded receipt, in the documented order.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn read(value: &Value, expected: &Expected) -> Result<Self> {
        let Some(map) = value.as_object() else { return broken("the file", "must be a JSON object") };
        let receipt = Fields { map, prefix: "" };
        let schema = match receipt.get("schemaVersion").and_then(json::integer) {
            Some(schema @ (1 | 2)) => schema,
            _ => return broken("\"schemaVersion\"", "must be 1 or 2"),
        };
        let status: Status = match receipt.text("status").map(str::parse) {
            Some(Ok(status)) => status,
            _ => return broken("\"status\"", "must be a known status"),
        };
        check_identity(&receipt, expected)?;
        let identity = if schema == 2 { Some(read_identity(&receipt, expected)?) } else { None };
        let exit_code = match receipt.need("exitCode")? {
            Value::Null => None,
            code => Some(json::integer(code).map_or_else(|| broken("\"exitCode\"", "must be null or an integer"), Ok)?),
        };
        let signal = receipt.null_or_nonblank("signal")?;
        let process_started = receipt.flag("processStarted")?;
        let phase = read_phase(receipt.need("failurePhase")?)?;
        check_coherence(process_started, phase, exit_code)?;
        let error = read_error(receipt.need("error")?)?;
        let denial = receipt.get("toolDenial").map(read_denial).transpose()?;
        let handoff = match receipt.get("handoff") {
            None => None,
            Some(_) if schema != 2 || status != Status::NeedsParentOperation => {
                return broken("\"handoff\"", "belongs to status needs-parent-operation of schema 2 only");
            }
            Some(value) => Some(read_handoff(value)?),
        };
        let malformed = receipt.flag("handoffMalformed")?;
        if status.delivered() && denial.is_some_and(|denial| denial.verified) {
            return broken("\"toolDenial\"", "is verified, which contradicts a delivered answer");
        }
        let deadline = match receipt.get("timeoutMs") {
            None | Some(Value::Null) => false,
            Some(Value::Number(number)) if number.as_f64().is_some_and(|ms| ms > 0.0) => true,
            Some(_) => return broken("\"timeoutMs\"", "must be null or a number above 0"),
        };
        let terminal_success = receipt.flag("terminalSuccess")?;
        if status.delivered() {
            let quiet = exit_code == Some(0) && error.is_none() && phase.is_none() && malformed != Some(true);
            if !quiet || (status == Status::Complete && terminal_success == Some(true)) {
                return broken(format!("status {}", status.as_str()), "contradicts the recorded failure");
            }
            if status == Status::NeedsParentOperation && handoff.is_none() {
                return broken("status needs-parent-operation", "requires a handoff");
            }
        } else {
            let Some(evidence) = error else { return broken("\"error\"", "must be an object for a failed status") };
            if status == Status::UsageExhausted && is_blank(evidence) {
                return broken("\"error\".\"evidence\"", "must not be blank for usage-exhausted");
            }
        }
        let settled = exit_code.is_some() || signal.is_some();
        Ok(Self { status, identity, settled, process_started, phase, deadline, terminal_success, denial, handoff })
    }
}

/// Vocabulary of the identity first, then every difference at once.
fn check_identity(receipt: &Fields, expected: &Expected) -> Result<()> {
    let parent: Parent = receipt.word("parent", Parent::WORDS)?;
    let provider: Provider = receipt.word("provider", Provider::WORDS)?;
    let Some(model) = receipt.text("model").filter(|model| !is_blank(model)) else {
        return broken("\"model\"", "must be a nonblank string");
    };
    let effort: Effort = receipt.word("effort", Effort::WORDS)?;
    let mode: Mode = receipt.word("mode", Mode::WORDS)?;
    let api_spend = match receipt.get("apiSpend").map(Value::as_str) {
        None => "legacy",
        Some(Some(spend @ ("deny" | "approved" | "legacy"))) => spend,
        Some(_) => return broken("\"apiSpend\"", "must be one of: deny, approved, legacy"),
    };
    let contract = match receipt.get("contract") {
        None | Some(Value::Null) => Some("legacy"),
        Some(contract) => contract.as_str(),
    };
    let differs = [
        ("parent", parent != expected.parent),
        ("provider", provider != expected.provider),
        ("model", model != expected.model),
        ("effort", effort != expected.effort),
        ("mode", mode != expected.mode),
        ("apiSpend", api_spend != expected.api_spend),
        ("contract", contract != Some(expected.contract)),
    ];
    let fields: Vec<&str> = differs.into_iter().filter_map(|(field, differs)| differs.then_some(field)).collect();
    if fields.is_empty() { Ok(()) } else { Err(ReceiptError::Identity { fields }) }
}

fn read_identity(receipt: &Fields, expected: &Expected) -> Result<Identity> {
    let Some(id) = receipt.text("executionId").filter(|id| !is_blank(id)) else {
        return broken("\"executionId\"", "must be a nonblank string");
    };
    receipt.path("outputPath")?;
    let recorded = receipt.path("receiptPath")?;
    receipt.path("cwd")?;
    if !is_normalized(expected.receipt_path) || expected.receipt_path != recorded {
        return broken("\"receiptPath\"", "must be the path of the receipt that is read, absolute and normalized");
    }
    let Some(map) = receipt.get("canonicalPaths").and_then(Value::as_object) else {
        return broken("\"canonicalPaths\"", "must be an object");
    };
    let canonical = Fields { map, prefix: "\"canonicalPaths\"." };
    Ok(Identity {
        id: id.to_owned(),
        output: canonical.path("output")?,
        receipt: canonical.path("receipt")?,
        workspace: canonical.path("cwd")?,
    })
}

fn read_phase(value: &Value) -> Result<Option<Phase>> {
    match (value, value.as_str()) {
        (Value::Null, _) => Ok(None),
        (_, Some("preflight")) => Ok(Some(Phase::Preflight)),
        (_, Some("invocation")) => Ok(Some(Phase::Invocation)),
        (_, Some("postprocess")) => Ok(Some(Phase::Postprocess)),
        _ => broken("\"failurePhase\"", "must be null or one of: preflight, invocation, postprocess"),
    }
}

fn check_coherence(started: Option<bool>, phase: Option<Phase>, exit_code: Option<i64>) -> Result<()> {
    match (started, phase) {
        (Some(false), None | Some(Phase::Invocation | Phase::Postprocess)) => {
            broken("\"processStarted\"", "is false, which only a preflight failure can be")
        }
        (Some(true), Some(Phase::Preflight)) => broken("\"failurePhase\"", "is preflight, but the workload started"),
        (_, Some(Phase::Postprocess)) if exit_code != Some(0) => {
            broken("\"failurePhase\"", "is postprocess, which needs exitCode 0")
        }
        _ => Ok(()),
    }
}

/// The evidence of `error`; `None` when there is no error.
fn read_error(value: &Value) -> Result<Option<&str>> {
    if value.is_null() {
        return Ok(None);
    }
    let text = |key: &str| value.as_object().and_then(|map| map.get(key)).and_then(Value::as_str);
    match (text("message"), text("evidence")) {
        (Some(_), Some(evidence)) => Ok(Some(evidence)),
        _ => broken("\"error\"", "must be null or an object with the strings message and evidence"),
    }
}

fn read_denial(value: &Value) -> Result<Denial> {
    let Some(map) = value.as_object() else { return broken("\"toolDenial\"", "must be an object") };
    let denial = Fields { map, prefix: "\"toolDenial\"." };
    let Some(verified) = denial.flag("verified")? else {
        return broken("\"toolDenial\".\"verified\"", "must be true or false");
    };
    let permission = match denial.get("cause").map(Value::as_str) {
        Some(Some("permission")) => true,
        None | Some(Some("unknown")) => false,
        Some(_) => return broken("\"toolDenial\".\"cause\"", "must be permission or unknown"),
    };
    denial.null_or_nonblank("tool")?;
    denial.null_or_nonblank("requestedAction")?;
    if denial.text("evidence").is_none() {
        return broken("\"toolDenial\".\"evidence\"", "must be a string");
    }
    Ok(Denial { verified, permission })
}

fn read_handoff(value: &Value) -> Result<HandoffRecord> {
    let Some(map) = value.as_object() else { return broken("\"handoff\"", "must be an object") };
    let handoff = Fields { map, prefix: "\"handoff\"." };
    let nonblank = |key: &str| match handoff.text(key).filter(|text| !is_blank(text)) {
        Some(text) => Ok(text.to_owned()),
        None => broken(format!("\"handoff\".\"{key}\""), "must be a nonblank string"),
    };
    let kind = handoff.word("operation", ParentOperation::WORDS)?;
    let scope = OperationScope { kind, task: nonblank("task")?, checkpoint: nonblank("checkpoint")? };
    let reference = match handoff.get("summary") {
        None => None,
        Some(Value::String(summary)) => Some(summary.clone()).filter(|summary| !is_blank(summary)),
        Some(_) => return broken("\"handoff\".\"summary\"", "must be a string"),
    };
    Ok(HandoffRecord { scope, reference })
}

struct Fields<'a> {
    map: &'a Map<String, Value>,
    prefix: &'static str,
}

impl<'a> Fields<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    fn broken<T>(&self, key: &str, rule: impl Into<String>) -> Result<T> {
        broken(format!("{}\"{key}\"", self.prefix), rule)
    }

    fn need(&self, key: &str) -> Result<&'a Value> {
        self.get(key).map_or_else(|| self.broken(key, "is missing"), Ok)
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    fn word<T: FromStr>(&self, key: &str, words: &[&str]) -> Result<T> {
        match self.text(key).map(str::parse) {
            Some(Ok(word)) => Ok(word),
            _ => self.broken(key, format!("must be one of: {}", words.join(", "))),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => self.broken(key, "must be true or false"),
        }
    }

    /// The outer key is required.
    fn null_or_nonblank(&self, key: &str) -> Result<Option<&'a str>> {
        match self.need(key)? {
            Value::Null => Ok(None),
            Value::String(text) if !is_blank(text) => Ok(Some(text)),
            _ => self.broken(key, "must be null or a nonblank string"),
        }
    }

    fn path(&self, key: &str) -> Result<String> {
        match self.text(key).filter(|path| is_normalized(path)) {
            Some(path) => Ok(path.to_owned()),
            None => self.broken(key, "must be an absolute, normalized path"),
        }
    }
}
