//! Credentials: how a worker joins, how certificates are renewed, what administrators make, see and revoke.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::ids::WorkerId;

/// Longest life of a join token, which stands in a command line and lets anybody in who reads it.
pub const LONGEST_JOIN: Duration = Duration::from_secs(30 * 86_400);
/// Longest life of any other credential that ends at all: a hundred years of 365 days.
pub const LONGEST_LIFE: Duration = Duration::from_secs(36_500 * 86_400);

/// What a credential allows. Each role includes those before it, but for workers, who are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Speaks for one worker, and for nothing else. Certificates only.
    Worker,
    /// Submits attempts and watches them.
    Submit,
    /// Answers approvals.
    Approve,
    /// Everything, workers and credentials included.
    Admin,
}

impl Role {
    /// The role as text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Submit => "submit",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Role {
    type Err = String;
    /// A role that a person can be given.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "submit" => Ok(Self::Submit),
            "approve" => Ok(Self::Approve),
            "admin" => Ok(Self::Admin),
            "worker" => Err("workers get certificates: run `laneyard worker token`".to_owned()),
            _ => Err(format!("`{text}` is no role: submit, approve or admin")),
        }
    }
}

/// What kind of credential it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A secret in the `Authorization` header.
    Token,
    /// A client certificate of the controller's own authority.
    Certificate,
    /// Lets one worker join, once.
    Join,
}

impl Kind {
    /// The kind as text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Certificate => "certificate",
            Self::Join => "join",
        }
    }
}

/// Whether a credential counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Active,
    Expired,
    Revoked,
    /// A join token that a worker has joined with.
    Used,
}

impl Standing {
    /// The standing as text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Used => "used",
        }
    }
}

/// `POST /v1/credentials`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateCredential {
    pub kind: Kind,
    /// Shown as the submitter. For a join token: the only worker name that it is good for; empty for any.
    #[serde(default)]
    pub name: String,
    /// Ignored for a join token.
    #[serde(default = "least")]
    pub role: Role,
    /// Life in seconds; absent: without end for a token, an hour for a join token, the configured life for a
    /// certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
    /// For a certificate: the signing request (PEM). Only its key counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr: Option<String>,
}

const fn least() -> Role {
    Role::Submit
}

/// Answer to `POST /v1/credentials`. The secret is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedCredential {
    pub credential: CredentialView,
    /// Of a token or a join token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Of a certificate: the chain (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Fingerprint of the authority, if the controller has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<String>,
}

impl fmt::Debug for CreatedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedCredential").field("credential", &self.credential).finish_non_exhaustive()
    }
}

/// What an administrator sees of a credential. Its id is public.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialView {
    pub id: String,
    pub kind: Kind,
    pub role: Role,
    pub name: String,
    pub standing: Standing,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
}

/// `POST /v1/join`: needs no other credential than the join token in it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Join {
    pub token: String,
    pub worker: WorkerId,
    /// Signing request (PEM). Only its key counts: it proves that the caller has it.
    pub csr: String,
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// `POST /v1/workers/{id}/certificate`: the next certificate, for the holder of a good one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Renew {
    pub csr: String,
}

/// A certificate for a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Issued {
    /// Public id of the credential.
    pub id: String,
    /// The certificate (PEM).
    pub certificate: String,
    /// The authority's certificate (PEM).
    pub ca: String,
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// `POST /v1/workers/{id}/revoke`: what was revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RevokedWorker {
    pub worker: WorkerId,
    pub revoked: Vec<String>,
}
