//! Who this worker is: joined once with a single-use token, renewed before each certificate ends. The key is made here
//! and never travels.

mod join;
mod renew;

use std::io;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DnType, KeyPair};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::ids::WorkerId;
use crate::secret_file;
use crate::transport::certificate::{CertificateError, Validity, authorities};
use crate::transport::{CallError, ClientCertificate, Credentials, EndpointError, Fingerprint, Trust};
use crate::wire::identity::Issued;

pub use self::join::{Joining, join};
pub use self::renew::keep_renewed;

/// Certificate and key in one file, so that both change at once.
const CERTIFICATE: &str = "worker.pem";
const AUTHORITY: &str = "ca.pem";
const FACTS: &str = "worker.json";

/// The worker has no identity, or cannot get one.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The state directory already has an identity.
    #[error(
        "this worker has joined {controller}{also} as `{worker}` before: run `laneyard-agent run`, or pass --replace to \
         join anew"
    )]
    Joined { controller: String, also: String, worker: WorkerId },
    /// The state directory has an identity for another controller.
    #[error(
        "this worker has joined another controller before, {controller} as `{worker}`, and works for one at a time: pass \
         --replace to leave that one for {url}, or name another directory with --state-dir"
    )]
    Elsewhere { controller: String, worker: WorkerId, url: String },
    /// A file of the identity fails.
    #[error("cannot {what} `{}`: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// A file of the identity cannot be understood.
    #[error("`{}` is damaged: {reason}; join again with --replace", path.display())]
    Damaged { path: PathBuf, reason: String },
    /// The key cannot be made or used.
    #[error("cannot make a key: {0}")]
    Key(#[from] rcgen::Error),
    /// The controller's address cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Only TLS proves the controller.
    #[error("`{url}` cannot be joined: joining needs https://, so that the fingerprint proves the controller")]
    Plaintext { url: String },
    /// The controller says no, or is not there.
    #[error("cannot join: {0}")]
    Refused(#[source] CallError),
    /// The answer is of another authority than was promised.
    #[error("the controller answered with an authority of another fingerprint ({found}): nothing was kept")]
    OtherAuthority { found: Fingerprint },
}

/// Where an identity is kept: `worker/` under the agent's state directory.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
}

/// What is known beside the keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    controller: String,
    worker: WorkerId,
}

/// An identity that can be used.
#[derive(Debug)]
pub struct Identity {
    pub controller: String,
    pub worker: WorkerId,
    pub credentials: Credentials,
    /// Of the present certificate.
    pub validity: Validity,
}

impl Home {
    /// Under a state directory; nothing is created yet.
    #[must_use]
    pub fn of(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("worker") }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn facts(&self) -> Result<Option<Facts>, IdentityError> {
        let path = self.file(FACTS);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(IdentityError::File { what: "read", path, source }),
        };
        let facts = serde_json::from_slice(&text);
        facts.map(Some).map_err(|error| IdentityError::Damaged { path, reason: error.to_string() })
    }

    /// Reads the identity; `None` if this worker never joined.
    ///
    /// # Errors
    /// A file cannot be read or is damaged.
    pub fn load(&self) -> Result<Option<Identity>, IdentityError> {
        let Some(Facts { controller, worker }) = self.facts()? else { return Ok(None) };
        let (certificate, validity) = self.certificate()?;
        let trust = Trust::Authorities(authorities(&self.file(AUTHORITY))?);
        let credentials = Credentials::none().trusting(trust).with_certificate(certificate);
        Ok(Some(Identity { controller, worker, credentials, validity }))
    }

    fn certificate(&self) -> Result<(ClientCertificate, Validity), IdentityError> {
        let path = self.file(CERTIFICATE);
        let certificate = ClientCertificate::read(&path, &path)?;
        let Some(validity) = certificate.validity() else {
            return Err(IdentityError::Damaged { path, reason: "the certificate has no readable dates".to_owned() });
        };
        Ok((certificate, validity))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<(), IdentityError> {
        let path = self.file(name);
        secret_file::write(&path, content).map_err(|source| IdentityError::File { what: "write", path, source })
    }

    /// Puts a new certificate in place of the present one, with the key that it is for.
    fn keep(&self, issued: &Issued, key: &KeyPair) -> Result<(), IdentityError> {
        self.write(CERTIFICATE, format!("{}{}", issued.certificate, key.serialize_pem()))
    }
}

/// A request for a certificate over `key` in PEM form.
///
/// # Errors
/// The key cannot sign.
pub fn signing_request(name: &str, key: &KeyPair) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serialize_request(key)?.pem()
}

impl Identity {
    /// True once the certificate is over: nothing but joining anew helps.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.validity.not_after <= OffsetDateTime::now_utc()
    }
}
