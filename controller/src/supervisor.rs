//! The one task that owns the state. It takes what is waiting, decides without awaiting, makes the outcome durable in
//! one commit, and only then lets anybody know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::attempt::fault;
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::core;
use crate::hub::{Hub, Notice};
use crate::reactor::{Effects, Liveness, Now, Timing, World, client, tick};
use crate::store::{Store, StoreError};
use crate::unstarted;

/// Requests that may wait for the task; more wait at their senders.
const BACKLOG: usize = 1024;
/// Requests that share one commit.
const BATCH: usize = 256;

type Reply = Box<dyn FnOnce(Result<(), AskError>) + Send>;
type Job = Box<dyn FnOnce(&mut World, &mut Effects, Now) -> Reply + Send>;

/// The task could not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    /// It is shutting down, or gave up after a failure that its log tells.
    #[error("the controller is shutting down")]
    Stopping,
    /// The outcome could not be made durable, so it did not happen.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

/// How others talk to the task.
#[derive(Clone, Debug)]
pub struct Supervisor {
    jobs: mpsc::Sender<Job>,
}

impl Supervisor {
    /// Runs `decide` on the state, and returns its answer once its outcome is durable.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut World, &mut Effects, Now) -> T + Send + 'static,
    ) -> Result<T, AskError> {
        let (done, answer) = oneshot::channel();
        let job: Job = Box::new(move |world, effects, now| {
            let answer = decide(world, effects, now);
            // A client that left does not want its answer.
            Box::new(move |durable| drop(done.send(durable.map(|()| answer))))
        });
        self.jobs.send(job).await.map_err(|_| AskError::Stopping)?;
        answer.await.unwrap_or(Err(AskError::Stopping))
    }
}

/// The task itself.
#[derive(Debug)]
pub struct Task {
    jobs: mpsc::Receiver<Job>,
    world: World,
    store: Store,
    hub: Arc<Hub>,
    started: Instant,
}

/// Folds the journal and makes the task ready.
///
/// # Errors
/// The store cannot be read.
pub async fn restore(store: Store, hub: Arc<Hub>, timing: Timing) -> Result<(Supervisor, Task), StoreError> {
    let started = Instant::now();
    let core = core::replay(&store.journal().await?);
    let liveness = Liveness::starting(now(started));
    let (sender, jobs) = mpsc::channel(BACKLOG);
    let task = Task { jobs, world: World { core, liveness, timing }, store, hub, started };
    Ok((Supervisor { jobs: sender }, task))
}

fn now(started: Instant) -> Now {
    Now { at: OffsetDateTime::now_utc(), tick: started.elapsed() }
}

impl Task {
    /// Works until `shutdown`, until nobody can ask any more, or until the store cannot even be read.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(tick_length(&self.world.timing));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut jobs = Vec::with_capacity(BATCH);
        loop {
            let mut effects = Effects::default();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                _ = ticks.tick() => self.on_tick(&mut effects).await,
                taken = self.jobs.recv_many(&mut jobs, BATCH) => if taken == 0 { break },
            }
            let now = now(self.started);
            let replies: Vec<Reply> = jobs.drain(..).map(|job| job(&mut self.world, &mut effects, now)).collect();
            if !effects.is_volatile() {
                tick::place(&mut self.world, &mut effects, now);
            }
            match self.commit(effects).await {
                Ok(()) => replies.into_iter().for_each(|reply| reply(Ok(()))),
                Err(failure) => {
                    let failure = Arc::new(failure);
                    replies.into_iter().for_each(|reply| reply(Err(AskError::Store(Arc::clone(&failure)))));
                    if !self.undo(&failure).await {
                        break;
                    }
                }
            }
        }
    }

    async fn on_tick(&mut self, effects: &mut Effects) {
        let now = now(self.started);
        tick::on_tick(&mut self.world, effects, now);
        for id in tick::overdue(&self.world, now) {
            match self.store.assignment(id).await {
                Ok(Some(assignment)) => {
                    let receipt = unstarted::timed_out(&assignment, now.at);
                    client::on_overdue(&mut self.world, effects, now, id, receipt);
                }
                Ok(None) => {}
                Err(failure) => warn!(%failure, attempt = %id, "cannot end an attempt past its deadline"),
            }
        }
        tick::place(&mut self.world, effects, now);
    }

    async fn commit(&self, mut effects: Effects) -> Result<(), StoreError> {
        if !effects.is_volatile() {
            at_fault_point("committing", &effects);
            self.store.commit(&effects).await?;
            at_fault_point("committed", &effects);
        }
        for id in &effects.attempts {
            if !self.hub.is_watched(*id) {
                continue;
            }
            let tail = effects.events.iter_mut().filter(|(of, _)| of == id);
            let tail: Vec<_> = tail.flat_map(|(_, events)| std::mem::take(events)).collect();
            let view = self.world.core.view(*id).map(Arc::new);
            self.hub.tell(*id, Notice { view, tail: Arc::new(tail) });
        }
        for worker in &effects.workers {
            self.hub.wake_worker(worker);
        }
        Ok(())
    }

    /// Goes back to what is durable. False when that cannot be read either.
    async fn undo(&mut self, failure: &StoreError) -> bool {
        error!(%failure, "an outcome could not be made durable and is undone");
        match self.store.journal().await {
            Ok(journal) => {
                self.world.core = core::replay(&journal);
                true
            }
            Err(second) => {
                error!(%second, "the journal cannot be read: stopping");
                false
            }
        }
    }
}

/// Where tests kill the controller: before and after an entry is durable.
fn at_fault_point(when: &str, effects: &Effects) {
    for entry in &effects.journal {
        fault::point(when, entry.event.name());
    }
}

/// Often enough to notice silence soon after a lease has ended.
fn tick_length(timing: &Timing) -> Duration {
    (timing.lease / 4).clamp(Duration::from_millis(20), Duration::from_secs(1))
}
