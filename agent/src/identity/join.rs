//! Joining: the fingerprint proves the controller, the token proves us, and a lost answer is asked for again with the
//! same key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

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
    /// Told in words while an answer is waited for.
    pub say: fn(&str),
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
        // Its authority is what a controller is known by: an address is one of many.
        let joined = std::fs::read(home.file(AUTHORITY)).ok().and_then(|pem| fingerprint(&pem));
        if joined.is_some_and(|joined| joined != joining.pin) {
            return Err(IdentityError::Elsewhere { controller, worker, url });
        }
        let also = if controller == url { String::new() } else { format!(", which is {url} too,") };
        return Err(IdentityError::Joined { controller, also, worker });
    }
    let fresh = home.dir.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect::<Vec<_>>();
    secret_file::directory(&home.dir).map_err(|source| IdentityError::File {
        what: "create",
        path: home.dir.clone(),
        source,
    })?;
    let (name, key, mut unsent) = key(home, &joining.token)?;
    let request = Join {
        token: joining.token.expose().to_owned(),
        worker: joining.worker.clone(),
        csr: signing_request(joining.worker.as_str(), &key)?,
    };
    let credentials = Credentials::none().trusting(Trust::Pinned(joining.pin));
    let transport = Transport::with(&joining.controller, credentials)?;
    let answer = ask(&transport, &request, &mut unsent, joining.say).await;
    let answer = answer.map_err(|error| {
        let refused = matches!(error, CallError::Refused { .. }) && !error.is_passing();
        (refused || unsent, IdentityError::Refused(error))
    });
    let issued = answer.and_then(|issued| {
        let found = fingerprint(issued.ca.as_bytes()).unwrap_or_else(|| Fingerprint::of(&[]));
        if found == joining.pin { Ok(issued) } else { Err((true, IdentityError::OtherAuthority { found })) }
    });
    let issued = match issued {
        Ok(issued) => issued,
        Err((over, error)) => {
            if over {
                clear(home, &name, &fresh);
            }
            return Err(error);
        }
    };
    home.write(AUTHORITY, &issued.ca)?;
    home.keep(&issued, &key)?;
    let facts = Facts { controller: url, worker: joining.worker.clone() };
    home.write(FACTS, serde_json::to_string(&facts).unwrap_or_default())?;
    // Read it back as `run` will, while the user is looking.
    home.load()?;
    let _ = std::fs::remove_file(home.file(&name)); // a key too many opens nothing
    Ok(())
}

fn fingerprint(pem: &[u8]) -> Option<Fingerprint> {
    CertificateDer::from_pem_slice(pem).ok().map(|der| Fingerprint::of(&der))
}

/// Takes away the key of a join that is refused for good, and the directories that were made for it. After a lost
/// answer it stays: the same command, given again, needs the same key.
fn clear(home: &Home, key: &str, fresh: &[PathBuf]) {
    let _ = std::fs::remove_file(home.file(key));
    for directory in fresh {
        let _ = std::fs::remove_dir(directory); // only if nothing else is in it
    }
}

/// `unsent` becomes false with the first try that may have reached the controller.
async fn ask(transport: &Transport, request: &Join, unsent: &mut bool, say: fn(&str)) -> Result<Issued, CallError> {
    let mut tries = 1;
    loop {
        let answer = transport.json(Call::post(paths::JOIN, request)?).await;
        *unsent &= answer.as_ref().is_err_and(CallError::is_unsent);
        match answer {
            Err(error) if error.is_passing() && tries < TRIES => {
                say(&format!("{error}; asking again, try {} of {TRIES}", tries + 1));
                tokio::time::sleep(PAUSE * tries).await;
                tries += 1;
            }
            answer => return answer,
        }
    }
}

/// The key of this token's join: made at the first try, on the disk before the controller hears of it. True if this is
/// the first try.
fn key(home: &Home, token: &Token) -> Result<(String, KeyPair, bool), IdentityError> {
    let digest = Sha256::digest(token.expose().as_bytes());
    let tag: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = format!("joining-{tag}.key");
    if let Ok(text) = std::fs::read_to_string(home.file(&name))
        && let Ok(key) = KeyPair::from_pem(&text)
    {
        return Ok((name, key, false));
    }
    let key = KeyPair::generate()?;
    home.write(&name, key.serialize_pem())?;
    Ok((name, key, true))
}
