//! Time passes: who has been silent for too long, and who gets work.

use agent::ids::{AttemptId, Generation, WorkerId};

use super::client::withdraw;
use super::{Effects, Now, World, commit};
use crate::core::attempt::State;
use crate::event::{Event, Withdrawal};
use crate::schedule;

/// Passes verdicts on silence. Called regularly.
pub fn on_tick(world: &mut World, effects: &mut Effects, now: Now) {
    world.liveness.resting.retain(|_, until| *until > now.tick);
    let workers: Vec<WorkerId> = world.core.workers().keys().cloned().collect();
    for worker in workers {
        let Some(known) = world.core.worker(&worker) else { continue };
        if known.lost {
            interrupt_long_lost(world, effects, now, &worker);
        } else if world.liveness.silent_for(&worker, now) > world.timing.lease {
            on_silence(world, effects, now, &worker);
        }
    }
}

/// A worker whose credential was revoked: nobody hears it any more, so it counts as silent at once.
pub fn on_shut_out(world: &mut World, effects: &mut Effects, now: Now, worker: &WorkerId) {
    let Some(known) = world.core.worker(worker) else { return };
    let lost = known.lost;
    world.liveness.shut_out.insert(worker.clone(), known.session);
    if !lost {
        on_silence(world, effects, now, worker);
    }
}

fn on_silence(world: &mut World, effects: &mut Effects, now: Now, worker: &WorkerId) {
    world.liveness.lost_since.insert(worker.clone(), now.tick);
    commit(world, effects, now, Event::Lost { worker: worker.clone() });
    for attempt in placed(world, worker) {
        // Never claimed, so never started: the generation moves on, and a late claim is refused.
        if matches!(world.core.attempt(attempt).map(|a| &a.state), Some(State::Offered { .. })) {
            withdraw(world, effects, now, attempt, Withdrawal::WorkerLost);
        }
    }
}

fn interrupt_long_lost(world: &mut World, effects: &mut Effects, now: Now, worker: &WorkerId) {
    // A worker that was lost before this process began is given the whole time again.
    let since = *world.liveness.lost_since.entry(worker.clone()).or_insert(now.tick);
    if now.tick.saturating_sub(since) <= world.timing.interrupt_after {
        return;
    }
    for attempt in placed(world, worker) {
        let state = world.core.attempt(attempt).map(|attempt| &attempt.state);
        if matches!(state, Some(State::Held { interrupted: false, .. })) {
            commit(world, effects, now, Event::Interrupted { attempt });
        }
    }
}

fn placed(world: &World, worker: &WorkerId) -> Vec<AttemptId> {
    world.core.worker(worker).map(|worker| worker.placed.iter().copied().collect()).unwrap_or_default()
}

/// Waiting attempts whose deadline has passed. Whoever can write their receipts ends them.
#[must_use]
pub fn overdue(world: &World, now: Now) -> Vec<AttemptId> {
    let late = world.core.queue().filter(|(_, attempt)| {
        attempt.order.as_ref().and_then(|order| order.deadline).is_some_and(|deadline| deadline <= now.at)
    });
    late.map(|(id, _)| id).collect()
}

/// Offers what can be placed. Called after everything that may have made room.
pub fn place(world: &mut World, effects: &mut Effects, now: Now) {
    let resting = |worker: &WorkerId| world.liveness.silent_for(worker, now) > world.timing.lease;
    let avoid = |attempt: AttemptId, worker: &WorkerId| {
        world.liveness.resting.get(&(attempt, worker.clone())).is_some_and(|until| *until > now.tick)
    };
    for placement in schedule::plan(&world.core, &resting, &avoid) {
        let Some(attempt) = world.core.attempt(placement.attempt) else { continue };
        let generation = Generation(attempt.generation + 1);
        let event = Event::Offered { attempt: placement.attempt, worker: placement.worker, generation };
        commit(world, effects, now, event);
    }
}
