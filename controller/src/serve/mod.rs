//! The controller as a process of its own: opens the store, listens, serves until it is told to stop.

mod listen;
mod stall;
mod token;

use std::fs::{File, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::retention::Rules;
use agent::transport::EndpointError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use self::listen::{Listen, ListenError};
use self::stall::Stalls;
use crate::http::auth::{Auth, Principal, Role};
use crate::http::{App, router};
use crate::hub::Hub;
use crate::reactor::Timing;
use crate::retention::Retention;
use crate::store::{Store, StoreError};
use crate::supervisor::{self, Task};

/// Requests under way at shutdown get so long to end.
const GRACE: Duration = Duration::from_secs(5);

/// What `laneyard serve` needs.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    pub listen: Listen,
    /// Database and blobs; created with mode 0700.
    pub state_dir: PathBuf,
    /// Created with a new token and mode 0600 if it is absent.
    pub token_file: PathBuf,
    pub timing: Timing,
    /// Bytes set aside for the ends of admitted attempts. Without them, and as many free beside them, no new attempt is
    /// admitted.
    pub reserve: u64,
    /// How long what is over is kept.
    pub retention: Rules,
}

impl ServeConfig {
    /// Usual settings for a state directory.
    #[must_use]
    pub fn new(listen: Listen, state_dir: &Path) -> Self {
        Self {
            listen,
            state_dir: state_dir.to_owned(),
            token_file: state_dir.join("token"),
            timing: Timing::default(),
            reserve: 64 << 20,
            retention: Rules::default(),
        }
    }
}

/// The controller cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot use the state directory `{}`: {source}", path.display())]
    StateDir { path: PathBuf, source: std::io::Error },
    #[error("another controller uses the state directory `{}`: stop it first", path.display())]
    InUse { path: PathBuf },
    #[error("cannot make the token file `{}`: {source}", path.display())]
    MakeToken { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Token(#[from] EndpointError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("serving failed: {0}")]
    Serve(#[source] std::io::Error),
    #[error("the controller stopped by itself: its log says why")]
    Stopped,
}

/// A controller that listens and does not serve yet.
#[derive(Debug)]
pub struct Server {
    bound: listen::Bound,
    app: App,
    auth: Auth,
    task: Task,
    stop: CancellationToken,
    /// Held as long as the server lives.
    _lock: File,
}

/// Opens everything and listens.
///
/// # Errors
/// See [`ServeError`].
pub async fn start(config: ServeConfig) -> Result<Server, ServeError> {
    let lock = claim_directory(&config.state_dir)?;
    let token = token::read_or_make(&config.token_file)?;
    let principal = Principal { name: "token".to_owned(), role: Role::Admin };
    let auth = Auth::Tokens(Arc::new(vec![(Auth::digest(&token), principal)]));
    let store = Store::open(&config.state_dir, config.reserve).await?;
    let hub = Arc::new(Hub::default());
    let (supervisor, task) = supervisor::restore(store.clone(), Arc::clone(&hub), config.timing).await?;
    let stop = CancellationToken::new();
    let retention = Arc::new(Retention::new(config.retention));
    let app = App { supervisor, store, hub, shutdown: stop.clone(), retention };
    let bound = listen::bind(&config.listen).await?;
    Ok(Server { bound, app, auth, task, stop, _lock: lock })
}

fn claim_directory(path: &Path) -> Result<File, ServeError> {
    let failed = |source| ServeError::StateDir { path: path.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let lock = File::create(path.join("controller.lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(ServeError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

impl Server {
    /// Where clients and agents reach it, as they write it.
    #[must_use]
    pub fn address(&self) -> String {
        self.bound.address()
    }

    /// Serves until `shutdown`; then streams end, and requests under way get a moment.
    ///
    /// # Errors
    /// Accepting fails, or the store can neither be written nor read any more.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let Self { bound, app, auth, task, stop, _lock } = self;
        info!(address = bound.address(), "serving");
        let tasks = TaskTracker::new();
        // The task that owns the state stops last, so that requests under way are answered.
        let last = CancellationToken::new();
        let owner = tasks.spawn(task.run(last.clone()));
        let (janitor, ending) = (app.clone(), stop.clone());
        tasks.spawn(async move { janitor.retention.run(&janitor.supervisor, &janitor.store, ending).await });
        let service = router(app, auth);
        let ended = stop.clone();
        let until = async move { ended.cancelled().await };
        let served = async {
            match bound {
                listen::Bound::Tcp(listener, _) => {
                    axum::serve(Stalls(listener), service).with_graceful_shutdown(until).await
                }
                listen::Bound::Unix(listener, _) => {
                    axum::serve(Stalls(listener), service).with_graceful_shutdown(until).await
                }
            }
        };
        tokio::pin!(served);
        tokio::pin!(owner);
        let outcome = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            served = &mut served => served.map_err(ServeError::Serve),
            _ = &mut owner => Err(ServeError::Stopped),
        };
        stop.cancel();
        if outcome.is_ok() && tokio::time::timeout(GRACE, &mut served).await.is_err() {
            warn!("requests were still under way");
        }
        last.cancel();
        tasks.close();
        tasks.wait().await;
        outcome
    }
}

/// Opens, listens and serves until `shutdown`. `ready` is told the address.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(
    config: ServeConfig,
    shutdown: CancellationToken,
    ready: impl FnOnce(&str),
) -> Result<(), ServeError> {
    let server = start(config).await?;
    ready(&server.address());
    server.run(shutdown).await
}
