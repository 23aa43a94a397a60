//! Could the recorded events have happened under this sheet (policy-and-contract section 6).

use super::decision::{Decision, Situation, attempt};
use super::recovery::{Look, ready};
use super::state::{Event, Execution};
use super::words::{ContinuationReason, DeniedCause, EventStatus};

/// The record and the sheet contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    #[error("event {event}: attempt {attempt} is not in the lane, which has {count}")]
    OutOfRange { event: usize, attempt: u64, count: usize },
    #[error("event {event}: the sheet does not authorize attempt {attempt}, so it cannot have run")]
    NotAuthorized { event: usize, attempt: u64 },
    #[error("event {event}: \"continuationOrdinal\" is {found}, but {expected} earlier execution(s) are recorded")]
    Ordinal { event: usize, found: u64, expected: u64 },
    #[error("event {event}: a parent operation cannot come first")]
    OperationFirst { event: usize },
    #[error("event {event}: the event before could not advance to it")]
    CouldNotAdvance { event: usize },
    #[error("event {event}: recorded continuation was not the prepared one")]
    RecordedContinuation { event: usize },
    #[error("event {event}: event history skips attempt {attempt}, which is not exhausted or not authorized")]
    Skips { event: usize, attempt: u64 },
}

impl Situation<'_> {
    /// Checks all events in order.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check_history(&self) -> Result<(), HistoryError> {
        (0..self.events.len()).try_for_each(|at| self.check_event(at))
    }

    fn check_event(&self, at: usize) -> Result<(), HistoryError> {
        let event = &self.events[at];
        let before = at.checked_sub(1).map(|before| &self.events[before]);
        let (index, count) = (event.attempt, self.lane.attempts.len());
        let Some(own) = attempt(self.lane, index) else {
            return Err(HistoryError::OutOfRange { event: at, attempt: index, count });
        };
        if own.blocked() {
            return Err(HistoryError::NotAuthorized { event: at, attempt: index });
        }
        if event.is_worker() {
            let expected = self.ordinal(at);
            if let Some(found) = event.continuation_ordinal.filter(|found| *found != expected) {
                return Err(HistoryError::Ordinal { event: at, found, expected });
            }
        } else if before.is_none() {
            return Err(HistoryError::OperationFirst { event: at });
        }
        if let Some(before) = before {
            if !self.may_follow(before, event, at) {
                return Err(HistoryError::CouldNotAdvance { event: at });
            }
            let continues = before.status == EventStatus::PermissionBlocked || !before.is_worker();
            if continues && self.prepared(at).is_none_or(|next| event.execution.as_ref() != Some(&next)) {
                return Err(HistoryError::RecordedContinuation { event: at });
            }
        }
        let first = before.map_or(0, |before| before.attempt + 1);
        match (first..index).find(|skipped| !self.may_skip(*skipped)) {
            Some(attempt) => Err(HistoryError::Skips { event: at, attempt }),
            None => Ok(()),
        }
    }

    /// Earlier executions of the same attempt.
    fn ordinal(&self, at: usize) -> u64 {
        let same = |event: &&Event| event.is_worker() && event.attempt == self.events[at].attempt;
        self.events[..at].iter().filter(same).count() as u64
    }

    fn may_follow(&self, before: &Event, event: &Event, at: usize) -> bool {
        if before.unsafe_writer() {
            return false;
        }
        let same_attempt = before.attempt == event.attempt;
        if !before.is_worker() {
            return before.status == EventStatus::Complete && event.is_worker() && same_attempt;
        }
        match before.status {
            EventStatus::Complete | EventStatus::Failed => false,
            EventStatus::NeedsParentOperation => {
                let same_access = before.execution.as_ref().is_none_or(|execution| execution.access == self.access);
                let scope = before.handoff.as_ref().map(|handoff| &handoff.scope);
                same_access
                    && before.writer_gate(self.access)
                    && same_attempt
                    && event.parent_operation.is_some()
                    && event.parent_operation.as_ref() == scope
            }
            EventStatus::PermissionBlocked => {
                before.denied_cause == Some(DeniedCause::Permission)
                    && self.lane.continuation.as_ref().is_some_and(|it| it.on.contains(&ContinuationReason::Permission))
                    && event.is_worker()
                    && same_attempt
                    && self.ordinal(at) == self.ordinal(at - 1) + 1
                    && self.ready_alone(before).is_some_and(|next| event.execution.as_ref() == Some(next))
            }
            status => {
                status.fallback_reason().is_some_and(|reason| self.lane.fallback.on.contains(&reason))
                    && before.writer_gate(self.access)
                    && event.is_worker()
                    && event.attempt > before.attempt
            }
        }
    }

    fn ready_alone<'a>(&self, blocked: &'a Event) -> Option<&'a Execution> {
        let attempt = attempt(self.lane, blocked.attempt)?;
        ready(blocked, std::slice::from_ref(blocked), attempt, self.access, Look::Recorded)
    }

    /// The identity that the decision over the events before `at` prepared.
    fn prepared(&self, at: usize) -> Option<Execution> {
        match (Situation { events: &self.events[..at], ..*self }).decide(Look::Recorded) {
            Decision::Continue { prepared_execution, .. } => Some(prepared_execution),
            _ => None,
        }
    }

    fn may_skip(&self, index: u64) -> bool {
        attempt(self.lane, index)
            .is_some_and(|attempt| !attempt.blocked() && self.exhausted.contains(&attempt.exhaustion_group))
    }
}
