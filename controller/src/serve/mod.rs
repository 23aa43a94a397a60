//! The controller as a process of its own: opens the store, listens, serves until it is told to stop.

mod listen;
mod renewal;
mod stall;
mod tls;
mod token;

use std::fs::{File, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::retention::Rules;
use agent::secret_file;
use agent::transport::EndpointError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use self::listen::{Listen, ListenError};
use self::renewal::Renewal;
use self::stall::stalls;
use self::tls::Tls;
use crate::depot::{self, Depot, DepotError};
use crate::http::auth::{Auth, Peer};
use crate::http::{App, router};
use crate::hub::Hub;
use crate::identity::place::Shown;
use crate::identity::{IdentityDir, Lives, PlaceError, Registry};
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
    /// Without an identity: created with a new token and mode 0600 if it is absent. With one: not used.
    pub token_file: PathBuf,
    /// Of certificates and tokens.
    pub lives: Lives,
    /// A connection that has brought no good credential by then is cut.
    pub stranger_limit: Duration,
    pub timing: Timing,
    /// Bytes set aside for the ends of admitted attempts. Without them, and as many free beside them, no new attempt is
    /// admitted.
    pub reserve: u64,
    /// How long what is over is kept.
    pub retention: Rules,
    /// How much of snapshots and results is kept.
    pub snapshots: depot::Limits,
}

impl ServeConfig {
    /// The controller's directory under laneyard's state directory.
    #[must_use]
    pub fn dir_of(state_dir: &Path) -> PathBuf {
        state_dir.join("controller")
    }

