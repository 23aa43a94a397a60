//! Joining: the fingerprint proves the controller, the token proves us, and a lost answer is asked for again with the
//! same key.

use std::time::Duration;

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::{AUTHORITY, FACTS, Facts, Home, IdentityError, signing_request};
use crate::ids::WorkerId;
use crate::secret_file;
use crate::transport::{Call, CallError, Credentials, Endpoint, Fingerprint, Token, Transport, Trust};
use crate::wire::identity::{Issued, Join};
use crate::wire::paths;

/// A lost answer is asked for again so many times.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// What is needed to join.
#[derive(Debug)]
pub struct Joining {
    pub controller: Endpoint,
    pub token: Token,
    /// Of the controller's authority.
    pub pin: Fingerprint,
    pub worker: WorkerId,
    /// Joins although the worker has an identity.
    pub replace: bool,
}

/// Gets a certificate and keeps it with its key under `home`.
///
/// # Errors
/// See [`IdentityError`]. Nothing of a former identity is lost before the new one is complete.
pub async fn join(home: &Home, joining: &Joining) -> Result<(), IdentityError> {
    let url = joining.controller.to_string();
    if !joining.controller.is_tls() {
        return Err(IdentityError::Plaintext { url });
    }
    if !joining.replace
        && let Some(Facts { controller, worker }) = home.facts()?
    {
        return Err(IdentityError::Joined { controller, worker });
    }
    secret_file::directory(&home.dir).map_err(|source| IdentityError::File {
        what: "create",
        path: home.dir.clone(),
        source,
    })?;
    let (name, key) = key(home, &joining.token)?;
    let request = Join {
        token: joining.token.expose().to_owned(),
        worker: joining.worker.clone(),
        csr: signing_request(joining.worker.as_str(), &key)?,
    };
    let credentials = Credentials::none().trusting(Trust::Pinned(joining.pin));
    let transport = Transport::with(&joining.controller, credentials)?;
    let issued = ask(&transport, &request).await.map_err(IdentityError::Refused)?;
    let found = CertificateDer::from_pem_slice(issued.ca.as_bytes());
    let found = found.map_or_else(|_| Fingerprint::of(&[]), |der| Fingerprint::of(&der));
    if found != joining.pin {
        return Err(IdentityError::OtherAuthority { found });
    }
    home.write(AUTHORITY, &issued.ca)?;
    home.keep(&issued, &key)?;
    let facts = Facts { controller: url, worker: joining.worker.clone() };
    home.write(FACTS, serde_json::to_string(&facts).unwrap_or_default())?;
    // Read it back as `run` will, while the user is looking.
    home.load()?;
    let _ = std::fs::remove_file(home.file(&name)); // a key too many opens nothing
    Ok(())
}

async fn ask(transport: &Transport, request: &Join) -> Result<Issued, CallError> {
    let mut tries = 1;
    loop {
        match transport.json(Call::post(paths::JOIN, request)?).await {
            Err(error) if error.is_passing() && tries < TRIES => {
                warn!(%error, "no answer to the join, asking again with the same key");
                tokio::time::sleep(PAUSE * tries).await;
                tries += 1;
            }
            answer => return answer,
        }
    }
}

/// The key of this token's join: made at the first try, on the disk before the controller hears of it.
fn key(home: &Home, token: &Token) -> Result<(String, KeyPair), IdentityError> {
    let digest = Sha256::digest(token.expose().as_bytes());
    let tag: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = format!("joining-{tag}.key");
    if let Ok(text) = std::fs::read_to_string(home.file(&name))
        && let Ok(key) = KeyPair::from_pem(&text)
    {
        return Ok((name, key));
    }
    let key = KeyPair::generate()?;
    home.write(&name, key.serialize_pem())?;
    Ok((name, key))
}
