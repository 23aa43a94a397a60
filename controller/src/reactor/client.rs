//! What clients ask for.

use agent::assignment::Assignment;
use agent::event::{Event as Told, EventBody};
use agent::ids::{AttemptId, WorkerId};
use agent::receipt::Status;
use agent::wire::attempt::CancelSignal;
use agent::wire::worker::WorkerView;
use serde_json::Value;

use super::{Effects, Now, Refused, World, commit};
use crate::core::attempt::State;
use crate::event::{Event, Order, Withdrawal};

/// True if it is the same again, false if the id is new.
///
/// # Errors
/// The id was used by another submitter, whatever for, or by this one for another submission.
pub fn is_repeated(world: &World, id: AttemptId, order: &Order) -> Result<bool, Refused> {
    let Some(known) = world.core.attempt(id) else { return Ok(false) };
    match &known.order {
        // Before the body is looked at: whether it is the same is for its submitter only.
        Some(known) if known.submitter != order.submitter => {
            Err(Refused::NotYours(id, known.submitter.clone(), order.submitter.clone()))
        }
        Some(known) if known.digest == order.digest => Ok(true),
        Some(_) | None => Err(Refused::IdReused(id)),
    }
}

/// A submission: new, or the same again.
///
/// # Errors
/// As [`is_repeated`].
pub fn on_submit(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    order: Order,
    assignment: Assignment,
) -> Result<(), Refused> {
    let id = assignment.attempt;
    if is_repeated(world, id, &order)? {
        return Ok(());
    }
    effects.assignments.push((id, assignment));
    commit(world, effects, now, Event::Submitted { attempt: id, order: Box::new(order) });
    Ok(())
}

/// A cancel, and who asks for it. The first one counts. `unstarted` is the receipt for an attempt that provably never starts.
///
/// # Errors
/// The attempt is unknown.
pub fn on_cancel(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    id: AttemptId,
    (signal, by): (CancelSignal, String),
    unstarted: Option<Value>,
) -> Result<(), Refused> {
    let attempt = world.core.attempt(id).ok_or(Refused::NoSuchAttempt(id))?;
    if attempt.cancel.is_some() || matches!(attempt.state, State::Ended { .. }) {
        return Ok(());
    }
    let offered = matches!(attempt.state, State::Offered { .. });
    let unstarted = unstarted.map(Box::new);
    commit(world, effects, now, Event::CancelRequested { attempt: id, signal, unstarted, by: Some(by) });
    if offered {
        withdraw(world, effects, now, id, Withdrawal::Cancelled);
    } else {
        end_if_cancelled(world, effects, now, id);
    }
    Ok(())
}

/// A client tells what it gave to its caller. The newest word counts: who finishes a lane for a killed client says it anew.
///
/// # Errors
/// The attempt is unknown.
pub fn on_delivered(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    id: AttemptId,
    status: Status,
) -> Result<(), Refused> {
    let attempt = world.core.attempt(id).ok_or(Refused::NoSuchAttempt(id))?;
    if attempt.delivered.is_none_or(|known| known.status != status) {
        commit(world, effects, now, Event::Delivered { attempt: id, status });
    }
    Ok(())
}

/// Makes an offer void. The attempt waits again, or ends if a client has cancelled it.
pub(super) fn withdraw(world: &mut World, effects: &mut Effects, now: Now, id: AttemptId, why: Withdrawal) {
    commit(world, effects, now, Event::Withdrawn { attempt: id, why });
    end_if_cancelled(world, effects, now, id);
}

fn end_if_cancelled(world: &mut World, effects: &mut Effects, now: Now, id: AttemptId) {
    let Some(attempt) = world.core.attempt(id) else { return };
    if attempt.state == State::Queued
        && let Some(receipt) = attempt.cancel.as_ref().and_then(|cancel| cancel.unstarted.clone())
    {
        end_here(world, effects, now, id, *receipt);
    }
}

/// Ends an attempt whose deadline passed while it waited.
pub fn on_overdue(world: &mut World, effects: &mut Effects, now: Now, id: AttemptId, receipt: Value) {
    if world.core.attempt(id).is_some_and(|attempt| attempt.state == State::Queued) {
        end_here(world, effects, now, id, receipt);
    }
}

/// Ends an attempt that no worker has, with a receipt of our own as its only event.
pub(super) fn end_here(world: &mut World, effects: &mut Effects, now: Now, id: AttemptId, receipt: Value) {
    let Some(attempt) = world.core.attempt(id) else { return };
    let seq = attempt.last_seq + 1;
    let status = status_of(&receipt);
    let body = EventBody::Terminal { receipt, answer_bytes: None };
    effects.events.push((id, vec![Told { seq, at: now.at, body }]));
    commit(world, effects, now, Event::Reported { attempt: id, through: seq, started: false });
    commit(world, effects, now, Event::Ended { attempt: id, status });
}

/// The receipt's status word; a receipt without one is shown as such.
pub(super) fn status_of(receipt: &Value) -> String {
    receipt.get("status").and_then(Value::as_str).unwrap_or("unknown").to_owned()
}

/// What an operator does with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    Drain,
    Resume,
    /// `abandon`: also if it still has attempts.
    Remove {
        abandon: bool,
    },
}

/// Drains, resumes or removes a worker.
///
/// # Errors
/// The worker is unknown, or still has attempts when it is to be removed.
pub fn on_steer(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    id: &WorkerId,
    steer: Steer,
) -> Result<WorkerView, Refused> {
    let unknown = || Refused::NoSuchWorker(id.clone());
    let worker = world.core.worker(id).ok_or_else(unknown)?;
    let draining = match steer {
        Steer::Drain => true,
        Steer::Resume => false,
        Steer::Remove { abandon } => {
            let holds: Vec<AttemptId> = worker.holds().collect();
            if !holds.is_empty() && !abandon {
                return Err(Refused::WorkerBusy(id.clone(), holds));
            }
            let view = world.core.worker_view(id).ok_or_else(unknown)?;
            for attempt in holds {
                let_go(world, effects, now, attempt);
            }
            commit(world, effects, now, Event::Removed { worker: id.clone() });
            world.liveness.heard.remove(id);
            return Ok(view);
        }
    };
    if worker.draining != draining {
        commit(world, effects, now, Event::Steered { worker: id.clone(), draining });
    }
    world.core.worker_view(id).ok_or_else(unknown)
}

/// The worker of this attempt is about to be removed. An offer waits again; what may have started is interrupted, and
/// only its own worker can still bring its receipt.
fn let_go(world: &mut World, effects: &mut Effects, now: Now, id: AttemptId) {
    match world.core.attempt(id).map(|attempt| &attempt.state) {
        Some(State::Offered { .. }) => withdraw(world, effects, now, id, Withdrawal::WorkerLost),
        Some(State::Held { interrupted: false, .. }) => {
            commit(world, effects, now, Event::Interrupted { attempt: id });
        }
        _ => {}
    }
}