    /// Usual settings for a state directory.
    #[must_use]
    pub fn new(listen: Listen, state_dir: &Path) -> Self {
        Self {
            listen,
            state_dir: state_dir.to_owned(),
            token_file: state_dir.join("token"),
            lives: Lives::default(),
            stranger_limit: Duration::from_secs(30),
            timing: Timing::default(),
            reserve: 64 << 20,
            retention: Rules::default(),
            snapshots: depot::Limits::default(),
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
    Identity(#[from] PlaceError),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Depot(#[from] DepotError),
    #[error("serving failed: {0}")]
    Serve(#[source] std::io::Error),
    #[error("the controller stopped by itself: its log says why")]
    Stopped,
}

/// Everything of a controller but its listener.
#[derive(Debug)]
pub struct Opened {
    pub app: App,
    pub auth: Auth,
    pub task: Task,
    /// Held as long as the controller lives.
    _lock: File,
}

impl Opened {
    /// The handlers' state, the task that must run for them, and the claim on the directory.
    #[must_use]
    pub fn into_parts(self) -> (App, Task, File) {
        (self.app, self.task, self._lock)
    }
}

/// Claims the state directory and opens the store. Nobody is listened to.
///
/// # Errors
/// See [`ServeError`].
pub async fn open(config: &ServeConfig) -> Result<Opened, ServeError> {
    let lock = claim_directory(&config.state_dir)?;
    let authority = IdentityDir::of(&config.state_dir).authority()?;
    let token = match authority {
        Some(_) => None,
        None => Some(token::read_or_make(&config.token_file)?),
    };
    let store = Store::open(&config.state_dir, config.reserve).await?;
    let registry = Arc::new(Registry::open(store.clone(), authority, config.lives).await?);
    let auth = match token {
        Some(token) => Auth::File(Auth::digest(&token)),
        None => Auth::Registry(Arc::clone(&registry)),
    };
    let hub = Arc::new(Hub::default());
    let (supervisor, task) = supervisor::restore(store.clone(), Arc::clone(&hub), config.timing).await?;
    let shutdown = CancellationToken::new();
    let depot = Depot::open(&config.state_dir, config.snapshots)?;
    let retention = Arc::new(Retention::new(config.retention).with_results(depot.clone()));
    let depot = Some(depot);
    let app = App { supervisor, store, hub, registry, depot, shutdown, retention };
    Ok(Opened { app, auth, task, _lock: lock })
}

/// A controller that listens and does not serve yet.
#[derive(Debug)]
pub struct Server {
    bound: listen::Bound,
    opened: Opened,
    /// With TLS: the certificate that is shown, and its renewal.
    renewal: Option<Renewal>,
    stranger_limit: Duration,
}

/// Opens everything and listens.
///
/// # Errors
/// See [`ServeError`].
pub async fn start(config: ServeConfig) -> Result<Server, ServeError> {
    // A directory that is only now made stays unmade if nobody can listen. In one that exists, the controller that may
    // already run there is the better reason to be told.
    let early = match &config.listen {
        Listen::Tcp(_) | Listen::Plain(_) if !config.state_dir.exists() => {
            Some(listen::bind(&config.listen, false).await?)
        }
        _ => None,
    };
    let opened = open(&config).await?;
    let authority = opened.app.registry.authority().ok();
    let bound = match early {
        Some(bound) => bound,
        None => listen::bind(&config.listen, authority.is_some()).await?,
    };
    let renewal = match (&bound, authority) {
        (listen::Bound::Tls(_, address), Some(authority)) => {
            let (place, life, listen) = (IdentityDir::of(&config.state_dir), config.lives.server, Some(address.ip()));
            let (key, at) = place.server(authority, listen, life)?;
            let (shown, registry) = (Arc::new(Shown::new(key)), Arc::clone(&opened.app.registry));
            Some(Renewal { place, registry, listen, life, shown, at })
        }
        _ => None,
    };
    let path = config.state_dir.join(ADDRESS);
    if let Err(error) = secret_file::write(&path, bound.local_address()) {
        // A full disk is no reason not to serve: only commands on this machine miss it.
        warn!(path = %path.display(), %error, "cannot write the address for local commands");
    }
    Ok(Server { bound, opened, renewal, stranger_limit: config.stranger_limit })
}

/// File under the state directory that says how the running controller is reached from this machine.
pub const ADDRESS: &str = "address";

/// Makes sure that no other controller uses a state directory, for as long as the file is held.
///
/// # Errors
/// Another one does, or it cannot be created.
pub fn claim_directory(path: &Path) -> Result<File, ServeError> {
    let failed = |source| ServeError::StateDir { path: path.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let mut options = File::options();
    let lock = options.create(true).truncate(true).write(true).mode(0o600).open(path.join("controller.lock"));
    let lock = lock.map_err(failed)?;
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
        let Self { bound, opened: Opened { app, auth, task, _lock }, renewal, stranger_limit: limit } = self;
        info!(address = bound.address(), "serving");
        let stop = app.shutdown.clone();
        let tasks = TaskTracker::new();
        // The task that owns the state stops last, so that requests under way are answered.
        let last = CancellationToken::new();
        let owner = tasks.spawn(task.run(last.clone()));
        let (janitor, ending) = (app.clone(), stop.clone());
        tasks.spawn(async move { janitor.retention.run(&janitor.supervisor, &janitor.store, ending).await });
        let service = router(app, auth).into_make_service_with_connect_info::<Peer>();
        let ended = stop.clone();
        let until = async move { ended.cancelled().await };
        let shown = renewal.as_ref().map(|renewal| Arc::clone(&renewal.shown));
        if let Some(renewal) = renewal {
            tasks.spawn(renewal.run(stop.clone()));
        }
        let served = async {
            match (bound, shown) {
                (listen::Bound::Tls(listener, _), Some(shown)) => {
                    let tls = Tls::new(listener, shown)?;
                    Ok(axum::serve(stalls(tls, limit), service).with_graceful_shutdown(until).await)
                }
                // Bound without a certificate to show: nothing is served in plaintext instead.
                (listen::Bound::Tls(..), None) => Err(rustls::Error::NoCertificatesPresented),
                (listen::Bound::Plain(listener, _), _) => {
                    Ok(axum::serve(stalls(listener, limit), service).with_graceful_shutdown(until).await)
                }
                (listen::Bound::Unix(listener, _), _) => {
                    Ok(axum::serve(stalls(listener, limit), service).with_graceful_shutdown(until).await)
                }
            }
        };
        tokio::pin!(served);
        tokio::pin!(owner);
        let outcome = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            served = &mut served => served.map_err(ServeError::Tls).and_then(|served| served.map_err(ServeError::Serve)),
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
