//! The way to a controller: the configured one over HTTP, or one in this process in front of this machine's engine.

use std::path::PathBuf;
use std::sync::Arc;

use agent::attempt::directory::{DirectoryError, StateDir};
use agent::attempt::{Deps, EngineSource};
use agent::config::Config;
use agent::container::discover::Surroundings;
use agent::container::image::PullPolicy;
use agent::ids::{AttemptId, IdError, WorkerId};
use agent::receipt::Status;
use agent::transport::{CallError, EndpointError};
use agent::wire::attempt::Page;
use agent::wire::worker::WorkerFacts;
use agent::worker::{AdoptError, LocalRunner, Worker};

use super::record::Records;
use super::run::lane::Lane;
use crate::client::Client;
use crate::embedded::{Embedded, embedded};
use crate::store::StoreError;

/// Attempts at the same time in one process; one command runs one.
const CAPACITY: u32 = 64;
/// How long the attempt is waited for while another process is about to let go of it.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);

/// How long a command waits for the files of attempts that are over to be gone.
const CLEARING: std::time::Duration = std::time::Duration::from_secs(5);

/// A controller that can be talked to.
#[derive(Debug)]
pub struct Connection {
    client: Client,
    local: Option<Local>,
}

/// The controller and the worker of this process.
#[derive(Debug)]
struct Local {
    embedded: Embedded,
    worker: Arc<Worker>,
}

