//! What may happen next on a lane (policy-and-contract 4.2 and section 7). Pure but for the look at prepared paths.

use agent::descriptor::{Mode, ParentOperation, Provider};
use serde::Serialize;

use super::recovery::{Look, ready};
use super::resolve::{Lane, ResolvedAttempt};
use super::state::{Event, Execution};
use super::words::{ContinuationReason, DeniedCause, EventStatus};

/// The one thing that a parent may do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Decision {
    /// Start this attempt, and no other.
    Launch { attempt_index: u64, attempt: ResolvedAttempt, execution: u64 },
    /// Run the same descriptor again, under the prepared identity.
    Continue { attempt_index: u64, attempt: ResolvedAttempt, execution: u64, prepared_execution: Execution },
    /// A delivered handoff waits for the parent.
    ParentOperation { attempt_index: u64, operation: PendingOperation },
    /// A writer that may have started needs a verdict.
    Inspect { reason: InspectReason },
    /// The lane ends here.
    Stop { reason: StopReason },
    /// The sheet or the record does not allow this continuation.
    PolicyDenied { reason: DenialReason },
}

/// The operation that a handoff asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingOperation {
    pub kind: ParentOperation,
    pub task_id: String,
    pub checkpoint_id: String,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// Why an inspection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InspectReason {
    StartedWriter,
}

/// Why a lane ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    Complete,
    ChainExhausted,
    /// The outcome is not covered by the saved policy.
    NotEligible,
    /// The next attempt is blocked.
    Unauthorized,
    UnsafeWriter,
}

/// Why a continuation is refused. The first six can be reached; state and history checks catch the rest before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DenialReason {
    NoContinuation,
    ExhaustedAllowance,
    MissingReadiness,
    ChangedFiles,
    UnsupportedTool,
    HandoffMalformed,
    ConflictingOperation,
    AmbiguousState,
}

/// A lane, its history and the terms of the run.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub lane: &'a Lane,
    /// Must have passed the history checks.
    pub events: &'a [Event],
    pub exhausted: &'a [Provider],
    pub access: Mode,
}

impl Situation<'_> {
    /// Decides. `look` is live for the answer and recorded for history.
    #[must_use]
    pub fn decide(&self, look: Look) -> Decision {
        if self.workers().any(|event| event.status == EventStatus::Complete) {
            return stop(StopReason::Complete);
        }
        let Some(at) = self.events.iter().rposition(Event::is_worker) else { return self.launch_from(0) };
        let (anchor, trailing) = (&self.events[at], &self.events[at + 1..]);
        match anchor.status {
            EventStatus::NeedsParentOperation => self.after_handoff(anchor, trailing, look),
            EventStatus::PermissionBlocked => self.after_denial(anchor, look),
            status => {
                let covered = status.fallback_reason().is_some_and(|reason| self.lane.fallback.on.contains(&reason));
                if !covered {
                    return stop(StopReason::NotEligible);
                }
                self.verdict(anchor).unwrap_or_else(|| self.launch_from(anchor.attempt + 1))
            }
        }
    }

    fn workers(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.is_worker())
    }

    /// What an inspection on record, or the lack of one, decides by itself.
    fn verdict(&self, anchor: &Event) -> Option<Decision> {
        if anchor.unsafe_writer() {
            Some(stop(StopReason::UnsafeWriter))
        } else if anchor.writer_gate(self.access) {
            None
        } else {
            Some(Decision::Inspect { reason: InspectReason::StartedWriter })
        }
    }

    fn after_handoff(&self, anchor: &Event, trailing: &[Event], look: Look) -> Decision {
        if anchor.execution.as_ref().is_some_and(|execution| execution.access != self.access) {
            return denied(DenialReason::MissingReadiness);
        }
        if let Some(decision) = self.verdict(anchor) {
            return decision;
        }
        match (trailing, &anchor.handoff) {
            ([], Some(handoff)) => {
                Decision::ParentOperation { attempt_index: anchor.attempt, operation: handoff.clone().into() }
            }
            ([], None) => denied(DenialReason::AmbiguousState),
            (done, _) if done.iter().any(|event| event.status != EventStatus::Complete) => {
                stop(StopReason::NotEligible)
            }
            _ => self.go_on(anchor, ContinuationReason::Handoff, look),
        }
    }

    fn after_denial(&self, anchor: &Event, look: Look) -> Decision {
        if let Some(decision) = self.verdict(anchor) {
            return decision;
        }
        match anchor.denied_cause {
            Some(DeniedCause::Permission) => self.go_on(anchor, ContinuationReason::Permission, look),
            Some(DeniedCause::ChangedFiles) => denied(DenialReason::ChangedFiles),
            Some(DeniedCause::UnsupportedTool | DeniedCause::Guard | DeniedCause::Other | DeniedCause::None) | None => {
                denied(DenialReason::UnsupportedTool)
            }
        }
    }

    /// The same descriptor again; never another provider.
    fn go_on(&self, blocked: &Event, reason: ContinuationReason, look: Look) -> Decision {
        let Some(policy) = self.lane.continuation.as_ref().filter(|policy| policy.on.contains(&reason)) else {
            return denied(DenialReason::NoContinuation);
        };
        let executions = self.workers().filter(|event| event.attempt == blocked.attempt).count() as u64;
        if executions >= policy.max_executions {
            return denied(DenialReason::ExhaustedAllowance);
        }
        let Some(attempt) = attempt(self.lane, blocked.attempt) else { return denied(DenialReason::AmbiguousState) };
        match ready(blocked, self.events, attempt, self.access, look) {
            None => denied(DenialReason::MissingReadiness),
            Some(next) => Decision::Continue {
                attempt_index: blocked.attempt,
                attempt: attempt.clone(),
                execution: executions + 1,
                prepared_execution: next.clone(),
            },
        }
    }

    /// A blocked attempt stops the lane even when its account is exhausted: it is never skipped.
    fn launch_from(&self, first: u64) -> Decision {
        for (attempt_index, attempt) in (0..).zip(&self.lane.attempts).filter(|(at, _)| *at >= first) {
            if attempt.blocked() {
                return stop(StopReason::Unauthorized);
            }
            if !self.exhausted.contains(&attempt.exhaustion_group) {
                return Decision::Launch { attempt_index, attempt: attempt.clone(), execution: 1 };
            }
        }
        stop(StopReason::ChainExhausted)
    }
}

/// An attempt of a lane by its zero-based index.
#[must_use]
pub fn attempt(lane: &Lane, index: u64) -> Option<&ResolvedAttempt> {
    usize::try_from(index).ok().and_then(|index| lane.attempts.get(index))
}

const fn stop(reason: StopReason) -> Decision {
    Decision::Stop { reason }
}

const fn denied(reason: DenialReason) -> Decision {
    Decision::PolicyDenied { reason }
}
