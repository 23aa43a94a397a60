//! The identity of a running agent. At two thirds of a certificate's life a new key gets a new certificate, which the
//! next request shows; what `laneyard-agent join --replace` put in its place is taken over too. Work that is under way
//! notices nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::KeyPair;
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{AUTHORITY, FACTS, Facts, Home, Identity, IdentityError, signing_request};
use crate::ids::WorkerId;
use crate::moment::moment;
use crate::transport::certificate::Validity;
use crate::transport::{Call, Credentials, Transport};
use crate::wire::identity::{Issued, Renew};
use crate::wire::paths;

/// Waits after a failed try: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(300));
/// Clock and files are looked at this often: the clock may be set, the machine may have slept, somebody may join anew.
const LOOK: Duration = Duration::from_secs(1);

/// Renews the identity's certificate, again and again, until `shutdown`. An identity that a join put in its place is
/// shown from the next request on, if it is the same worker's at the same controller.
pub async fn keep_renewed(home: Home, identity: Identity, transport: Transport, shutdown: CancellationToken) {
    let Identity { worker, credentials, mut validity, controller } = identity;
    let mut watch = Watch::begin(home.clone(), Facts { controller, worker: worker.clone() });
    let (mut pause, mut not_before) = (BACKOFF.0, Instant::now());
    while look_again(validity.renew_at(), not_before, &shutdown).await {
        if let Some(joined) = watch.joined(&credentials) {
            info!(%worker, until = moment(joined.not_after), "this worker joined anew: the new identity counts from now on");
            (validity, pause, not_before) = (joined, BACKOFF.0, Instant::now());
        }
        if validity.renew_at() > OffsetDateTime::now_utc() || not_before > Instant::now() {
            continue;
        }
        match renew(&home, &worker, &transport, &credentials).await {
            Ok(renewed) => {
                info!(%worker, until = moment(renewed.not_after), "the certificate is renewed");
                (validity, pause) = (renewed, BACKOFF.0);
                continue;
            }
            Err(problem) if validity.not_after <= OffsetDateTime::now_utc() => {
                error!(%worker, error = %problem, "the certificate has ended: join anew with --replace");
            }
            Err(problem) => {
                warn!(%worker, until = moment(validity.not_after), error = %problem, "cannot renew the certificate yet");
            }
        }
        not_before = Instant::now() + pause;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

async fn renew(
    home: &Home,
    worker: &WorkerId,
    transport: &Transport,
    credentials: &Credentials,
) -> Result<Validity, IdentityError> {
    let key = KeyPair::generate()?;
    let request = Renew { csr: signing_request(worker.as_str(), &key)? };
    let call = Call::post(&paths::worker_part(worker, "certificate"), &request).map_err(IdentityError::Refused)?;
    let issued: Issued = transport.json(call).await.map_err(IdentityError::Refused)?;
    home.keep(&issued, &key)?;
    let (certificate, validity) = home.certificate()?;
    credentials.replace(certificate);
    Ok(validity)
}

/// Waits for the next look. False when `shutdown` came first.
async fn look_again(due: OffsetDateTime, not_before: Instant, shutdown: &CancellationToken) -> bool {
    let due = Duration::try_from(due - OffsetDateTime::now_utc()).unwrap_or_default();
    let wait = due.max(not_before.saturating_duration_since(Instant::now())).min(LOOK);
    tokio::select! {
        () = shutdown.cancelled() => false,
        () = tokio::time::sleep(wait) => !shutdown.is_cancelled(),
    }
}

/// Sees when somebody joins anew. A join writes its facts last, and always as a new file; a renewal never does.
struct Watch {
    home: Home,
    /// As the agent began: another worker or controller needs another start.
    facts: Facts,
    authority: Option<Vec<u8>>,
    seen: Option<(u64, i64, i64)>,
}

impl Watch {
    fn begin(home: Home, facts: Facts) -> Self {
        let mut watch = Self { authority: std::fs::read(home.file(AUTHORITY)).ok(), home, facts, seen: None };
        watch.seen = watch.stamp();
        watch
    }

    fn path(&self) -> PathBuf {
        self.home.file(FACTS)
    }

    fn stamp(&self) -> Option<(u64, i64, i64)> {
        let found = std::fs::metadata(self.path()).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec()))
    }

    /// Shows an identity that was put in place since the last look; `None` if there is none that can be shown.
    fn joined(&mut self, credentials: &Credentials) -> Option<Validity> {
        let now = self.stamp();
        if now.is_none() || now == self.seen {
            return None;
        }
        self.seen = now;
        let found = match self.home.facts() {
            Ok(found) => found?,
            Err(problem) => {
                error!(error = %problem, "the new identity cannot be used");
                return None;
            }
        };
        // The same authority is the same controller, by whatever name.
        if found.worker != self.facts.worker || std::fs::read(self.home.file(AUTHORITY)).ok() != self.authority {
            let Facts { controller, worker } = found;
            error!(%worker, controller, "this machine joined as another worker or another controller's: restart the agent");
            return None;
        }
        match self.home.certificate() {
            Ok((certificate, validity)) => {
                if found.controller != self.facts.controller {
                    let (now, next) = (&self.facts.controller, &found.controller);
                    info!(%now, %next, "joined by another address of the same controller, which counts from the next start on");
                }
                credentials.replace(certificate);
                Some(validity)
            }
            Err(problem) => {
                error!(error = %problem, "the new identity cannot be used");
                None
            }
        }
    }
}
