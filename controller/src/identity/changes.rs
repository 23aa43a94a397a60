//! What changes the register: each change is on the disk before it counts.

use std::sync::PoisonError;
use std::time::Duration;

use agent::ids::WorkerId;
use agent::wire::identity::{CredentialView, Kind, Role, Standing};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tracing::info;

use super::authority::{Authority, AuthorityError, Signed, hex};
use super::credential::{Credential, Use, id_of, random, secret};
use super::registry::{Denied, Registry, RegistryError, expired, revoked};
use crate::store::StoreError;

/// Certificates of one worker that count at the same time, at most.
const CERTIFICATES: usize = 8;

impl Registry {
    async fn keep(&self, credentials: Vec<Credential>) -> Result<(), StoreError> {
        self.store.keep_credentials(&credentials).await?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        credentials.into_iter().for_each(|credential| table.put(credential));
        Ok(())
    }

    /// Makes a token, or a join token for `name` (empty: for any name). Returns its secret, which is kept nowhere.
    ///
    /// # Errors
    /// It cannot be made durable, or there is no authority for a join token.
    pub async fn make_token(
        &self,
        kind: Kind,
        role: Role,
        name: &str,
        life: Option<Duration>,
    ) -> Result<(CredentialView, String), RegistryError> {
        let (role, life) = if kind == Kind::Join {
            self.authority()?;
            (Role::Worker, Some(life.unwrap_or(self.lives.join)))
        } else {
            (role, life)
        };
        let (id, secret) = secret()?;
        let credential = Credential { expires_at: end(life)?, ..fresh(id, kind, role, name, digest(&secret)) };
        let view = credential.view(OffsetDateTime::now_utc());
        let _changing = self.changing.lock().await;
        self.keep(vec![credential]).await?;
        Ok((view, secret))
    }

