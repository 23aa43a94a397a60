//! Which credentials count right now. In memory for every request, on the disk before anything is answered; a
//! revocation ends what the credential has open.

use std::collections::{BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use agent::ids::WorkerId;
use agent::moment::moment;
use agent::wire::identity::{CredentialView, Kind, Role, Standing};
use time::OffsetDateTime;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::Lives;
use super::authority::{Authority, AuthorityError};
use super::credential::{Credential, id_of};
use crate::store::{Store, StoreError};

/// Ended credentials are forgotten after this time: what they would be answered does not matter any more.
const REMEMBER: Duration = Duration::from_secs(90 * 86_400);
/// The wall clock is looked at this often while something is open: it may be set.
const LOOK: Duration = Duration::from_secs(60);

/// A credential that does not count, in words for whoever shows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("no known credential")]
    Unknown,
    #[error("no such join token")]
    UnknownJoin,
    #[error("the client certificate was not issued by this controller")]
    Foreign,
    #[error("{bearer} ended at {}", moment(*end))]
    Expired { bearer: Bearer, end: OffsetDateTime },
    #[error("{bearer} was revoked")]
    Revoked { bearer: Bearer },
    #[error("join token {id} was used by worker `{worker}` with another key")]
    Used { id: String, worker: String },
}

/// Whose credential does not count: the way to another one depends on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bearer {
    #[error("credential {id} of `{name}`")]
    Person { id: String, name: String },
    #[error("the certificate {id} of worker `{name}`")]
    Worker { id: String, name: String },
    #[error("join token {id}")]
    Joining { id: String },
}

/// Something about credentials failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("this controller has no authority of its own")]
    NoIdentity,
    #[error("there is no credential `{0}`")]
    Missing(String),
    #[error("worker `{0}` has joined and its certificate is good")]
    NameTaken(WorkerId),
    #[error("join token {id} is for worker `{worker}` only")]
    OtherName { id: String, worker: String },
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rcgen::Error> for RegistryError {
    fn from(error: rcgen::Error) -> Self {
        Self::Authority(error.into())
    }
}

/// A credential that counts.
#[derive(Clone, Debug)]
pub struct Grant {
    pub id: String,
    pub name: String,
    pub role: Role,
    expires_at: Option<OffsetDateTime>,
    revoked: CancellationToken,
}

impl Grant {
    /// True once it was revoked; whoever waited for something looks again.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.revoked.is_cancelled()
    }

    /// Returns when the credential counts no more.
    pub async fn ended(self) {
        let expired = async {
            let Some(end) = self.expires_at else { return std::future::pending().await };
            while let Ok(left) = Duration::try_from(end - OffsetDateTime::now_utc()) {
                tokio::time::sleep(left.min(LOOK)).await;
                if left.is_zero() {
                    return;
                }
            }
        };
        tokio::select! {
            () = self.revoked.cancelled() => {}
            () = expired => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) credential: Credential,
    revoked: CancellationToken,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) by_id: HashMap<String, Known>,
    /// Certificates by their digest.
    certificates: HashMap<[u8; 32], String>,
}

impl Table {
    pub(super) fn put(&mut self, credential: Credential) {
        if credential.kind == Kind::Certificate {
            self.certificates.insert(credential.digest, credential.id.clone());
        }
        let revoked = self.by_id.remove(&credential.id).map(|known| known.revoked).unwrap_or_default();
        if credential.revoked_at.is_some() {
            revoked.cancel();
        }
        self.by_id.insert(credential.id.clone(), Known { credential, revoked });
    }

    pub(super) fn forget(&mut self, id: &str) {
        if let Some(Known { credential, revoked }) = self.by_id.remove(id) {
            self.certificates.remove(&credential.digest);
            revoked.cancel();
        }
    }
}

/// The register.
#[derive(Debug)]
pub struct Registry {
    pub(super) store: Store,
    authority: Option<Authority>,
    pub(super) lives: Lives,
    pub(super) table: RwLock<Table>,
    /// One change at a time: what was checked still holds when it is written.
    pub(super) changing: Mutex<()>,
}

