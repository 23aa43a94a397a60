//! Commands from the controller, one after the other: an attempt's cancel never overtakes its offer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use time::OffsetDateTime;
use tracing::{info, warn};

use super::Refusal;
use super::session::{Backoff, Session};
use crate::assignment::Assignment;
use crate::ids::Generation;
use crate::transport::Call;
use crate::transport::events::Record;
use crate::wire::error::code;
use crate::wire::paths;
use crate::wire::worker::{Command, CommandBody, Granted, LeaseRef, Refuse};

/// Follows the stream of commands until the session is over.
pub(super) async fn follow(session: &Arc<Session>) {
    let path = format!("{}?session={}", paths::worker_part(&session.worker, "commands"), session.id);
    let mut after = 0;
    let mut backoff = Backoff::new();
    loop {
        let opened = tokio::select! {
            () = session.over.cancelled() => return,
            opened = session.transport.records(&path, after) => opened,
        };
        match opened {
            Err(error) => {
                if session.judge(&error) {
                    return;
                }
                warn!(%error, "cannot follow commands, trying again");
            }
            Ok(mut records) => loop {
                let record = tokio::select! {
                    () = session.over.cancelled() => return,
                    record = records.next() => record,
                };
                match record {
                    Some(Ok(record)) => {
                        backoff.reset();
                        // One that cannot be read is asked for again; an agent of the right version can read it.
                        let Some(command) = read(&record) else { break };
                        carry_out(session, command.body).await;
                        after = command.seq;
                    }
                    Some(Err(error)) => {
                        warn!(%error, "lost the stream of commands");
                        break;
                    }
                    None => break,
                }
            },
        }
        if !backoff.pause(&session.over).await {
            return;
        }
    }
}

fn read(record: &Record) -> Option<Command> {
    serde_json::from_str(&record.data)
        .inspect_err(|error| warn!(%error, "a command cannot be understood: is the agent older than the controller?"))
        .ok()
}

async fn carry_out(session: &Arc<Session>, command: CommandBody) {
    match command {
        CommandBody::Offer { mut assignment, generation, deadline_in_ms } => {
            assignment.deadline = deadline_in_ms
                .and_then(|left| OffsetDateTime::now_utc().checked_add(Duration::from_millis(left).try_into().ok()?));
            take(session, *assignment, generation).await;
        }
        CommandBody::Cancel { attempt, signal, .. } => session.runner.cancel(attempt, signal),
        CommandBody::Release { attempt, generation } => {
            let lease = LeaseRef { session: session.id, attempt, generation };
            session.spawn(release(Arc::clone(session), lease));
        }
    }
}

/// Releases an attempt, again and again while the worker still has it (it may be busy cleaning up), then says so.
async fn release(session: Arc<Session>, lease: LeaseRef) {
    let mut backoff = Backoff::new();
    loop {
        session.runner.release(lease.attempt);
        if !session.runner.attempts().iter().any(|held| held.attempt == lease.attempt) {
            break;
        }
        if !backoff.pause(&session.over).await {
            return;
        }
    }
    session.forget(lease.attempt);
    // Not repeated: the next registration shows that it is gone.
    if let Err(error) = session.post("released", &lease).await {
        session.judge(&error);
    }
}

/// Claims an offer and hands it to the worker, or refuses it.
async fn take(session: &Arc<Session>, assignment: Assignment, generation: Generation) {
    let attempt = assignment.attempt;
    let lease = LeaseRef { session: session.id, attempt, generation };
    let Some((asked, granted)) = claim(session, &lease).await else { return };
    // By our own clock: after a long pause (a suspended laptop) nobody may wait for this attempt any more.
    let in_time = asked.elapsed() <= Duration::from_millis(granted.start_within_ms);
    let refusal = if in_time {
        match session.runner.offer(assignment, generation).await {
            Ok(()) => {
                session.ship(attempt, generation, 0);
                return;
            }
            Err(refusal) => refusal,
        }
    } else {
        Refusal::Busy("the answer to its claim came too late".to_owned())
    };
    info!(%attempt, %refusal, "refused an attempt");
    let elsewhere = matches!(refusal, Refusal::Busy(_));
    let refuse = Refuse { lease, reason: refusal.to_string(), elsewhere };
    let mut backoff = Backoff::new();
    while let Err(error) = session.post("refuse", &refuse).await {
        if session.judge(&error) || !error.is_passing() || !backoff.pause(&session.over).await {
            return;
        }
    }
}

/// Asks until there is an answer. `None` means that the attempt must not be started.
async fn claim(session: &Session, lease: &LeaseRef) -> Option<(Instant, Granted)> {
    let mut backoff = Backoff::new();
    loop {
        let asked = Instant::now();
        let call = Call::post(&paths::worker_part(&session.worker, "claim"), lease).ok()?;
        let answer = tokio::select! {
            () = session.over.cancelled() => return None,
            answer = session.transport.json::<Granted>(call) => answer,
        };
        match answer {
            Ok(granted) => return Some((asked, granted)),
            Err(error) if error.is_passing() => {
                warn!(attempt = %lease.attempt, %error, "the claim got no answer, asking again");
            }
            Err(error) => {
                if !session.judge(&error) && !error.is(code::STALE_LEASE) {
                    warn!(attempt = %lease.attempt, %error, "the claim was refused");
                }
                return None;
            }
        }
        if !backoff.pause(&session.over).await {
            return None;
        }
    }
}
