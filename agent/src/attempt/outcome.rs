//! What an attempt came to: known before the container is removed, and never changed after.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::assignment::Assignment;
use crate::driver::{Delivered, Judgement, Verdict};
use crate::receipt::{FailurePhase, PreflightReport, ProviderReport, Receipt, ReceiptError, Status, WorkloadFields};

/// The result of an attempt, with everything the receipt will say except its teardown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub status: Status,
    pub executable: Option<String>,
    pub preflight: PreflightReport,
    pub argv: Vec<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub error: Option<ReceiptError>,
    pub failure_phase: Option<FailurePhase>,
    pub process_started: bool,
    pub report: Option<ProviderReport>,
    /// `Some` for results of the workload: they have the second key order of runner 2.1.
    pub workload: Option<WorkloadFields>,
    /// Facts beyond schema 2, in the order in which the receipt shows them.
    pub additive: Map<String, Value>,
}

/// How far an attempt got, as the parts of its receipt that do not depend on how it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Resolved path of the CLI inside the container.
    pub executable: Option<String>,
    pub preflight: PreflightReport,
    /// The workload's command line; its first word is the bare command while the CLI is unresolved.
    pub argv: Vec<String>,
    /// The workload's start was attempted.
    pub process_started: bool,
}

impl Course {
    /// A failure that is not a workload's result.
    #[must_use]
    pub fn failed(self, status: Status, message: &str, evidence: &str) -> Judged {
        let failure_phase = Some(if self.process_started { FailurePhase::Invocation } else { FailurePhase::Preflight });
        Judged {
            status,
            executable: self.executable,
            preflight: self.preflight,
            argv: self.argv,
            exit_code: None,
            signal: None,
            error: Some(ReceiptError { message: message.to_owned(), evidence: evidence.to_owned() }),
            failure_phase,
            process_started: self.process_started,
            report: None,
            workload: None,
            additive: Map::new(),
        }
    }

    /// The result of a workload that ended by itself.
    #[must_use]
    pub fn judged(self, judgement: Judgement, exit_code: Option<i32>) -> (Judged, Option<String>) {
        let Judgement { verdict, terminal_success, evidence, tool_denial, sandbox_failures: _ } = judgement;
        let mut judged = Judged {
            status: Status::Complete,
            executable: self.executable,
            preflight: self.preflight,
            argv: self.argv,
            exit_code,
            signal: None,
            error: None,
            failure_phase: None,
            process_started: true,
            report: None,
            workload: Some(WorkloadFields { tool_denial, ..WorkloadFields::default() }),
            additive: Map::new(),
        };
        let workload = judged.workload.get_or_insert_default();
        match verdict {
            Verdict::Delivered(delivered) => {
                let Delivered { text, handoff, report } = *delivered;
                if handoff.is_some() {
                    judged.status = Status::NeedsParentOperation;
                }
                workload.handoff = handoff;
                judged.report = Some(report);
                (judged, Some(text))
            }
            Verdict::HandoffMalformed { delivered, message, evidence } => {
                judged.status = Status::MalformedOutput;
                judged.failure_phase = Some(FailurePhase::Postprocess);
                judged.error = Some(ReceiptError { message, evidence });
                workload.handoff_malformed = true;
                judged.report = Some(delivered.report);
                (judged, None)
            }
            Verdict::Failed { status, phase, message } => {
                judged.status = status;
                judged.failure_phase = Some(phase);
                judged.error = Some(ReceiptError { message, evidence });
                workload.terminal_success = Some(terminal_success);
                (judged, None)
            }
        }
    }

    /// The result of a workload that was ended by a cancel or a deadline.
    #[must_use]
    pub fn ended(self, status: Status, message: String, judgement: &Judgement, exit: Option<i32>) -> Judged {
        let terminal_success = (status != Status::Cancelled).then_some(judgement.terminal_success);
        Judged {
            exit_code: exit,
            workload: Some(WorkloadFields {
                tool_denial: judgement.tool_denial.clone(),
                terminal_success,
                ..WorkloadFields::default()
            }),
            ..self.failed(status, &message, &judgement.evidence)
        }
    }
}

impl Judged {
    /// Adds a fact beyond schema 2.
    pub fn note(&mut self, key: &str, value: Value) {
        self.additive.insert(key.to_owned(), value);
    }

    /// The receipt. `after` is what was checked after the container was removed.
    #[must_use]
    pub fn receipt(&self, assignment: &Assignment, completed_at: OffsetDateTime, after: Map<String, Value>) -> Receipt {
        let mut additive = self.additive.clone();
        additive.extend(after);
        Receipt {
            executable: self.executable.clone(),
            preflight: self.preflight.clone(),
            argv: self.argv.clone(),
            exit_code: self.exit_code,
            signal: self.signal.clone(),
            report: self.report.clone().unwrap_or_default(),
            error: self.error.clone(),
            failure_phase: self.failure_phase,
            process_started: self.process_started,
            workload: self.workload.clone(),
            additive,
            ..Receipt::of(assignment, self.status, completed_at)
        }
    }
}
