//! One registration and what lives under it. When the controller forgets or replaces it, everything under it ends and
//! the worker registers again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::{Runner, beat, commands, ship};
use crate::ids::{AttemptId, Generation, WorkerId};
use crate::transport::{Call, CallError, EndpointError, Transport};
use crate::wire::error::code;
use crate::wire::paths;
use crate::wire::worker::{Heartbeat, LeaseRef, Register, Registered};

/// A registration that lasted so long was not taken away by another agent of the same name.
const SETTLED: Duration = Duration::from_secs(5);
/// Waits between tries: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// How often the worker is asked for attempts that came to it by themselves (adopted ones).
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The link ended for good.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The controller does not want this agent.
    #[error("the controller refuses worker {worker}: {source}")]
    Refused { worker: WorkerId, source: CallError },
    /// The link's own connections cannot be set up.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Growing pauses between tries.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) const fn new() -> Self {
        Self(BACKOFF.0)
    }

    pub(super) const fn reset(&mut self) {
        self.0 = BACKOFF.0;
    }

    /// Pauses. False when `end` came first.
    pub(super) async fn pause(&mut self, end: &CancellationToken) -> bool {
        let pause = self.0;
        self.0 = (self.0 * 2).min(BACKOFF.1);
        tokio::select! {
            () = end.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}

/// What the tasks of one registration share.
pub(super) struct Session {
    pub(super) transport: Transport,
    pub(super) runner: Arc<dyn Runner>,
    pub(super) worker: WorkerId,
    pub(super) id: Uuid,
    pub(super) heartbeat: Duration,
    /// Cancelled when this registration is over.
    pub(super) over: CancellationToken,
    tasks: TaskTracker,
    /// Attempts whose logs are being shipped.
    shipping: Mutex<HashSet<AttemptId>>,
}

/// Connects the local worker to the controller until `shutdown`. Registers, takes commands, ships logs, beats; comes
/// back after every loss of connection, controller or session.
///
/// # Errors
/// The controller refuses the very first registration for a reason that time does not cure, or the connections cannot
/// be set up.
pub async fn run(
    transport: Transport,
    runner: Arc<dyn Runner>,
    worker: WorkerId,
    shutdown: CancellationToken,
) -> Result<(), LinkError> {
    let mut backoff = Backoff::new();
    let mut known = false;
    let mut shut_out = ShutOut::default();
    let mut numbers = Numbers::default();
    while !shutdown.is_cancelled() {
        let id = Uuid::new_v4();
        let register = Register {
            worker: worker.clone(),
            session: id,
            number: numbers.next(),
            facts: runner.facts(),
            held: runner.attempts(),
            damaged: runner.damaged(),
        };
        let answer: Result<Registered, CallError> = match Call::post(paths::WORKERS, &register) {
            Ok(call) => tokio::select! {
                answer = transport.json(call) => answer,
                () = shutdown.cancelled() => break,
            },
            Err(error) => Err(error),
        };
        match answer {
            Ok(registered) => {
                info!(%worker, session = %id, held = register.held.len(), "registered");
                known = true;
                shut_out = ShutOut::default();
                let began = Instant::now();
                let session = Arc::new(Session {
                    transport: transport.clone(),
                    runner: Arc::clone(&runner),
                    worker: worker.clone(),
                    id,
                    heartbeat: Duration::from_millis(registered.heartbeat_ms.max(10)),
                    over: shutdown.child_token(),
                    tasks: TaskTracker::new(),
                    shipping: Mutex::default(),
                });
                session.live(&registered).await?;
                // Another agent under the same name would take it back at once: not as fast as the machine can.
                if began.elapsed() >= SETTLED {
                    backoff.reset();
                } else if !backoff.pause(&shutdown).await {
                    break;
                }
            }
            // A registration of before counts as newer than this one: the clock was set back since.
            Err(error) if error.is(code::STALE_SESSION) => {
                info!(%worker, %error, "registering with a larger number");
                numbers.jump();
            }
            Err(source) if !known && !source.is_passing() => return Err(LinkError::Refused { worker, source }),
            Err(error) if error.shuts_out() => shut_out.say(&worker, &error, register.held.len()),
            Err(error) => warn!(%worker, %error, "cannot register, trying again"),
        }
        if !backoff.pause(&shutdown).await {
            break;
        }
    }
    Ok(())
}

/// Numbers of registrations. They follow the clock, so that none must be kept, and grow whatever the clock does.
#[derive(Default)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
        self.0 = u64::try_from(now).unwrap_or(1).max(self.0.saturating_add(1));
        self.0
    }

    fn jump(&mut self) {
        self.0 = self.0.saturating_mul(2);
    }
}

