//! Controller, link and worker in one process: no port, no file of its own, the very same handlers.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use agent::ids::WorkerId;
use agent::link::{self, Runner};
use agent::retention::Rules;
use agent::transport::Transport;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::client::Client;
use crate::http::auth::Auth;
use crate::http::{App, local_service, router};
use crate::hub::Hub;
use crate::identity::{Lives, Registry};
use crate::reactor::Timing;
use crate::retention::Retention;
use crate::store::{Store, StoreError};
use crate::supervisor::{self, Supervisor};

/// Name of the one worker.
const NAME: &str = "local";
/// How long [`Embedded::finish`] lets the worker be told that ended attempts are taken over.
const SETTLE: Duration = Duration::from_secs(2);

/// The controller inside this process.
#[derive(Debug)]
pub struct Embedded {
    client: Client,
    supervisor: Supervisor,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

/// Puts a controller in front of the local worker.
///
/// # Errors
/// None in practice: nothing is read from a disk.
pub async fn embedded(runner: Arc<dyn Runner>) -> Result<Embedded, StoreError> {
    let shutdown = CancellationToken::new();
    let tasks = TaskTracker::new();
    let store = Store::embedded(Arc::clone(&runner));
    let hub = Arc::new(Hub::default());
    let (supervisor, task) = supervisor::restore(store.clone(), Arc::clone(&hub), Timing::default()).await?;
    tasks.spawn(task.run(shutdown.clone()));
    let registry = Arc::new(Registry::open(store.clone(), None, Lives::default()).await?);
    let retention = Arc::new(Retention::new(Rules::default()));
    let app = App {
        supervisor: supervisor.clone(),
        store,
        hub,
        registry,
        depot: None,
        shutdown: shutdown.clone(),
        retention,
    };
    let transport = Transport::in_process(local_service(router(app, Auth::local())));
    let (way, stop) = (transport.clone(), shutdown.clone());
    tasks.spawn(async move {
        let Ok(name) = WorkerId::from_str(NAME) else { return };
        if let Err(failure) = link::run(way, runner, name, stop).await {
            error!(%failure, "the local worker is not connected");
        }
    });
    Ok(Embedded { client: Client::new(transport), supervisor, shutdown, tasks })
}

impl Embedded {
    /// The client of this controller.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Lets the worker be told that ended attempts are taken over, then stops. What still runs is left to the next
    /// process on this machine.
    pub async fn finish(self) {
        let settled = async {
            loop {
                let open = self
                    .supervisor
                    .ask(|world, _, _| world.core.workers().values().any(|worker| !worker.unreleased.is_empty()));
                if !open.await.unwrap_or(false) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Not told is no harm: the next process tells it.
        let _ = tokio::time::timeout(SETTLE, settled).await;
        self.shutdown.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(SETTLE, self.tasks.wait()).await;
    }
}
