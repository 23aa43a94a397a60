//! The terminal record of an attempt, schema 2 (runner section 2): key order, additive fields, reading old ones.

mod build;
mod number;
mod read;
mod write;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use build::{FAILURE_DETAIL, LAUNCHER_FAILED, cap, launcher_evidence};
pub use number::{js_number, number_value};
pub use read::{ReadError, status_of};
pub use write::{iso_millis, pretty_value};

use crate::descriptor::{Contract, Effort, Mode, Parent, Provider};

macro_rules! statuses {
    ($($variant:ident = $text:literal => $exit:literal),+ $(,)?) => {
        /// How an attempt ended (runner 2.3).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Status { $(#[serde(rename = $text)] $variant),+ }
        impl Status {
            /// All statuses.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The spelling in the receipt.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $text),+ } }
            /// Exit code of the runner (runner 1.5).
            #[must_use]
            pub const fn exit_code(self) -> u8 { match self { $(Self::$variant => $exit),+ } }
        }
        impl std::str::FromStr for Status {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($text => Ok(Self::$variant),)+ _ => Err(()) }
            }
        }
    };
}

statuses!(
    Complete = "complete" => 0,
    NeedsParentOperation = "needs-parent-operation" => 0,
    Cancelled = "cancelled" => 130,
    UnavailableCli = "unavailable-cli" => 69,
    Unauthenticated = "unauthenticated" => 77,
    UnavailableModel = "unavailable-model" => 69,
    UsageExhausted = "usage-exhausted" => 75,
    BillingPolicyBlocked = "billing-policy-blocked" => 78,
    TimedOut = "timed-out" => 124,
    ChildFailed = "child-failed" => 70,
    MalformedOutput = "malformed-output" => 65,
    UnsupportedCapability = "unsupported-capability" => 79,
);

impl Status {
    /// True when the final answer is delivered to the output file.
    #[must_use]
    pub const fn delivered(self) -> bool {
        matches!(self, Self::Complete | Self::NeedsParentOperation)
    }
}

/// How far a failed attempt got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailurePhase {
    Preflight,
    Invocation,
    Postprocess,
}

/// What the preflight did (runner 2.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreflightReport {
    pub argv: Vec<String>,
    pub status: PreflightStatus,
    pub evidence: String,
}

impl PreflightReport {
    /// One that was not run, and why.
    #[must_use]
    pub fn not_run(evidence: &str) -> Self {
        Self { argv: Vec::new(), status: PreflightStatus::NotRun, evidence: evidence.to_owned() }
    }
}

/// Result word of the preflight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreflightStatus {
    Passed,
    Failed,
    TimedOut,
    Cancelled,
    NotRun,
}

/// What proves the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelEvidence {
    ProviderReport,
    PinnedArgv,
}

/// What the provider said about itself in a delivered answer (or one whose handoff block is malformed).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderReport {
    pub reported_model: Option<String>,
    pub model_verified: bool,
    pub model_evidence: Option<ModelEvidence>,
    pub session_id: Option<String>,
    pub usage: Option<Usage>,
    pub cost_usd: Option<serde_json::Number>,
}

/// Token counts; absent ones are omitted. Numbers as the provider wrote them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_creation_input_tokens: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<serde_json::Number>,
}

/// A provider-owned refusal of a tool (runner 2.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDenial {
    pub verified: bool,
    pub cause: Option<DenialCause>,
    pub tool: Option<String>,
    pub requested_action: Option<String>,
    pub evidence: String,
}

/// Why a tool was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DenialCause {
    Permission,
    Unknown,
}

/// `error` of a receipt; message at most 500 characters, evidence at most 4,000.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptError {
    pub message: String,
    pub evidence: String,
}

/// Fields that only a run with a workload result has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadFields {
    pub tool_denial: Option<ToolDenial>,
    /// The six handoff keys in their fixed order.
    pub handoff: Option<Value>,
    pub handoff_malformed: bool,
    pub terminal_success: Option<bool>,
}

/// A receipt as the runner writes it. `workload` decides which of the two key orders of runner 2.1 is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    pub parent: Parent,
    pub provider: Provider,
    pub model: String,
    pub effort: Effort,
    pub mode: Mode,
    pub paths: crate::assignment::CallerPaths,
    pub execution_id: String,
    pub timeout_ms: Option<f64>,
    pub contract: Contract,
    pub api_spend: Option<crate::descriptor::ApiSpend>,
    pub status: Status,
    pub started_at: time::OffsetDateTime,
    pub completed_at: time::OffsetDateTime,
    pub executable: Option<String>,
    pub preflight: PreflightReport,
    pub argv: Vec<String>,
    pub exit_code: Option<i32>,
    /// `SIGINT` or `SIGTERM`, only if it was really sent to a running direct child.
    pub signal: Option<String>,
    /// All absent without an accepted answer.
    pub report: ProviderReport,
    pub error: Option<ReceiptError>,
    pub failure_phase: Option<FailurePhase>,
    pub process_started: bool,
    pub workload: Option<WorkloadFields>,
    /// Fields beyond schema 2, written after the known keys in this order: container, isolation, egress, teardown, notes.
    pub additive: Map<String, Value>,
}
