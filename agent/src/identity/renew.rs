//! Renewal: at two thirds of a certificate's life a new key gets a new certificate, which the next request shows. Work
//! that is under way notices nothing.

use std::time::Duration;

use rcgen::KeyPair;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{Home, Identity, IdentityError, signing_request};
use crate::ids::WorkerId;
use crate::transport::certificate::Validity;
use crate::transport::{Call, Credentials, Transport};
use crate::wire::identity::{Issued, Renew};
use crate::wire::paths;

/// Waits after a failed try: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(300));
/// The wall clock is looked at this often: it may be set, or the machine may have slept.
const LOOK: Duration = Duration::from_secs(60);

/// Renews the identity's certificate, again and again, until `shutdown`.
pub async fn keep_renewed(home: Home, identity: Identity, transport: Transport, shutdown: CancellationToken) {
    let Identity { worker, credentials, mut validity, .. } = identity;
    let mut pause = BACKOFF.0;
    while sleep_until(validity.renew_at(), &shutdown).await {
        match renew(&home, &worker, &transport, &credentials).await {
            Ok(renewed) => {
                info!(%worker, until = %renewed.not_after, "the certificate is renewed");
                (validity, pause) = (renewed, BACKOFF.0);
                continue;
            }
            Err(problem) if validity.not_after <= OffsetDateTime::now_utc() => {
                error!(%worker, error = %problem, "the certificate has ended: join anew with --replace");
            }
            Err(problem) => {
                warn!(%worker, until = %validity.not_after, error = %problem, "cannot renew the certificate yet");
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(BACKOFF.1),
        }
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

/// False when `shutdown` came first.
async fn sleep_until(moment: OffsetDateTime, shutdown: &CancellationToken) -> bool {
    loop {
        let left = Duration::try_from(moment - OffsetDateTime::now_utc()).unwrap_or_default();
        if left.is_zero() {
            return !shutdown.is_cancelled();
        }
        tokio::select! {
            () = shutdown.cancelled() => return false,
            () = tokio::time::sleep(left.min(LOOK)) => {}
        }
    }
}
