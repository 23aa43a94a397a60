//! The way to a controller for those who run it: the configured one, else this machine's own, running or not. Both are
//! asked through the same handlers, so that a running controller knows of everything at once.

use std::path::PathBuf;
use std::time::Duration;

use agent::config::{Config, ControllerAddress, Proof};
use agent::transport::{Call, CallError, EndpointError, Transport};
use agent::wire::error::code;
use agent::wire::identity::{CreateCredential, CreatedCredential};
use agent::wire::paths;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::output::chain;
use super::run::options::UsageError;
use crate::http::auth::Auth;
use crate::http::{local_service, router};
use crate::identity::IdentityDir;
use crate::serve::{self, ADDRESS, Listen, Opened, ServeConfig, ServeError};

/// How long the stopped controller's state may take to settle.
const SETTLE: Duration = Duration::from_secs(5);

/// The controller cannot be administered from here.
#[derive(Debug, thiserror::Error)]
pub enum AdministerError {
    #[error(
        "no controller: `{}` has no identity; run `laneyard init` there, or name a controller with --controller, --ca \
         and --token-file",
        path.display()
    )]
    Nowhere { path: PathBuf },
    #[error("the controller of `{}` runs, and its address cannot be read: {source}", path.display())]
    Address { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A controller that can be administered.
#[derive(Debug)]
pub struct Administration {
    transport: Transport,
    /// As others reach it, if that is known.
    pub url: Option<String>,
    offline: Option<Offline>,
}

/// The controller's state in this process: it does not run.
#[derive(Debug)]
struct Offline {
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Finds the controller. `dir` names a state directory on this machine.
///
/// # Errors
/// See [`AdministerError`].
pub async fn open(config: &Config, dir: Option<PathBuf>) -> Result<Administration, AdministerError> {
    if let (Some(address), None) = (&config.controller, &dir) {
        let (transport, url) = (address.transport()?, Some(address.url.clone()));
        return Ok(Administration { transport, url, offline: None });
    }
    let dir = dir.unwrap_or_else(|| ServeConfig::dir_of(&config.state_dir));
    let place = IdentityDir::of(&dir);
    if !place.exists() {
        return Err(AdministerError::Nowhere { path: dir });
    }
    let host = place.names().ok().and_then(|names| names.into_iter().next());
    let listen = Listen::Unix(dir.join("never-bound"));
    match serve::open(&ServeConfig::new(listen, &dir)).await {
        Ok(opened) => {
            let offline = offline(opened);
            let url = host.map(|host| at(&host, "7410"));
            Ok(Administration { transport: offline.0, url, offline: Some(offline.1) })
        }
        Err(ServeError::InUse { .. }) => {
            let path = dir.join(ADDRESS);
            let address = std::fs::read_to_string(&path);
            let address = address.map_err(|source| AdministerError::Address { path, source })?;
            let proof = Proof { ca: Some(place.ca()), token_file: Some(place.admin_token()), ..Proof::default() };
            let port = address.rsplit_once(':').map_or("7410", |(_, port)| port);
            let url = host.filter(|_| address.starts_with("https")).map(|host| at(&host, port));
            let url = url.or_else(|| Some(address.clone()));
            Ok(Administration { transport: ControllerAddress::new(&address, proof).transport()?, url, offline: None })
        }
        Err(error) => Err(error.into()),
    }
}

fn at(host: &str, port: &str) -> String {
    if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
}

fn offline(opened: Opened) -> (Transport, Offline) {
    let (app, task, lock) = opened.into_parts();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let running = task.run(stop.clone());
    tasks.spawn(async move {
        running.await;
        drop(lock);
    });
    (Transport::in_process(local_service(router(app, Auth::local()))), Offline { stop, tasks })
}

impl Administration {
    /// Asks with a JSON body.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn post<T: DeserializeOwned + Send>(&self, path: &str, body: &impl Serialize) -> Result<T, CallError> {
        self.transport.json(Call::post(path, body)?).await
    }

    /// Makes a credential.
    ///
    /// # Errors
    /// See [`CallError`]; [`UsageError`] for one that cannot be made as it is wanted.
    pub async fn make(&self, wanted: &CreateCredential) -> anyhow::Result<CreatedCredential> {
        self.post(paths::CREDENTIALS, wanted).await.map_err(|error| match error.is(code::BAD_CREDENTIAL) {
            true => UsageError(chain(&error)).into(),
            false => error.into(),
        })
    }

    /// Asks for something.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn get<T: DeserializeOwned + Send>(&self, path: &str) -> Result<T, CallError> {
        self.transport.json(Call::get(path)).await
    }

    /// Lets go of the state directory.
    pub async fn close(self) {
        if let Some(Offline { stop, tasks }) = self.offline {
            stop.cancel();
            tasks.close();
            let _ = tokio::time::timeout(SETTLE, tasks.wait()).await;
        }
    }
}
