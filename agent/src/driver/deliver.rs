//! The end of a judgement that drivers share: exits, and the handoff of an accepted answer (runner 8.2).

use super::{ChildExit, Delivered, Verdict};
use crate::handoff::{self, Handoff};
use crate::receipt::{FailurePhase, Status};

const MALFORMED_HANDOFF: &str = "reserved final-response handoff marker was malformed";

/// Reads the handoff of an accepted answer.
pub(super) fn accepted(mut delivered: Delivered) -> Verdict {
    match handoff::parse(&delivered.text) {
        Handoff::None => Verdict::Delivered(Box::new(delivered)),
        Handoff::Valid(request) => {
            delivered.handoff = Some(request.to_value());
            Verdict::Delivered(Box::new(delivered))
        }
        Handoff::Malformed(reason) => Verdict::HandoffMalformed {
            delivered: Box::new(delivered),
            message: reason.reason(),
            evidence: MALFORMED_HANDOFF.to_owned(),
        },
    }
}

/// Verdict over a child that did not exit with 0; `None` when it did.
pub(super) fn failed_exit(exit: ChildExit, quota: bool) -> Option<Verdict> {
    let message = match exit {
        ChildExit::Code(0) => return None,
        ChildExit::Code(code) => format!("child exited with status {code}"),
        ChildExit::Signal(signal) => format!("child exited with status {}", 128 + signal),
        ChildExit::Unknown => "how the child ended was not observed".to_owned(),
    };
    // An end that was not seen is no failed exit: it proves nothing about the quota.
    let status = if quota && exit != ChildExit::Unknown { Status::UsageExhausted } else { Status::ChildFailed };
    Some(Verdict::Failed { status, phase: FailurePhase::Invocation, message })
}

/// A provider's own error in output that ended with exit 0.
pub(super) fn provider_error(quota: bool, message: String) -> Verdict {
    let status = if quota { Status::UsageExhausted } else { Status::ChildFailed };
    Verdict::Failed { status, phase: FailurePhase::Postprocess, message }
}

/// Output that is no acceptable final answer.
pub(super) fn rejected(message: impl Into<String>) -> Verdict {
    Verdict::Failed { status: Status::MalformedOutput, phase: FailurePhase::Postprocess, message: message.into() }
}
