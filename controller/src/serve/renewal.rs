//! The controller's own certificate is made anew before it ends, and shown from the next connection on.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::identity::place::Shown;
use crate::identity::{IdentityDir, Registry};

/// The wall clock is looked at this often: it may be set, or the machine may have slept.
const LOOK: Duration = Duration::from_secs(60);

/// What a renewal needs.
#[derive(Debug)]
pub(super) struct Renewal {
    pub(super) place: IdentityDir,
    pub(super) registry: Arc<Registry>,
    pub(super) listen: Option<IpAddr>,
    pub(super) life: Duration,
    pub(super) shown: Arc<Shown>,
    /// When the present certificate is late in its life.
    pub(super) at: OffsetDateTime,
}

impl Renewal {
    /// Renews until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let left = Duration::try_from(self.at - OffsetDateTime::now_utc()).unwrap_or_default();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(left.min(LOOK)) => {}
            }
            if left > LOOK {
                continue;
            }
            let (place, registry, listen, life) =
                (self.place.clone(), Arc::clone(&self.registry), self.listen, self.life);
            let made = tokio::task::spawn_blocking(move || {
                let authority = registry.authority().ok()?;
                Some(place.server(authority, listen, life))
            });
            match made.await {
                Ok(Some(Ok((key, next)))) => {
                    info!("the controller's certificate is renewed");
                    self.shown.replace(key);
                    self.at = next;
                }
                Ok(Some(Err(failure))) => {
                    error!(%failure, "cannot renew the controller's certificate, trying again");
                    self.at = OffsetDateTime::now_utc() + LOOK;
                }
                Ok(None) | Err(_) => return,
            }
        }
    }
}
