//! Workers come, beat and are checked against what we believe of them.

use std::collections::BTreeSet;

use agent::ids::{AttemptId, WorkerId};
use agent::wire::worker::{Acknowledged, Held, Register, Registered};
use uuid::Uuid;

use super::client::withdraw;
use super::{Effects, Now, Refused, World, commit};
use crate::core::attempt::State;
use crate::event::{Event, Withdrawal};

/// A worker registers, at its start or because we asked for it.
///
/// # Errors
/// Another agent that is alive uses the name, or a later registration came first.
pub fn on_register(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    register: &Register,
) -> Result<Registered, Refused> {
    let id = &register.worker;
    // The same again, whose first answer was lost or which was delayed: nothing in it is news.
    let repeated = world.core.worker(id).is_some_and(|known| known.session == register.session);
    if let Some(known) = world.core.worker(id) {
        let same_store = known.facts.store == register.facts.store;
        // Before a whole lease has been listened, a known worker counts as alive.
        let alive = !known.lost && world.liveness.silent_for(id, now) <= world.timing.lease;
        if !same_store && alive {
            return Err(Refused::NameTaken(id.clone()));
        }
    }
    if !repeated && is_late(world, register) {
        return Err(Refused::StaleSession(id.clone()));
    }
    if repeated {
        check_session(world, id, register.session)?;
        hear(world, effects, now, id);
    } else {
        let event = Event::Joined {
            worker: id.clone(),
            session: register.session,
            facts: Box::new(register.facts.clone()),
            number: register.number,
        };
        commit(world, effects, now, event);
        hear(world, effects, now, id);
        take_held(world, effects, now, id, &register.held);
        miss_absent(world, effects, now, register);
    }
    let acknowledged = register.held.iter().filter_map(|held| {
        let last_seq = world.core.attempt(held.attempt)?.last_seq;
        Some(Acknowledged { attempt: held.attempt, last_seq })
    });
    Ok(Registered {
        acknowledged: acknowledged.collect(),
        heartbeat_ms: millis(world.timing.heartbeat),
        lease_ms: millis(world.timing.lease),
    })
}

/// True if the agent has registered or claimed something since it wrote this: what it held then says nothing of that.
fn is_late(world: &World, register: &Register) -> bool {
    let (id, store, number) = (&register.worker, register.facts.store, register.number);
    let newer = world.core.worker(id).is_some_and(|known| known.facts.store == store && known.number > number);
    number > 0 && (newer || world.core.claimed_under(id, store).is_some_and(|claimed| claimed >= number))
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A sign of life. What the worker holds is compared with what we believe.
///
/// # Errors
/// The worker must register first.
pub fn on_heartbeat(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    worker: &WorkerId,
    session: Uuid,
    held: &[Held],
) -> Result<(), Refused> {
    check_session(world, worker, session)?;
    hear(world, effects, now, worker);
    take_held(world, effects, now, worker, held);
    Ok(())
}

/// Checks that a message comes from the newest registration of a worker.
///
/// # Errors
/// The worker must register first.
pub fn check_session(world: &World, worker: &WorkerId, session: Uuid) -> Result<(), Refused> {
    let known = world.core.worker(worker).ok_or_else(|| Refused::NoSuchWorker(worker.clone()))?;
    let shut_out = world.liveness.shut_out.get(worker) == Some(&session);
    if known.session == session && !shut_out { Ok(()) } else { Err(Refused::StaleSession(worker.clone())) }
}

/// Any message from a worker is a sign of life.
pub(super) fn hear(world: &mut World, effects: &mut Effects, now: Now, worker: &WorkerId) {
    world.liveness.heard.insert(worker.clone(), now.tick);
    world.liveness.lost_since.remove(worker);
    if world.core.worker(worker).is_some_and(|known| known.lost) {
        commit(world, effects, now, Event::Found { worker: worker.clone() });
    }
}

/// Whatever a worker holds may have started: it keeps it, unless another one holds it by right.
fn take_held(world: &mut World, effects: &mut Effects, now: Now, worker: &WorkerId, held: &[Held]) {
    for held in held {
        let bring = || Event::Brought { attempt: held.attempt, worker: worker.clone(), generation: held.generation };
        let event = match world.core.attempt(held.attempt).map(|attempt| attempt.state.clone()) {
            None | Some(State::Queued) => bring(),
            Some(State::Offered { worker: to, generation, .. }) if to == *worker && generation == held.generation => {
                Event::Claimed { attempt: held.attempt }
            }
            Some(State::Offered { .. }) => bring(),
            Some(State::Held { worker: by, generation, interrupted: true, .. })
                if by == *worker && generation == held.generation =>
            {
                Event::Resumed { attempt: held.attempt }
            }
            Some(State::Ended { worker: Some(by), released: true, .. }) if by == *worker => {
                Event::Released { attempt: held.attempt, done: false }
            }
            // Held as we know it; or by another worker by right: its reports are refused, and it stops by itself.
            Some(State::Held { .. } | State::Ended { .. }) => continue,
        };
        commit(world, effects, now, event);
        effects.workers.insert(worker.clone());
    }
}

/// What a registering worker does not hold. With the state directory that it had when it claimed, and written after the claim,
/// an attempt that never told anything was never taken and waits again; everything else is interrupted, for it may have started.
fn miss_absent(world: &mut World, effects: &mut Effects, now: Now, register: &Register) {
    let held: BTreeSet<AttemptId> = register.held.iter().map(|held| held.attempt).collect();
    let Some(known) = world.core.worker(&register.worker) else { return };
    let facts_store = known.facts.store;
    let absent = |id: &&AttemptId| !held.contains(*id);
    let placed: Vec<AttemptId> = known.placed.iter().filter(absent).copied().collect();
    let unreleased: Vec<AttemptId> = known.unreleased.iter().filter(absent).copied().collect();
    for id in placed {
        let Some(attempt) = world.core.attempt(id) else { continue };
        match attempt.state {
            State::Held { started: false, store, number, .. }
                if store == facts_store
                    && number < register.number
                    && attempt.last_seq == 0
                    && attempt.order.is_some()
                    && !register.damaged.contains(&id) =>
            {
                withdraw(world, effects, now, id, Withdrawal::NotHeld);
            }
            State::Held { interrupted: false, .. } => {
                commit(world, effects, now, Event::Interrupted { attempt: id });
            }
            State::Held { .. } | State::Queued | State::Offered { .. } | State::Ended { .. } => {}
        }
    }
    for id in unreleased {
        commit(world, effects, now, Event::Released { attempt: id, done: true });
    }
}
