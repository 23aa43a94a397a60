//! The state in the words of the API.

use agent::ids::{AttemptId, WorkerId};
use agent::wire::attempt::{AttemptState, AttemptView, QueueEntry};
use agent::wire::worker::{WorkerState, WorkerView};

use super::Core;
use super::attempt::{Attempt, State};
use crate::schedule;

impl Core {
    /// One attempt for clients.
    #[must_use]
    pub fn view(&self, id: AttemptId) -> Option<AttemptView> {
        let attempt = self.attempt(id)?;
        let order = attempt.order.as_deref();
        Some(AttemptView {
            attempt: id,
            submitter: attempt.submitter().to_owned(),
            provider: order.map(|order| order.provider),
            model: order.map(|order| order.model.clone()),
            effort: order.and_then(|order| order.effort),
            mode: order.map(|order| order.mode),
            execution_id: order.map(|order| order.execution_id.clone()),
            submitted_at: attempt.submitted_at,
            state: self.state_view(id, attempt),
            last_seq: attempt.last_seq,
            cancel: attempt.cancel.as_ref().map(|cancel| cancel.signal),
            delivered: attempt.delivered,
        })
    }

    fn state_view(&self, id: AttemptId, attempt: &Attempt) -> AttemptState {
        match attempt.state.clone() {
            State::Queued => {
                let place = self.queue.range(..(attempt.submitted_seq, id)).count() + 1;
                let reason = schedule::reason(self, id).to_string();
                AttemptState::Queued { position: u32::try_from(place).unwrap_or(u32::MAX), reason }
            }
            State::Offered { worker, generation, .. } => AttemptState::Offered { worker, generation },
            State::Held { worker, generation, started, interrupted: true, .. } => {
                AttemptState::Interrupted { worker, generation, started }
            }
            State::Held { worker, generation, started, interrupted: false, .. } => {
                if self.worker(&worker).is_some_and(|worker| worker.lost) {
                    AttemptState::Unreachable { worker, generation, started }
                } else {
                    AttemptState::Running { worker, generation, started }
                }
            }
            State::Ended { worker, status, .. } => AttemptState::Ended { status, worker },
        }
    }

    /// One worker for operators.
    #[must_use]
    pub fn worker_view(&self, id: &WorkerId) -> Option<WorkerView> {
        let worker = self.worker(id)?;
        let state = match (worker.lost, worker.draining) {
            (true, _) => WorkerState::Unreachable,
            (false, true) => WorkerState::Draining,
            (false, false) => WorkerState::Ready,
        };
        let used = u32::try_from(worker.placed.len()).unwrap_or(u32::MAX);
        let holds = worker.holds().collect();
        Some(WorkerView { worker: id.clone(), state, facts: worker.facts.clone(), used, holds, revoked: false })
    }

    /// What waits and why, from position `after + 1` on.
    #[must_use]
    pub fn queue_view(&self, after: u32, limit: usize) -> Vec<QueueEntry> {
        let skip = usize::try_from(after).unwrap_or(usize::MAX);
        let entries = self.queue().enumerate().skip(skip).take(limit);
        entries
            .map(|(index, (id, attempt))| QueueEntry {
                position: u32::try_from(index + 1).unwrap_or(u32::MAX),
                attempt: id,
                submitter: attempt.submitter().to_owned(),
                submitted_at: attempt.submitted_at,
                reason: schedule::reason(self, id).to_string(),
                panel: attempt.order.as_ref().and_then(|order| order.panel.clone()),
            })
            .collect()
    }
}