/// No controller can be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no controller: name it with --controller, or as `url` in the configuration's [controller] table")]
    NoController,
    #[error("the controller at {url} cannot be used: {source}")]
    Unreachable { url: String, source: Box<CallError> },
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    State(#[from] DirectoryError),
    #[error("the state directory `{}` has no usable owner id", path.display())]
    Owner { path: PathBuf },
    #[error(transparent)]
    Name(#[from] IdError),
    #[error(transparent)]
    Engine(#[from] agent::container::discover::DiscoverError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Adopt(#[from] AdoptError),
}

/// What an embedded worker takes over before its controller hears of it.
#[derive(Clone, Debug)]
pub enum Adoption {
    Nothing,
    /// This one, or no connection.
    One(AttemptId),
    /// These above all, and everything else that nobody drives.
    Everything(Vec<AttemptId>),
}

/// Connects as configured. With `ready`, the controller must answer now, and an embedded one must find its engine.
///
/// # Errors
/// See [`ConnectError`].
pub async fn open(config: &Config, ready: bool, adoption: Adoption) -> Result<Connection, ConnectError> {
    match &config.controller {
        Some(address) => {
            let client = remote(config)?;
            if ready {
                let unreachable =
                    |error| ConnectError::Unreachable { url: address.url.clone(), source: Box::new(error) };
                client.health().await.map_err(unreachable)?;
            }
            Ok(Connection { client, local: None })
        }
        None => embed(config, ready, adoption).await,
    }
}

/// A client of the configured controller.
///
/// # Errors
/// An address or a token that cannot be used.
pub fn remote(config: &Config) -> Result<Client, ConnectError> {
    let address = config.controller.as_ref().ok_or(ConnectError::NoController)?;
    Ok(Client::new(address.transport()?))
}

/// Items of one request for a list.
const PAGE: u32 = 200;

/// A whole list of a controller, page by page.
///
/// # Errors
/// As `ask`.
pub async fn every_page<T>(
    ask: impl AsyncFn(Option<&str>, u32) -> Result<Page<T>, CallError>,
) -> Result<Vec<T>, CallError> {
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = ask(after.as_deref(), PAGE).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

async fn embed(config: &Config, engine: bool, adoption: Adoption) -> Result<Connection, ConnectError> {
    let deps = deps(config)?;
    let facts = facts(&deps, config)?;
    let worker = Worker::new(deps, facts);
    match adoption {
        Adoption::Nothing => {}
        Adoption::One(attempt) => adopt(&worker, attempt).await?,
        Adoption::Everything(first) => {
            for attempt in first {
                if let Err(error) = adopt(&worker, attempt).await {
                    tracing::warn!(%attempt, %error, "the attempt was not taken over");
                }
            }
            // What another command finishes for a client of its own is not ours to take.
            let records = Records::of(&config.state_dir);
            let state = worker.state().clone();
            worker.adopt_all(|attempt| !records.is_held(attempt) && !belongs_elsewhere(&state, attempt));
        }
    }
    // The engine takes its time to answer, and the controller needs none of it to come up.
    let (found, embedded) = tokio::join!(
        async { if engine { worker.find_engine().await } else { Ok(()) } },
        embedded(Arc::new(LocalRunner(worker.clone())))
    );
    let embedded = embedded?;
    if let Err(error) = found {
        embedded.finish().await;
        return Err(error.into());
    }
    Ok(Connection { client: embedded.client().clone(), local: Some(Local { embedded, worker }) })
}

/// True for an attempt whose files came from a controller: only an agent that knows the way there can finish it.
#[must_use]
pub fn belongs_elsewhere(state: &StateDir, attempt: AttemptId) -> bool {
    state.accepted(attempt).is_ok_and(|accepted| accepted.assignment.snapshot.is_some())
}

/// Another command may hold the lock for a moment, only to see whether somebody does.
async fn adopt(worker: &Arc<Worker>, attempt: AttemptId) -> Result<(), AdoptError> {
    let began = tokio::time::Instant::now();
    loop {
        match worker.adopt(attempt) {
            Err(AdoptError::Directory(DirectoryError::Busy { .. })) if began.elapsed() < PATIENCE => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            adopted => return adopted,
        }
    }
}

fn deps(config: &Config) -> Result<Deps, ConnectError> {
    let state = StateDir::open(&config.state_dir)?;
    let engine = EngineSource::new(config.engine.clone(), Surroundings::from_env());
    Ok(Deps {
        engine: engine.remembering(state.root().join("engine.json")),
        state,
        worker: "local".parse::<WorkerId>()?,
        images: config.images.clone(),
        pull: PullPolicy::default(),
        instances: config.instances.clone(),
        supply: None,
    })
}

fn facts(deps: &Deps, config: &Config) -> Result<WorkerFacts, ConnectError> {
    let owner = deps.state.owner()?.to_string();
    Ok(WorkerFacts {
        store: owner.parse().map_err(|_| ConnectError::Owner { path: config.state_dir.clone() })?,
        capacity: CAPACITY,
        arch: std::env::consts::ARCH.to_owned(),
        os: std::env::consts::OS.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instances: agent::run::announce(&config.instances, CAPACITY),
        ..WorkerFacts::default()
    })
}

impl Connection {
    /// The controller as a lane sees it.
    #[must_use]
    pub fn lane(&self) -> &dyn Lane {
        &self.client
    }

    /// The typed client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Where this machine keeps an attempt's receipt; `None` for a controller's attempts.
    #[must_use]
    pub fn receipt_path(&self, attempt: AttemptId) -> Option<PathBuf> {
        Some(self.local.as_ref()?.worker.state().attempt_path(attempt).join("receipt.json"))
    }

    /// True if a list of attempts shows `given` anyway: the attempt's worker is in this process and said the same, and no
    /// client before us delivered anything else.
    #[must_use]
    pub fn remembers(&self, attempt: AttemptId, by_worker: Option<Status>, given: Status) -> bool {
        let Some(local) = &self.local else { return false };
        by_worker == Some(given) && local.worker.state().delivered(attempt).is_none()
    }

    /// Takes over one more attempt, if this connection has a worker of its own.
    pub async fn adopt(&self, attempt: AttemptId) {
        let Some(local) = &self.local else { return };
        if let Err(error) = adopt(&local.worker, attempt).await {
            tracing::warn!(%attempt, %error, "the attempt was not taken over");
        }
    }

    /// Waits for everything that this process drives, and removes leftovers.
    pub async fn finish_everything(&self) {
        if let Some(local) = &self.local {
            local.worker.idle().await;
            if let Err(error) = local.worker.sweep().await {
                tracing::warn!(%error, "the sweep did not finish");
            }
        }
    }

    /// Ends the connection; an embedded controller settles what ended first, and its worker clears away what is over.
    pub async fn close(self) {
        if let Some(local) = self.local {
            // What is not cleared away by then is cleared away by the next command.
            let cleared = tokio::time::timeout(CLEARING, local.worker.idle());
            let (_, ()) = tokio::join!(cleared, local.embedded.finish());
        }
    }
}
