//! One credential: what is kept about it, and the secret that only its holder has.

use agent::wire::identity::{CredentialView, Kind, Role, Standing};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

/// First part of every secret, so that scanners find a leaked one.
const PREFIX: &str = "ly";

/// A credential as it is stored: never with its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// Public: in lists, logs and revocations.
    pub id: String,
    pub kind: Kind,
    pub role: Role,
    /// The submitter's or worker's name; of a join token, the only name that it is good for, or empty.
    pub name: String,
    /// SHA-256 of the secret, or of the certificate.
    #[serde(with = "digest")]
    pub digest: [u8; 32],
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option", default)]
    pub revoked_at: Option<OffsetDateTime>,
    /// Of a used join token: who joined with it, and the SHA-256 of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Use>,
}

/// The one use of a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    pub worker: String,
    #[serde(with = "digest")]
    pub key: [u8; 32],
}

impl Credential {
    /// Whether it counts at `now`.
    #[must_use]
    pub fn standing(&self, now: OffsetDateTime) -> Standing {
        if self.revoked_at.is_some() {
            Standing::Revoked
        } else if self.used.is_some() {
            Standing::Used
        } else if self.expires_at.is_some_and(|end| end <= now) {
            Standing::Expired
        } else {
            Standing::Active
        }
    }

    /// What an administrator sees.
    #[must_use]
    pub fn view(&self, now: OffsetDateTime) -> CredentialView {
        CredentialView {
            id: self.id.clone(),
            kind: self.kind,
            role: self.role,
            name: self.name.clone(),
            standing: self.standing(now),
            created_at: self.created_at,
            expires_at: self.expires_at,
        }
    }

    /// True for the secret of this credential. Takes the same time whatever is wrong with it.
    #[must_use]
    pub fn is_opened_by(&self, secret: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        bool::from(digest.ct_eq(&self.digest))
    }
}

/// A new secret and the id inside it.
///
/// # Errors
/// The system gives no random bytes.
pub(super) fn secret() -> Result<(String, String), rcgen::Error> {
    let id = super::authority::hex(&random::<8>()?);
    let secret = format!("{PREFIX}_{id}_{}", URL_SAFE_NO_PAD.encode(random::<32>()?));
    Ok((id, secret))
}

/// The id inside a secret, if it looks like one of ours.
pub(super) fn id_of(secret: &str) -> Option<&str> {
    let (id, _) = secret.strip_prefix(PREFIX)?.strip_prefix('_')?.split_once('_')?;
    Some(id)
}

/// Bytes of the system's generator.
///
/// # Errors
/// It gives none.
pub(super) fn random<const N: usize>() -> Result<[u8; N], rcgen::Error> {
    let mut bytes = [0; N];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    Ok(bytes)
}

/// Serde form of a digest: lower-case hexadecimal.
mod digest {
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::super::authority::hex(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let print: agent::transport::Fingerprint = text.parse().map_err(serde::de::Error::custom)?;
        Ok(*print.bytes())
    }
}