    /// Signs a certificate for a person or a machine.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn make_certificate(
        &self,
        role: Role,
        name: &str,
        request: &str,
        life: Option<Duration>,
    ) -> Result<(CredentialView, Signed), RegistryError> {
        let (credential, signed) = self.sign(role, name, request, life)?;
        let view = credential.view(OffsetDateTime::now_utc());
        let _changing = self.changing.lock().await;
        self.keep(vec![credential]).await?;
        Ok((view, signed))
    }

    fn sign(
        &self,
        role: Role,
        name: &str,
        request: &str,
        life: Option<Duration>,
    ) -> Result<(Credential, Signed), RegistryError> {
        let id = random::<8>()?;
        let life = life.unwrap_or(self.lives.client);
        let signed = self.authority()?.sign_client(&id, name, request, life)?;
        let fresh = fresh(hex(&id), Kind::Certificate, role, name, signed.digest);
        Ok((Credential { expires_at: Some(signed.not_after), ..fresh }, signed))
    }

    /// Lets a worker join: its certificate and the use of the token become durable together. The same token with the
    /// same key and name is answered again, for the first answer may have been lost.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn join(
        &self,
        shown: &str,
        worker: &WorkerId,
        request: &str,
    ) -> Result<(CredentialView, Signed), RegistryError> {
        let now = OffsetDateTime::now_utc();
        let key = Authority::key_of(request)?;
        let _changing = self.changing.lock().await;
        let mut token = self.join_token(shown)?;
        match token.standing(now) {
            Standing::Revoked => return Err(revoked(&token).into()),
            Standing::Expired => return Err(expired(&token).into()),
            Standing::Used if token.expires_at.is_some_and(|end| end <= now) => return Err(expired(&token).into()),
            Standing::Active | Standing::Used => {}
        }
        if !token.name.is_empty() && token.name != worker.as_str() {
            return Err(RegistryError::OtherName { id: token.id, worker: token.name });
        }
        let this = Use { worker: worker.to_string(), key };
        match &token.used {
            Some(used) if *used != this => {
                return Err(Denied::Used { id: token.id.clone(), worker: used.worker.clone() }.into());
            }
            Some(_) => {}
            None if self.has_joined(worker, now) => return Err(RegistryError::NameTaken(worker.clone())),
            None => token.used = Some(this),
        }
        let (credential, signed) = self.sign(Role::Worker, worker.as_str(), request, None)?;
        let view = credential.view(now);
        self.make_room(worker, None).await?;
        self.keep(vec![token, credential]).await?;
        info!(%worker, credential = view.id, "a worker joined");
        Ok((view, signed))
    }

    fn join_token(&self, shown: &str) -> Result<Credential, Denied> {
        let id = id_of(shown).ok_or(Denied::UnknownJoin)?;
        self.read(|table| {
            let known = table.by_id.get(id).map(|known| &known.credential);
            let known = known.filter(|known| known.kind == Kind::Join && known.is_opened_by(shown));
            known.cloned().ok_or(Denied::UnknownJoin)
        })
    }

    fn has_joined(&self, worker: &WorkerId, now: OffsetDateTime) -> bool {
        self.read(|table| {
            let mut all = table.by_id.values().map(|known| &known.credential);
            all.any(|known| is_workers(known, worker.as_str()) && known.standing(now) == Standing::Active)
        })
    }

    fn select(&self, wanted: impl Fn(&Credential) -> bool) -> Vec<Credential> {
        let mut found: Vec<Credential> = self.read(|table| {
            let all = table.by_id.values().map(|known| &known.credential);
            all.filter(|known| known.revoked_at.is_none() && wanted(known)).cloned().collect()
        });
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }

    async fn end_all(&self, mut found: Vec<Credential>) -> Result<Vec<String>, StoreError> {
        let now = OffsetDateTime::now_utc();
        found.iter_mut().for_each(|credential| credential.revoked_at = Some(now));
        let ids: Vec<String> = found.iter().map(|credential| credential.id.clone()).collect();
        self.keep(found).await?;
        info!(credentials = ?ids, "revoked");
        Ok(ids)
    }

    /// The next certificate of a worker that shows a good one, the credential `shown`.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn renew(
        &self,
        worker: &WorkerId,
        request: &str,
        shown: Option<&str>,
    ) -> Result<(CredentialView, Signed), RegistryError> {
        let (credential, signed) = self.sign(Role::Worker, worker.as_str(), request, None)?;
        let view = credential.view(OffsetDateTime::now_utc());
        let _changing = self.changing.lock().await;
        self.make_room(worker, shown).await?;
        self.keep(vec![credential]).await?;
        Ok((view, signed))
    }

    /// Forgets the oldest certificates of a worker that has asked too often, but not the one that it uses.
    async fn make_room(&self, worker: &WorkerId, shown: Option<&str>) -> Result<(), StoreError> {
        let now = OffsetDateTime::now_utc();
        let mut others = self.select(|known| {
            let counts = is_workers(known, worker.as_str()) && known.standing(now) == Standing::Active;
            counts && Some(known.id.as_str()) != shown
        });
        others.sort_by_key(|known| known.created_at);
        let surplus = (others.len() + 2).saturating_sub(CERTIFICATES);
        let old: Vec<String> = others.into_iter().take(surplus).map(|known| known.id).collect();
        self.store.forget_credentials(&old).await?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        old.iter().for_each(|id| table.forget(id));
        Ok(())
    }

    /// Ends one credential now. Revoking it again changes nothing.
    ///
    /// # Errors
    /// There is none with this id, or it cannot be made durable.
    pub async fn revoke(&self, id: &str) -> Result<CredentialView, RegistryError> {
        let _changing = self.changing.lock().await;
        let look = || self.read(|table| table.by_id.get(id).map(|known| known.credential.clone()));
        let missing = || RegistryError::Missing(id.to_owned());
        let credential = look().ok_or_else(missing)?;
        // What a worker joined with would give it another certificate: it goes with the certificate.
        let joined = is_workers(&credential, &credential.name);
        let same = |known: &Credential| {
            known.id == credential.id || joined && known.used.as_ref().is_some_and(|by| by.worker == credential.name)
        };
        if credential.revoked_at.is_none() {
            self.end_all(self.select(same)).await?;
        }
        Ok(look().ok_or_else(missing)?.view(OffsetDateTime::now_utc()))
    }

    /// Ends everything that speaks for a worker, and join tokens made for it or used by it. Returns their ids.
    ///
    /// # Errors
    /// It cannot be made durable.
    pub async fn revoke_worker(&self, worker: &WorkerId) -> Result<Vec<String>, RegistryError> {
        let _changing = self.changing.lock().await;
        Ok(self.end_all(self.select(|known| speaks_for(known, worker.as_str()))).await?)
    }
}

fn is_workers(known: &Credential, worker: &str) -> bool {
    known.kind == Kind::Certificate && known.role == Role::Worker && known.name == worker
}

fn speaks_for(known: &Credential, worker: &str) -> bool {
    let joins = known.kind == Kind::Join
        && (known.name == worker || known.used.as_ref().is_some_and(|used| used.worker == worker));
    joins || is_workers(known, worker)
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn fresh(id: String, kind: Kind, role: Role, name: &str, digest: [u8; 32]) -> Credential {
    Credential {
        id,
        kind,
        role,
        name: name.to_owned(),
        digest,
        created_at: OffsetDateTime::now_utc(),
        expires_at: None,
        revoked_at: None,
        used: None,
    }
}

fn end(life: Option<Duration>) -> Result<Option<OffsetDateTime>, AuthorityError> {
    let Some(life) = life else { return Ok(None) };
    let span = time::Duration::try_from(life).map_err(|_| AuthorityError::Life { life })?;
    OffsetDateTime::now_utc().checked_add(span).map(Some).ok_or(AuthorityError::Life { life })
}