/// That nobody lets us in is said once, and again when the reason is another.
#[derive(Default)]
struct ShutOut(Option<String>);

impl ShutOut {
    fn say(&mut self, worker: &WorkerId, error: &CallError, held: usize) {
        if self.0.as_deref() == error.code() {
            return;
        }
        self.0 = error.code().map(str::to_owned);
        error!(
            held,
            "the controller lets worker `{worker}` in no more, and it goes on asking: {error}; what runs here goes on and \
             is delivered then"
        );
    }
}

impl Session {
    async fn live(self: &Arc<Self>, registered: &Registered) -> Result<(), EndpointError> {
        // Whatever ends this function ends everything under the session.
        let _over = self.over.clone().drop_guard();
        let thread = beat::start(self)?;
        for held in self.runner.attempts() {
            let known = registered.acknowledged.iter().find(|known| known.attempt == held.attempt);
            self.ship(held.attempt, held.generation, known.map_or(0, |known| known.last_seq));
        }
        let session = Arc::clone(self);
        self.tasks.spawn(async move { session.look_for_adopted().await });
        commands::follow(self).await;
        self.over.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // The thread waits for nothing but the token, or for one request with a deadline.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        Ok(())
    }

    /// Ships an attempt's log from the event after `acknowledged` on, once.
    pub(super) fn ship(self: &Arc<Self>, attempt: AttemptId, generation: Generation, acknowledged: u64) {
        let new = self.shipping.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt);
        if !new {
            return;
        }
        let Some(log) = self.runner.log(attempt) else {
            warn!(%attempt, "a held attempt has no log");
            self.forget(attempt);
            return;
        };
        let session = Arc::clone(self);
        let lease = LeaseRef { session: self.id, attempt, generation };
        self.tasks.spawn(ship::live(Arc::clone(self), lease.clone(), log.clone()));
        self.tasks.spawn(async move { ship::kept(&session, lease, log, acknowledged).await });
    }

    /// Runs a task that ends with the session.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let over = self.over.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// The attempt may be offered anew later.
    pub(super) fn forget(&self, attempt: AttemptId) {
        self.shipping.lock().unwrap_or_else(PoisonError::into_inner).remove(&attempt);
    }

    /// Attempts that the worker adopts later are made known at once, not with the next heartbeat.
    async fn look_for_adopted(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = self.over.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let held = self.runner.attempts();
            let new = {
                let shipping = self.shipping.lock().unwrap_or_else(PoisonError::into_inner);
                held.iter().any(|held| !shipping.contains(&held.attempt))
            };
            if !new {
                continue;
            }
            let beat = Heartbeat { session: self.id, held: held.clone() };
            match self.post("heartbeat", &beat).await {
                Ok(()) => held.iter().for_each(|held| self.ship(held.attempt, held.generation, 0)),
                Err(error) => {
                    self.judge(&error);
                }
            }
        }
    }

    /// Sends something that is answered without content.
    pub(super) async fn post(&self, part: &str, body: &impl serde::Serialize) -> Result<(), CallError> {
        let call = Call::post(&paths::worker_part(&self.worker, part), body)?;
        self.transport.open(call).await.map(drop)
    }

    /// Ends the session if the controller says that it is over, or does not let us in any more.
    pub(super) fn judge(&self, error: &CallError) -> bool {
        let over = error.is(code::STALE_SESSION) || error.is(code::NO_SUCH_WORKER) || error.shuts_out();
        if over && !self.over.is_cancelled() {
            info!(worker = %self.worker, %error, "registering again");
            self.over.cancel();
        }
        over
    }
}
