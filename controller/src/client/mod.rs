//! Typed client of our own API, for the command line and for tests: over HTTP or in process, no difference.

mod follow;

use std::time::Duration;

use agent::ids::{AttemptId, WorkerId};
use agent::receipt::Status;
use agent::transport::{Call, CallError, ResponseBody, Transport};
use agent::wire::attempt::{AttemptView, Cancel, CancelSignal, Deliver, Health, Page, QueueEntry, Submit};
use agent::wire::error::code;
use agent::wire::paths;
use agent::wire::retention::{Collect, Collected};
use agent::wire::snapshot::{ResultView, WaitingView};
use agent::wire::worker::{Removal, WorkerView};
use serde::de::DeserializeOwned;
use serde_json::Value;
use time::OffsetDateTime;

pub use self::follow::{Told, follow};

/// Waits between repetitions of a request: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Retention may have much to remove.
const COLLECTING: Duration = Duration::from_secs(3600);
/// A request that changes something is repeated for so long before its failure is reported.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one controller. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// Talks through `transport`.
    #[must_use]
    pub const fn new(transport: Transport) -> Self {
        Self { transport }
    }

    /// The way that it uses.
    #[must_use]
    pub const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// What a writer left.
    ///
    /// # Errors
    /// See [`CallError`]; code `no-result`.
    pub async fn result(&self, id: AttemptId) -> Result<ResultView, CallError> {
        self.transport.json(Call::get(&paths::attempt_part(id, "result"))).await
    }

    /// Where a result is that the controller does not have.
    ///
    /// # Errors
    /// See [`CallError`]; code `no-result` when none is anywhere, `no-such-route` from an older controller.
    pub async fn result_waiting(&self, id: AttemptId) -> Result<WaitingView, CallError> {
        self.transport.json(Call::get(&paths::attempt_part(id, "result/waiting"))).await
    }

    /// Says that a result was taken or is let go: what is kept of it may be removed.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn review(&self, id: AttemptId) -> Result<(), CallError> {
        let call = Call::post(&paths::attempt_part(id, "result/review"), &serde_json::json!({}))?;
        self.transport.open(call).await.map(drop)
    }

    /// Submits an attempt. The attempt's id makes this safe to repeat, so lost answers are asked for again for half a
    /// minute; a full disk there is reported at once.
    ///
    /// # Errors
    /// See [`CallError`]; code `id-reused` if this id was submitted with another body.
    pub async fn submit(&self, submit: &Submit) -> Result<AttemptView, CallError> {
        self.repeat(|| {
            let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
            Ok(Call::post(paths::ATTEMPTS, submit)?.header(paths::CLIENT_TIME_HEADER, &now.to_string()))
        })
        .await
    }

    /// Asks whether the controller is there.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn health(&self) -> Result<Health, CallError> {
        self.transport.json(Call::get(paths::HEALTH)).await
    }

    /// One attempt.
    ///
    /// # Errors
    /// See [`CallError`]; code `no-such-attempt`.
    pub async fn attempt(&self, id: AttemptId) -> Result<AttemptView, CallError> {
        self.transport.json(Call::get(&paths::attempt(id))).await
    }

    /// One page of attempts, newest first; `after` is the former page's `next`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn attempts(&self, after: Option<&str>, limit: u32) -> Result<Page<AttemptView>, CallError> {
        self.page(paths::ATTEMPTS, after, limit).await
    }

    /// Follows an attempt's events after number `after`, for as long as it takes: kept ones exactly once and in order,
    /// live ones as they come. Connections are renewed without end; see [`Told`]. The stream ends after the terminal
    /// event, or with an error that waiting does not cure.
    #[must_use]
    pub fn follow(
        &self,
        id: AttemptId,
        after: u64,
    ) -> futures_util::stream::BoxStream<'static, Result<Told, CallError>> {
        follow(self.transport.clone(), id, after)
    }

    /// Asks for a cancel, as if the caller had received `signal`. The first signal counts.
    ///
    /// # Errors
    /// See [`CallError`]; code `no-such-attempt`.
    pub async fn cancel(&self, id: AttemptId, signal: CancelSignal) -> Result<AttemptView, CallError> {
        self.repeat(|| Call::post(&paths::attempt_part(id, "cancel"), &Cancel { signal })).await
    }

    /// Tells what the caller was given; safe to repeat.
    ///
    /// # Errors
    /// See [`CallError`]; code `no-such-attempt`, `no-such-route` from an older controller.
    pub async fn delivered(&self, id: AttemptId, status: Status) -> Result<AttemptView, CallError> {
        self.repeat(|| Call::post(&paths::attempt_part(id, "delivered"), &Deliver { status })).await
    }

    /// The receipt, as the worker wrote it.
    ///
    /// # Errors
    /// See [`CallError`]; code `not-yet` while there is none.
    pub async fn receipt(&self, id: AttemptId) -> Result<Value, CallError> {
        self.transport.json(Call::get(&paths::attempt_part(id, "receipt"))).await
    }

    /// The final answer, as a body to be read.
    ///
    /// # Errors
    /// See [`CallError`]; code `not-yet` while there is none, `no-answer` if the attempt ended without one.
    pub async fn answer(&self, id: AttemptId) -> Result<ResponseBody, CallError> {
        Ok(self.transport.open(Call::get(&paths::attempt_part(id, "answer"))).await?.into_body())
    }

    /// One page of workers.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn workers(&self, after: Option<&str>, limit: u32) -> Result<Page<WorkerView>, CallError> {
        self.page(paths::WORKERS, after, limit).await
    }

    /// Changes whether a worker gets new work: `drain` or `resume`.
    ///
    /// # Errors
    /// See [`CallError`]; code `no-such-worker`.
    pub async fn steer_worker(&self, id: &WorkerId, verb: &str) -> Result<WorkerView, CallError> {
        self.transport.json(Call::post(&paths::worker_part(id, verb), &serde_json::json!({}))?).await
    }

    /// Forgets a worker; with `abandon` also one that holds attempts, see [`Removal`].
    ///
    /// # Errors
    /// See [`CallError`]; code `no-such-worker`, or `worker-busy` for one that holds attempts.
    pub async fn remove_worker(&self, id: &WorkerId, abandon: bool) -> Result<WorkerView, CallError> {
        self.transport.json(Call::post(&paths::worker_part(id, "remove"), &Removal { abandon })?).await
    }

    /// Applies the controller's retention rules now; with `dry_run` only says what would go.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn collect(&self, dry_run: bool) -> Result<Collected, CallError> {
        self.transport.json(Call::post(paths::GC, &Collect { dry_run })?.within(COLLECTING)).await
    }

    /// One page of what waits, in the order in which it will be offered.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn queue(&self, after: Option<&str>, limit: u32) -> Result<Page<QueueEntry>, CallError> {
        self.page(paths::QUEUE, after, limit).await
    }

    async fn page<T: DeserializeOwned + Send>(
        &self,
        path: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<T>, CallError> {
        let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
        self.transport.json(Call::get(&format!("{path}?limit={limit}{after}"))).await
    }

    /// Repeats a request that may be carried out twice until it is answered, or patience ends.
    async fn repeat<T: DeserializeOwned + Send>(
        &self,
        mut call: impl FnMut() -> Result<Call, CallError>,
    ) -> Result<T, CallError> {
        let began = tokio::time::Instant::now();
        let mut pause = BACKOFF.0;
        loop {
            match self.transport.json(call()?).await {
                Err(error) if error.is_passing() && !error.is(code::STORAGE_FULL) && began.elapsed() < PATIENCE => {
                    tracing::debug!(%error, "repeating a request");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF.1);
                }
                answer => return answer,
            }
        }
    }
}
