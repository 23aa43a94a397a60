//! One driver per provider CLI. A driver is data in, data out: it builds commands and reads bytes; it never spawns,
//! waits, reads a clock or touches a file. The attempt does all of that.

pub mod billing; // the spend policy's guard over variables
mod claude;
mod clip; // sizes of what goes into events
mod codex;
mod deliver; // from an accepted text to a verdict
pub mod environment; // identities, shared variables
mod evidence; // structural evidence of a failure
mod json; // values of a line without building them
mod lines; // chunks to lines
pub mod options; // model and effort rules of all providers
mod preflight; // what a failed preflight means
mod quota; // proof that a quota is used up
mod sandbox; // commands whose own sandbox could not start
mod skim; // objects too long to hold
mod stream; // an output stream as JSON lines
mod strict; // why a strict lane cannot run
mod usage; // token counts

pub use strict::{STRICT_EVIDENCE, strict_reason};

use std::collections::BTreeMap;

use crate::descriptor::{ApiSpend, Contract, Effort, Mode, Parent, Provider};
use crate::event::EventBody;
use crate::receipt::{FailurePhase, ProviderReport, Status, ToolDenial};

/// Variables of a process, all of them: nothing is inherited.
pub type Environment = BTreeMap<String, String>;

/// A lane as a driver sees it. Paths are those inside the container (the user's own).
#[derive(Clone, Debug)]
pub struct Lane {
    pub parent: Parent,
    pub provider: Provider,
    pub model: String,
    pub effort: Effort,
    pub mode: Mode,
    pub contract: Contract,
    pub api_spend: Option<ApiSpend>,
    pub cwd: String,
    /// The private HOME inside the container; a driver's own files go below it.
    pub home: String,
    /// The receipt path on the caller's machine; some drivers derive names from it.
    pub receipt: String,
    /// The caller's prompt, unchanged.
    pub prompt: Vec<u8>,
    /// The caller's and the instance's variables that [`Driver::passes`] let through, before [`Driver::environment`].
    pub environment: Environment,
}

/// One command inside the container. `argv[0]` is the resolved executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub argv: Vec<String>,
    pub environment: Environment,
    pub cwd: String,
    pub stdin: Stdin,
    /// Files written inside the container before the command starts.
    pub files: Vec<PrivateFile>,
}

/// What a step reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// `/dev/null`.
    Null,
    /// These bytes, then end of file.
    Bytes(Vec<u8>),
}

/// A file that exists only inside the attempt's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateFile {
    pub path: String,
    pub mode: u32,
    pub content: Vec<u8>,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    Code(i32),
    Signal(i32),
    /// The child's end was not seen (container or engine lost).
    Unknown,
}

impl ChildExit {
    /// The receipt's `exitCode`: the code, or 128 + signal; `None` when unknown.
    #[must_use]
    pub const fn receipt_code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(signal) => Some(128 + signal),
            Self::Unknown => None,
        }
    }
}

/// Captured result of a short step (preflight, probe). Output beyond 1 MiB a stream is cut.
#[derive(Clone, Debug)]
pub struct StepResult {
    pub exit: ChildExit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Verdict over one preflight step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreflightVerdict {
    Passed {
        evidence: String,
    },
    /// `status` is `Unauthenticated`, `UnavailableModel` or `UnavailableCli`.
    Failed {
        status: Status,
        message: String,
        evidence: String,
    },
    /// Passed, but the spend policy refuses what it showed (runner section 6, "after preflight").
    BillingBlocked {
        evidence: String,
        message: String,
    },
}

/// Which boundary is in force around the CLI's own commands (design section 6, nested sandboxes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InnerState {
    /// The CLI's own sandbox was probed and works.
    Enforced,
    /// Switched off on purpose: the container alone carries the rule.
    ContainerOnly,
}

/// Refusal of a model or effort before anything is created (runner 1.3).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub String);

/// The drivers there are. The one list.
#[must_use]
pub fn of(provider: Provider) -> Option<&'static dyn Driver> {
    match provider {
        Provider::Claude => Some(&claude::Claude),
        Provider::Codex => Some(&codex::Codex),
        Provider::Grok | Provider::Devin | Provider::Cursor | Provider::Antigravity | Provider::OpenCode => None,
    }
}

/// The provider is known, but this build cannot run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no quota adapter implemented for provider {0}: this build runs claude and codex")]
pub struct NoDriver(pub Provider);

/// The driver of a provider, or the refusal that the command line prints (runner 1.3, first rule).
///
/// # Errors
/// [`NoDriver`] for a provider without an integration.
pub fn require(provider: Provider) -> Result<&'static dyn Driver, NoDriver> {
    of(provider).ok_or(NoDriver(provider))
}

