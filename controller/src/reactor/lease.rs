//! Claims, refusals, reports: everything that is said under a lease. What carries an older one is late and changes
//! nothing.

use agent::event::{EventBody, Phase};
use agent::ids::{AttemptId, Generation, WorkerId};
use agent::wire::worker::{Acknowledged, Granted, LeaseRef, Refuse, Report};
use serde_json::Value;
use uuid::Uuid;

use super::client::{end_here, status_of, withdraw};
use super::worker::{check_session, hear};
use super::{Effects, Now, Refused, World, commit};
use crate::core::attempt::{Attempt, State};
use crate::event::{Event, Withdrawal};

/// A refusing worker is not offered the same attempt again for so long.
const REST: std::time::Duration = std::time::Duration::from_secs(1);

fn known(world: &World, id: AttemptId) -> Result<&Attempt, Refused> {
    world.core.attempt(id).ok_or(Refused::NoSuchAttempt(id))
}

/// A worker wants to start what it was offered. Repeated claims are granted again: the lease is the same.
///
/// # Errors
/// The offer is void.
pub fn on_claim(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    worker: &WorkerId,
    lease: &LeaseRef,
) -> Result<Granted, Refused> {
    check_session(world, worker, lease.session)?;
    hear(world, effects, now, worker);
    let attempt = known(world, lease.attempt)?;
    match &attempt.state {
        State::Offered { worker: to, generation, .. } if to == worker && *generation == lease.generation => {
            commit(world, effects, now, Event::Claimed { attempt: lease.attempt });
        }
        State::Held { .. } if attempt.is_held_by(worker, lease.generation) => {}
        State::Queued | State::Offered { .. } | State::Held { .. } | State::Ended { .. } => {
            return Err(Refused::StaleLease(lease.attempt));
        }
    }
    let start_within_ms = u64::try_from(world.timing.start_within.as_millis()).unwrap_or(u64::MAX);
    Ok(Granted { start_within_ms })
}

/// A worker proves that it will not start an attempt. `unstarted` is the receipt if nobody should.
///
/// # Errors
/// The lease is not this worker's.
pub fn on_refuse(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    worker: &WorkerId,
    refuse: &Refuse,
    unstarted: Option<Value>,
) -> Result<(), Refused> {
    check_session(world, worker, refuse.lease.session)?;
    hear(world, effects, now, worker);
    let id = refuse.lease.attempt;
    let attempt = known(world, id)?;
    let theirs = match &attempt.state {
        State::Offered { worker: to, generation, .. } => to == worker && *generation == refuse.lease.generation,
        // Nothing was told yet, else it would have been taken.
        State::Held { .. } => attempt.is_held_by(worker, refuse.lease.generation) && attempt.last_seq == 0,
        State::Queued | State::Ended { .. } => false,
    };
    if !theirs {
        return Err(Refused::StaleLease(id));
    }
    withdraw(world, effects, now, id, Withdrawal::Refused);
    world.liveness.resting.insert((id, worker.clone()), now.tick + REST);
    let waits = world.core.attempt(id).is_some_and(|attempt| attempt.state == State::Queued);
    if waits
        && !refuse.elsewhere
        && let Some(receipt) = unstarted
    {
        end_here(world, effects, now, id, receipt);
    }
    Ok(())
}

