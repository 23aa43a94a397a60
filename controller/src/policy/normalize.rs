//! From a checked receipt to a policy event (policy-and-contract 9.2 and 9.3; dispatch document, "The total mapping").

use agent::descriptor::{Contract, Mode};
use agent::receipt::Status;
use serde::Serialize;

use super::decision::PendingOperation;
use super::receipt::{Denial, Phase, ReceiptFacts};
use super::resolve::ResolvedAttempt;
use super::state::{Execution, HandoffRecord};
use super::words::{DeniedCause, EventStatus};

/// An event that is ready to be put into the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NormalizedEvent {
    pub attempt_index: u64,
    pub status: EventStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_started: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_cause: Option<DeniedCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff: Option<HandoffOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    pub receipt_path: String,
}

/// A handoff as events spell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoffOutput {
    pub operation: agent::descriptor::ParentOperation,
    pub task_id: String,
    pub checkpoint_id: String,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The terms under which the receipt is read.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub attempt_index: u64,
    pub attempt: &'a ResolvedAttempt,
    pub mode: Mode,
    pub contract: Contract,
    /// Printed as given.
    pub receipt_path: &'a str,
}

/// Maps a receipt's facts; total over all statuses.
#[must_use]
pub fn outcome(receipt: &ReceiptFacts) -> EventStatus {
    let not_started = receipt.process_started == Some(false);
    let maybe_started = !not_started && receipt.phase != Some(Phase::Preflight);
    match receipt.status {
        Status::Complete => return EventStatus::Complete,
        Status::NeedsParentOperation => return EventStatus::NeedsParentOperation,
        _ if receipt.terminal_success == Some(true) => return EventStatus::Failed,
        _ if maybe_started && !receipt.settled => return EventStatus::Failed,
        _ => {}
    }
    let assessed = receipt.terminal_success == Some(false);
    match receipt.status {
        Status::TimedOut if receipt.deadline && (not_started || (receipt.settled && assessed)) => {
            EventStatus::DeadlineExceeded
        }
        Status::UsageExhausted if matches!(receipt.phase, Some(Phase::Invocation | Phase::Postprocess)) => {
            EventStatus::UsageExhausted
        }
        Status::UnavailableCli | Status::Unauthenticated | Status::UnavailableModel if not_started => {
            EventStatus::RouteUnavailable
        }
        // A child that never ran to an end proves nothing, even when it is known not to have started.
        Status::ChildFailed | Status::MalformedOutput if assessed && receipt.settled => match receipt.denial {
            Some(Denial { verified: true, permission: true }) => EventStatus::PermissionBlocked,
            Some(Denial { verified: true, permission: false }) => EventStatus::Failed,
            Some(Denial { verified: false, .. }) | None => EventStatus::TerminalFailure,
        },
        _ => EventStatus::Failed,
    }
}

/// The event of a receipt.
#[must_use]
pub fn event(receipt: ReceiptFacts, request: &Request) -> NormalizedEvent {
    let status = outcome(&receipt);
    NormalizedEvent {
        attempt_index: request.attempt_index,
        status,
        process_started: receipt.process_started,
        denied_cause: (status == EventStatus::PermissionBlocked).then_some(DeniedCause::Permission),
        handoff: receipt.handoff.map(HandoffOutput::from),
        execution: receipt.identity.map(|identity| Execution {
            id: identity.id,
            output_path: identity.output,
            receipt_path: identity.receipt,
            workspace_path: identity.workspace,
            descriptor: request.attempt.descriptor.clone(),
            api_spend: request.attempt.api_spend,
            access: request.mode,
            contract: request.contract,
        }),
        receipt_path: request.receipt_path.to_owned(),
    }
}

impl From<HandoffRecord> for HandoffOutput {
    fn from(HandoffRecord { scope, reference }: HandoffRecord) -> Self {
        Self { operation: scope.kind, task_id: scope.task, checkpoint_id: scope.checkpoint, reference }
    }
}

impl From<HandoffRecord> for PendingOperation {
    fn from(HandoffRecord { scope, reference }: HandoffRecord) -> Self {
        Self { kind: scope.kind, task_id: scope.task, checkpoint_id: scope.checkpoint, reference }
    }
}