/// Reads `data` as the output of a provider, cut at `cuts` (positions modulo its length), ended by exit 0.
#[must_use]
pub fn read_in_pieces(driver: &dyn Driver, lane: &Lane, data: &[u8], cuts: &[usize]) -> (Vec<EventBody>, Judgement) {
    let mut transcript = driver.transcript(lane);
    let mut events = Vec::new();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (data.len() + 1)).collect();
    cuts.sort_unstable();
    let mut from = 0;
    for cut in cuts.into_iter().chain([data.len()]) {
        transcript.stdout(&data[from..cut], &mut events);
        from = cut;
    }
    let judgement = transcript.finish(ChildExit::Code(0), &mut events);
    (events, judgement)
}

/// Fuzz entry: panics when any cutting of the output changes its events or its judgement.
pub fn fuzz_transcript(provider: Provider, data: &[u8], cuts: &[usize]) {
    let Some(driver) = of(provider) else { return };
    let lane = Lane {
        parent: Parent::Codex,
        provider,
        model: "opus".to_owned(),
        effort: Effort::High,
        mode: Mode::ReadOnly,
        contract: Contract::Legacy,
        api_spend: None,
        cwd: "/w".to_owned(),
        home: "/home/lane".to_owned(),
        receipt: "/r/receipt.json".to_owned(),
        prompt: Vec::new(),
        environment: Environment::new(),
    };
    let whole = read_in_pieces(driver, &lane, data, &[]);
    let pieces = read_in_pieces(driver, &lane, data, cuts);
    assert!(whole == pieces, "cutting at {cuts:?} changed {whole:?} into {pieces:?}");
}

/// One integration. All methods are pure.
pub trait Driver: Send + Sync {
    fn provider(&self) -> Provider;
    /// Name searched on the container's `PATH`.
    fn executable(&self) -> &'static str;
    /// True for a caller's variable that may enter the container: this provider's credentials, endpoints, settings.
    fn passes(&self, name: &str) -> bool;
    /// The driver's complete variables for its steps: what passed plus what silences other traffic and bounds retries.
    /// `HOME`, `PATH`, proxy and locale variables are the attempt's business.
    fn environment(&self, lane: &Lane) -> Environment;
    /// Files below HOME that hold the CLI's stored login.
    fn login_files(&self) -> &'static [&'static str];
    /// Exact hosts (`host:port`) the CLI needs, its configured endpoint included.
    fn hosts(&self, lane: &Lane) -> Vec<String>;
    /// The environment guard under `deny` (runner section 6): the message of the block, naming variables only.
    fn billing_guard(&self, lane: &Lane) -> Option<String>;
    /// Command that proves that the CLI's own sandbox starts here; `None` when the lane uses none.
    fn sandbox_probe(&self, lane: &Lane, executable: &str) -> Option<Step>;
    /// The preflight step; `None` when there is none, with [`Driver::preflight_not_run`] as evidence.
    fn preflight(&self, lane: &Lane, executable: &str) -> Option<Step>;
    /// Evidence of a preflight that never runs.
    fn preflight_not_run(&self) -> &'static str {
        ""
    }
    fn judge_preflight(&self, lane: &Lane, result: &StepResult) -> PreflightVerdict;
    /// The one model invocation; stdin carries the whole prompt with the ownership contract.
    fn workload(&self, lane: &Lane, executable: &str, inner: InnerState) -> Step;
    /// A fresh reader of the workload's output.
    fn transcript(&self, lane: &Lane) -> Box<dyn Transcript>;
}

/// Reads a workload's output as it comes, in chunks of any size, with memory that does not grow with the output.
/// The same bytes give the same events however they are cut.
pub trait Transcript: Send {
    fn stdout(&mut self, bytes: &[u8], events: &mut Vec<EventBody>);
    fn stderr(&mut self, bytes: &[u8], events: &mut Vec<EventBody>);
    /// Ends both streams and judges the run (runner 2.3, 2.5, 2.6, sections 4, 5, 8.2).
    fn finish(self: Box<Self>, exit: ChildExit, events: &mut Vec<EventBody>) -> Judgement;
}

/// What the output proves, before deadline and cancellation are considered.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// Runner 2.5; the attempt drops it where the document says that it is absent.
    pub terminal_success: bool,
    /// Structural evidence of runner 2.6, at most 4,000 characters, without a launcher note.
    pub evidence: String,
    pub tool_denial: Option<ToolDenial>,
    /// Commands whose own sandbox could not start, of how many: a run in which all failed so is no success.
    pub sandbox_failures: SandboxFailures,
}

/// Count of shell commands of the run and of those that failed because a sandbox could not start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxFailures {
    pub commands: u64,
    pub failed: u64,
}

/// Outcome of the workload by its output and exit.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// An acceptable final answer; `handoff` already parsed (runner 8.2).
    Delivered(Box<Delivered>),
    /// Everything else.
    Failed { status: Status, phase: FailurePhase, message: String },
    /// The answer is final but its handoff block is malformed; model proof, usage and session stay in the receipt.
    HandoffMalformed { delivered: Box<Delivered>, message: String, evidence: String },
}

/// A final answer and what the provider said about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    pub text: String,
    /// The validated handoff's six keys, in order.
    pub handoff: Option<serde_json::Value>,
    pub report: ProviderReport,
}

#[cfg(test)]
mod tests;