/// A stretch of an attempt's log. What is known already is skipped; what does not follow on is not taken, and the
/// answer says from where to send again.
///
/// # Errors
/// The lease is not this worker's, the report is malformed, or its terminal event promises an answer not yet stored.
pub fn on_report(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    worker: &WorkerId,
    report: Report,
) -> Result<Acknowledged, Refused> {
    check_session(world, worker, report.session)?;
    hear(world, effects, now, worker);
    let id = report.attempt;
    check_report(&report)?;
    let attempt = known(world, id)?;
    let acknowledged = |last_seq| Acknowledged { attempt: id, last_seq };
    match &attempt.state {
        State::Held { .. } if attempt.is_held_by(worker, report.generation) => {}
        State::Ended { worker: Some(by), generation, .. } if by == worker && *generation == report.generation => {
            return Ok(acknowledged(attempt.last_seq));
        }
        State::Queued | State::Offered { .. } | State::Held { .. } | State::Ended { .. } => {
            return Err(Refused::StaleLease(id));
        }
    }
    let last = attempt.last_seq;
    if report.first_seq > last + 1 {
        return Ok(acknowledged(last));
    }
    let fresh: Vec<_> = report.events.into_iter().filter(|event| event.seq > last).collect();
    let Some(newest) = fresh.last() else { return Ok(acknowledged(last)) };
    let through = newest.seq;
    let mut ended = None;
    if let EventBody::Terminal { receipt, answer_bytes } = &newest.body {
        if answer_bytes.is_some() && attempt.answer.is_none() {
            return Err(Refused::AnswerMissing(id));
        }
        ended = Some(status_of(receipt));
    }
    let interrupted = matches!(attempt.state, State::Held { interrupted: true, .. });
    let started = fresh.iter().any(|event| matches!(event.body, EventBody::Status { phase: Phase::Running, .. }));
    effects.events.push((id, fresh));
    if interrupted {
        commit(world, effects, now, Event::Resumed { attempt: id });
    }
    commit(world, effects, now, Event::Reported { attempt: id, through, started });
    if let Some(status) = ended {
        commit(world, effects, now, Event::Ended { attempt: id, status });
    }
    Ok(acknowledged(through))
}

fn check_report(report: &Report) -> Result<(), Refused> {
    let bad = |why| Err(Refused::BadReport(report.attempt, why));
    if report.first_seq == 0 {
        return bad("numbers begin with 1");
    }
    for (index, (expected, event)) in (report.first_seq..).zip(&report.events).enumerate() {
        if event.seq != expected {
            return bad("its events have a hole");
        }
        if event.body.is_live() || matches!(event.body, EventBody::Gap { .. }) {
            return bad("it has an event of a kind that is not kept");
        }
        let last = index + 1 == report.events.len();
        if matches!(event.body, EventBody::Terminal { .. }) && !last {
            return bad("something follows its terminal event");
        }
    }
    Ok(())
}

/// Checks before an upload that the worker holds the attempt.
///
/// # Errors
/// The lease is not this worker's.
pub fn check_lease(world: &World, worker: &WorkerId, lease: &LeaseRef) -> Result<(), Refused> {
    check_session(world, worker, lease.session)?;
    check_holder(world, worker, lease.attempt, lease.generation).map(drop)
}

/// The attempt, if the worker holds it or ended it under this generation. Asked by attempts that go on while their worker
/// registers again, so no session is wanted: the generation fences.
///
/// # Errors
/// The lease is not this worker's.
pub fn check_holder<'w>(
    world: &'w World,
    worker: &WorkerId,
    id: AttemptId,
    under: Generation,
) -> Result<&'w Attempt, Refused> {
    let attempt = known(world, id)?;
    let ended = matches!(&attempt.state, State::Ended { worker: Some(by), generation, .. }
        if by == worker && *generation == under);
    if ended || attempt.is_held_by(worker, under) { Ok(attempt) } else { Err(Refused::StaleLease(id)) }
}

/// The answer's bytes are durable.
///
/// # Errors
/// The lease is not this worker's.
pub fn on_answer(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    worker: &WorkerId,
    lease: &LeaseRef,
    digest: String,
    bytes: u64,
) -> Result<(), Refused> {
    check_lease(world, worker, lease)?;
    hear(world, effects, now, worker);
    let attempt = known(world, lease.attempt)?;
    let ended = matches!(attempt.state, State::Ended { .. });
    if !ended && attempt.answer.as_ref() != Some(&(digest.clone(), bytes)) {
        commit(world, effects, now, Event::AnswerKept { attempt: lease.attempt, digest, bytes });
    }
    Ok(())
}

/// The worker has forgotten an ended attempt.
///
/// # Errors
/// The session is not the newest.
pub fn on_released(
    world: &mut World,
    effects: &mut Effects,
    now: Now,
    worker: &WorkerId,
    session: Uuid,
    id: AttemptId,
    under: Generation,
) -> Result<(), Refused> {
    check_session(world, worker, session)?;
    let pending = matches!(&known(world, id)?.state, State::Ended { worker: Some(by), generation, released: false, .. }
        if by == worker && *generation == under);
    if pending {
        commit(world, effects, now, Event::Released { attempt: id, done: true });
    }
    Ok(())
}
