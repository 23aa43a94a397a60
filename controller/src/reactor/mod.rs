//! What happens when something happens: plain functions over the state, without a clock, a file or a connection.
//! Each decides, commits events and leaves effects; whoever calls makes the events durable before anybody hears of them.

pub mod client;
pub mod lease;
pub mod retain;
pub mod tick;
pub mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent::assignment::Assignment;
use agent::ids::{AttemptId, WorkerId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::core::Core;
use crate::event::{Entry, Event};

/// One moment. Durations are measured by `tick`, which no one can set back; `at` is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub at: OffsetDateTime,
    /// Monotonic time since the controller started.
    pub tick: Duration,
}

/// How long the controller waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A heartbeat is due this often.
    pub heartbeat: Duration,
    /// A worker that is silent for longer is unreachable.
    pub lease: Duration,
    /// An attempt on an unreachable worker is interrupted after this time.
    pub interrupt_after: Duration,
    /// A granted claim must start within this time, by the worker's own clock.
    pub start_within: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            interrupt_after: Duration::from_secs(600),
            start_within: Duration::from_secs(60),
        }
    }
}

/// What is known only as long as this process lives: who was heard when. A new process has heard nobody yet, so it
/// passes no verdict before it has listened for a whole lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Liveness {
    listening_since: Duration,
    heard: BTreeMap<WorkerId, Duration>,
    lost_since: BTreeMap<WorkerId, Duration>,
    /// Registrations whose credential was revoked: what they sent before that is late.
    shut_out: BTreeMap<WorkerId, Uuid>,
    /// Until when a worker that refused an attempt is not offered it again.
    resting: BTreeMap<(AttemptId, WorkerId), Duration>,
}

impl Liveness {
    /// Nobody has been heard yet.
    #[must_use]
    pub fn starting(now: Now) -> Self {
        Self { listening_since: now.tick, ..Self::default() }
    }

    fn silent_for(&self, worker: &WorkerId, now: Now) -> Duration {
        let heard = self.heard.get(worker).copied().unwrap_or(self.listening_since);
        now.tick.saturating_sub(heard)
    }
}

/// The whole state behind the loop.
#[derive(Clone, Debug)]
pub struct World {
    pub core: Core,
    pub liveness: Liveness,
    pub timing: Timing,
}

/// What must happen outside, in this order: everything is made durable, then those concerned look again.
#[derive(Debug, Default, PartialEq)]
pub struct Effects {
    pub journal: Vec<Entry>,
    pub assignments: Vec<(AttemptId, Assignment)>,
    pub events: Vec<(AttemptId, Vec<agent::event::Event>)>,
    /// Attempts whose watchers look again.
    pub attempts: BTreeSet<AttemptId>,
    /// Workers whose command streams look again.
    pub workers: BTreeSet<WorkerId>,
}

impl Effects {
    /// True when nothing has to be made durable.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        self.journal.is_empty() && self.assignments.is_empty() && self.events.is_empty()
    }
}

/// A request that the state does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("no attempt {0} was submitted here")]
    NoSuchAttempt(AttemptId),
    #[error("attempt {0} was submitted before with another body")]
    IdReused(AttemptId),
    /// Of whom it is, and who asks.
    #[error("attempt {0} was submitted by `{1}`, and the credential is of `{2}`")]
    NotYours(AttemptId, String, String),
    #[error("worker {0} is not registered here")]
    NoSuchWorker(WorkerId),
    #[error("worker {0} has registered again since")]
    StaleSession(WorkerId),
    #[error("the name {0} is used by another agent that is alive")]
    NameTaken(WorkerId),
    #[error("the lease of attempt {0} has moved on")]
    StaleLease(AttemptId),
    #[error("the report on attempt {0} is malformed: {1}")]
    BadReport(AttemptId, &'static str),
    #[error("attempt {0} ended with an answer that was not stored")]
    AnswerMissing(AttemptId),
    #[error("worker {0} still has {n} attempt(s): {list}", n = .1.len(), list = listed(.1))]
    WorkerBusy(WorkerId, Vec<AttemptId>),
}

fn listed(attempts: &[AttemptId]) -> String {
    let mut names: Vec<String> = attempts.iter().take(10).map(ToString::to_string).collect();
    if attempts.len() > names.len() {
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// Applies an event and leaves it to be made durable.
fn commit(world: &mut World, effects: &mut Effects, now: Now, event: Event) {
    let entry = Entry { seq: world.core.seq() + 1, at: now.at, event };
    world.core.apply(&entry);
    note(world, effects, &entry.event);
    effects.journal.push(entry);
}

/// Who should look again after an event.
fn note(world: &World, effects: &mut Effects, event: &Event) {
    if let Some(worker) = event.worker() {
        effects.workers.insert(worker.clone());
        if let Some(known) = world.core.worker(worker) {
            effects.attempts.extend(known.placed.iter().copied());
        }
    }
    let Some(attempt) = event.attempt() else { return };
    effects.attempts.insert(attempt);
    let concerns_worker = matches!(event, Event::Offered { .. } | Event::CancelRequested { .. } | Event::Ended { .. });
    if let Some(worker) = world.core.attempt(attempt).and_then(|attempt| attempt.worker())
        && concerns_worker
    {
        effects.workers.insert(worker.clone());
    }
}
