//! Receipts of every release, read back (runner 2.1, 2.2).

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{ProviderReport, Receipt, Status, Usage, WorkloadFields};
use crate::assignment::{CallerPaths, CanonicalPaths};
use crate::descriptor::{ApiSpend, Contract};

/// Every key that schema 2 knows; all others are additive.
pub(super) const KNOWN_KEYS: &[&str] = &[
    "schemaVersion",
    "parent",
    "provider",
    "model",
    "effort",
    "mode",
    "cwd",
    "promptPath",
    "outputPath",
    "receiptPath",
    "executionId",
    "canonicalPaths",
    "timeoutMs",
    "contract",
    "status",
    "startedAt",
    "completedAt",
    "elapsedMs",
    "executable",
    "preflight",
    "argv",
    "exitCode",
    "signal",
    "reportedModel",
    "modelVerified",
    "modelEvidence",
    "sessionId",
    "usage",
    "costUsd",
    "toolDenial",
    "handoff",
    "handoffMalformed",
    "error",
    "failurePhase",
    "processStarted",
    "apiSpend",
    "terminalSuccess",
];

/// The text is no receipt of a known release.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("receipt is not a JSON object")]
    NotAnObject,
    #[error("receipt schema {0} is unknown, this program reads 1 and 2")]
    Schema(String),
    #[error("receipt field `{field}` is missing or malformed")]
    Field { field: &'static str },
    #[error("receipt status `{status}` does not exist in schema 1")]
    StatusOfSchema2 { status: &'static str },
}

/// The status of a document that counts as a receipt: schema 1 or 2 and a known status (runner 7.3).
#[must_use]
pub fn status_of(document: &Value) -> Option<Status> {
    let map = document.as_object()?;
    schema(map)?;
    map.get("status")?.as_str()?.parse().ok()
}

fn schema(map: &Map<String, Value>) -> Option<u8> {
    // 2.0 is the same JSON number as 2.
    match map.get("schemaVersion")?.as_f64()? {
        1.0 => Some(1),
        2.0 => Some(2),
        _ => None,
    }
}

struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn need<T: DeserializeOwned>(&self, field: &'static str) -> Result<T, ReadError> {
        let value = self.0.get(field).ok_or(ReadError::Field { field })?;
        T::deserialize(value).map_err(|_| ReadError::Field { field })
    }

    /// Absent and null are the same.
    fn maybe<T: DeserializeOwned>(&self, field: &'static str) -> Result<Option<T>, ReadError> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::deserialize(value).map(Some).map_err(|_| ReadError::Field { field }),
        }
    }

    fn time(&self, field: &'static str) -> Result<OffsetDateTime, ReadError> {
        OffsetDateTime::parse(&self.need::<String>(field)?, &Rfc3339).map_err(|_| ReadError::Field { field })
    }

    fn position(&self, field: &str) -> Option<usize> {
        self.0.keys().position(|key| key == field)
    }
}

impl Receipt {
    /// Reads a receipt of schema 1 or 2. What schema 1 did not have reads as empty text or absent, `legacy` for the
    /// contract; keys of no schema are kept as additive.
    ///
    /// # Errors
    /// Not a JSON object, another schema, a field that is missing or has the wrong form.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        let value: Value = serde_json::from_str(text).map_err(|_| ReadError::NotAnObject)?;
        Self::from_value(&value)
    }

    /// [`Receipt::from_json`] for parsed JSON.
    ///
    /// # Errors
    /// As [`Receipt::from_json`].
    pub fn from_value(value: &Value) -> Result<Self, ReadError> {
        let map = value.as_object().ok_or(ReadError::NotAnObject)?;
        let schema = schema(map).ok_or_else(|| {
            ReadError::Schema(map.get("schemaVersion").map_or_else(|| "(none)".to_owned(), Value::to_string))
        })?;
        let fields = Fields(map);
        let status: Status = fields.need("status")?;
        if schema == 1 && matches!(status, Status::NeedsParentOperation | Status::UnsupportedCapability) {
            return Err(ReadError::StatusOfSchema2 { status: status.as_str() });
        }
        let handoff: Option<Value> = fields.maybe("handoff")?;
        let malformed: Option<bool> = fields.maybe("handoffMalformed")?;
        let terminal_success: Option<bool> = fields.maybe("terminalSuccess")?;
        let tool_denial = fields.maybe("toolDenial")?;
        let has_workload = fields.position("status") > fields.position("startedAt")
            || handoff.is_some()
            || malformed.is_some()
            || terminal_success.is_some()
            || tool_denial.is_some();
        let usage: Option<Usage> = fields.maybe("usage")?;
        let known = |key: &str| KNOWN_KEYS.contains(&key);
        Ok(Self {
            parent: fields.need("parent")?,
            provider: fields.need("provider")?,
            model: fields.need("model")?,
            effort: fields.need("effort")?,
            mode: fields.need("mode")?,
            paths: paths(&fields, schema)?,
            execution_id: if schema == 1 { String::new() } else { fields.need("executionId")? },
            timeout_ms: fields.maybe("timeoutMs")?,
            contract: fields.maybe("contract")?.unwrap_or(Contract::Legacy),
            api_spend: api_spend(&fields)?,
            status,
            started_at: fields.time("startedAt")?,
            completed_at: fields.time("completedAt")?,
            executable: fields.maybe("executable")?,
            preflight: fields.need("preflight")?,
            argv: fields.need("argv")?,
            exit_code: fields.maybe("exitCode")?,
            signal: fields.maybe("signal")?,
            report: ProviderReport {
                reported_model: fields.maybe("reportedModel")?,
                model_verified: fields.maybe("modelVerified")?.unwrap_or(false),
                model_evidence: fields.maybe("modelEvidence")?,
                session_id: fields.maybe("sessionId")?,
                usage: usage.filter(|usage| *usage != Usage::default()),
                cost_usd: fields.maybe("costUsd")?,
            },
            error: fields.maybe("error")?,
            failure_phase: fields.maybe("failurePhase")?,
            process_started: fields.maybe("processStarted")?.unwrap_or(false),
            workload: has_workload.then(|| WorkloadFields {
                tool_denial,
                handoff,
                handoff_malformed: malformed == Some(true),
                terminal_success,
            }),
            additive: map.iter().filter(|(key, _)| !known(key)).map(|(k, v)| (k.clone(), v.clone())).collect(),
        })
    }
}

fn paths(fields: &Fields<'_>, schema: u8) -> Result<CallerPaths, ReadError> {
    let nothing = || CanonicalPaths { cwd: String::new(), output: String::new(), receipt: String::new() };
    Ok(CallerPaths {
        cwd: fields.need("cwd")?,
        prompt: fields.need("promptPath")?,
        output: fields.need("outputPath")?,
        receipt: if schema == 1 { String::new() } else { fields.need("receiptPath")? },
        progress: None,
        canonical: if schema == 1 { nothing() } else { fields.need("canonicalPaths")? },
    })
}

fn api_spend(fields: &Fields<'_>) -> Result<Option<ApiSpend>, ReadError> {
    match fields.maybe::<String>("apiSpend")?.as_deref() {
        None | Some("legacy") => Ok(None),
        Some(word) => word.parse().map(Some).map_err(|_| ReadError::Field { field: "apiSpend" }),
    }
}