impl Registry {
    /// Reads everything that is known.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub async fn open(store: Store, authority: Option<Authority>, lives: Lives) -> Result<Self, StoreError> {
        let mut table = Table::default();
        let (mut old, horizon) = (Vec::new(), OffsetDateTime::now_utc() - REMEMBER);
        for credential in store.credentials().await? {
            let ended = credential.expires_at.is_some_and(|end| end < horizon);
            if ended { old.push(credential.id) } else { table.put(credential) }
        }
        store.forget_credentials(&old).await?;
        Ok(Self { store, authority, lives, table: RwLock::new(table), changing: Mutex::new(()) })
    }

    /// The authority, if there is one.
    ///
    /// # Errors
    /// There is none.
    pub fn authority(&self) -> Result<&Authority, RegistryError> {
        self.authority.as_ref().ok_or(RegistryError::NoIdentity)
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Judges a bearer token.
    ///
    /// # Errors
    /// Why it does not count.
    pub fn token(&self, shown: &str) -> Result<Grant, Denied> {
        let id = id_of(shown).ok_or(Denied::Unknown)?;
        self.read(|table| {
            let known = table.by_id.get(id).filter(|known| known.credential.kind == Kind::Token);
            judge(known.filter(|known| known.credential.is_opened_by(shown)).ok_or(Denied::Unknown)?)
        })
    }

    /// Judges a client certificate whose key the client has proven to hold.
    ///
    /// # Errors
    /// Why it does not count.
    pub fn certificate(&self, digest: &[u8; 32]) -> Result<Grant, Denied> {
        self.read(|table| {
            let known = table.certificates.get(digest).and_then(|id| table.by_id.get(id));
            judge(known.ok_or(Denied::Foreign)?)
        })
    }

    /// Workers that were thrown out: a certificate of theirs was revoked, and none counts.
    #[must_use]
    pub fn revoked_workers(&self) -> BTreeSet<String> {
        let now = OffsetDateTime::now_utc();
        self.read(|table| {
            let theirs = |standing| {
                let all = table.by_id.values().map(|known| &known.credential);
                let theirs = all.filter(|known| known.kind == Kind::Certificate && known.role == Role::Worker);
                theirs.filter(move |known| known.standing(now) == standing).map(|known| &known.name)
            };
            let active: BTreeSet<&String> = theirs(Standing::Active).collect();
            theirs(Standing::Revoked).filter(|name| !active.contains(name)).cloned().collect()
        })
    }

    /// All credentials, by id.
    #[must_use]
    pub fn list(&self) -> Vec<CredentialView> {
        let now = OffsetDateTime::now_utc();
        let mut views: Vec<_> =
            self.read(|table| table.by_id.values().map(|known| known.credential.view(now)).collect());
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views
    }
}

fn judge(known: &Known) -> Result<Grant, Denied> {
    let credential = &known.credential;
    match credential.standing(OffsetDateTime::now_utc()) {
        Standing::Active => Ok(Grant {
            id: credential.id.clone(),
            name: credential.name.clone(),
            role: credential.role,
            expires_at: credential.expires_at,
            revoked: known.revoked.clone(),
        }),
        Standing::Revoked => Err(revoked(credential)),
        Standing::Expired => Err(expired(credential)),
        Standing::Used => Err(Denied::Unknown),
    }
}

fn bearer(credential: &Credential) -> Bearer {
    let (id, name) = (credential.id.clone(), credential.name.clone());
    match (credential.kind, credential.role) {
        (Kind::Join, _) => Bearer::Joining { id },
        (_, Role::Worker) => Bearer::Worker { id, name },
        (_, Role::Submit | Role::Approve | Role::Admin) => Bearer::Person { id, name },
    }
}

pub(super) fn revoked(credential: &Credential) -> Denied {
    Denied::Revoked { bearer: bearer(credential) }
}

pub(super) fn expired(credential: &Credential) -> Denied {
    let end = credential.expires_at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    Denied::Expired { bearer: bearer(credential), end }
}
