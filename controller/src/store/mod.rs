//! What the controller keeps: the journal, assignments, event logs, answers.
//!
//! `serve` keeps them in SQLite and a directory. Embedded mode keeps nothing itself: the local worker's own files are
//! the durable truth, and this module reads them there.

pub mod answers;
pub mod compact;
mod memory;
mod reserve;
mod sqlite;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::assignment::Assignment;
use agent::event::Event;
use agent::ids::AttemptId;
use agent::link::Runner;
use agent::transport::BoxError;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use self::answers::Answers;
use self::memory::Memory;
use self::reserve::Reserve;
use self::sqlite::Sqlite;
use crate::event::Entry;
use crate::identity::Credential;
use crate::reactor::Effects;

/// The store failed. Nothing of the batch is kept, and nothing of it was acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full.
    #[error("the disk under `{}` is full: free some space; nothing that was acknowledged is lost", path.display())]
    Full { path: PathBuf },
    /// The database fails.
    #[error("the database `{}` fails: {source}", path.display())]
    Database { path: PathBuf, source: sqlx::Error },
    /// A line of the database cannot be read.
    #[error("the database `{}` is damaged at {place}: {reason}", path.display())]
    Damaged { path: PathBuf, place: String, reason: String },
    /// The database was written by a newer release.
    #[error("the database `{}` has schema {found}, this release knows {known}: use the newer release", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// A file fails.
    #[error("cannot {what} `{}`: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    /// The uploaded bytes are not those that were announced.
    #[error("the answer's bytes do not have the digest that was announced")]
    DigestMismatch,
    /// The uploaded bytes are too many.
    #[error("the answer is longer than {limit} bytes")]
    TooLong { limit: u64 },
    /// The upload broke off.
    #[error("the upload broke off: {0}")]
    Upload(#[source] BoxError),
}

impl StoreError {
    fn file(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::StorageFull {
            return Self::Full { path: path.to_owned() };
        }
        Self::File { what, path: path.to_owned(), source }
    }
}

/// An answer being uploaded.
pub type Upload = BoxStream<'static, Result<Bytes, BoxError>>;

/// The store. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    records: Records,
    answers: Answers,
    /// `None` where nothing is kept here.
    reserve: Option<Arc<Reserve>>,
}

#[derive(Clone, Debug)]
enum Records {
    Sqlite(Sqlite),
    Memory(Arc<Memory>),
}

impl Store {
    /// Opens or creates the store in a directory, and brings an older one up to date. `reserve` bytes are set aside for
    /// a full disk; 0 for none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open(dir: &Path, reserve: u64) -> Result<Self, StoreError> {
        let answers = Answers::in_directory(&dir.join("blobs"))?;
        let reserve = Reserve::find(dir, reserve);
        let path = dir.join("controller.sqlite");
        let opened = match Sqlite::open(&path).await {
            // Even opening writes.
            Err(StoreError::Full { .. }) if reserve.release() => Sqlite::open(&path).await,
            opened => opened,
        };
        let store = Self { records: Records::Sqlite(opened?), answers, reserve: Some(Arc::new(reserve)) };
        store.fill_reserve();
        Ok(store)
    }

    /// True if a new attempt can be admitted: the reserve is whole, and as much again is free.
    #[must_use]
    pub fn admits(&self) -> bool {
        let Some(reserve) = &self.reserve else { return true };
        self.fill_reserve();
        reserve.is_held() && self.free_bytes().is_none_or(|free| free >= reserve.bytes())
    }

    /// Sets space aside again after a full disk, if there is some now.
    pub fn fill_reserve(&self) {
        if let (Some(reserve), Some(free)) = (&self.reserve, self.free_bytes()) {
            reserve.fill(free);
        }
    }

    /// Gives the reserve back to whoever writes. False if there was none.
    fn release_reserve(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.release())
    }

    /// A store over what the local worker keeps.
    #[must_use]
    pub fn embedded(runner: Arc<dyn Runner>) -> Self {
        let answers = Answers::OfRunner(Arc::clone(&runner).into());
        Self { records: Records::Memory(Arc::new(Memory::new(runner))), answers, reserve: None }
    }

    /// Makes a batch durable, all or nothing. A full disk is met with the reserve first.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing of the batch is kept then.
    pub async fn commit(&self, effects: &Effects) -> Result<(), StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => match sqlite.commit(effects).await {
                Err(StoreError::Full { .. }) if self.release_reserve() => sqlite.commit(effects).await,
                committed => committed,
            },
            Records::Memory(memory) => {
                memory.commit(effects);
                Ok(())
            }
        }
    }

    /// The whole journal in order.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn journal(&self) -> Result<Vec<Entry>, StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => sqlite.journal().await,
            Records::Memory(memory) => Ok(memory.journal()),
        }
    }

    /// An attempt's assignment.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn assignment(&self, id: AttemptId) -> Result<Option<Assignment>, StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => sqlite.assignment(id).await,
            Records::Memory(memory) => Ok(memory.assignment(id)),
        }
    }

    /// All credentials, in no order. Where nothing is kept there are none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn credentials(&self) -> Result<Vec<Credential>, StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => sqlite.credentials().await,
            Records::Memory(_) => Ok(Vec::new()),
        }
    }

    /// Makes credentials durable, all or none. A full disk is met with the reserve first: a revocation must not fail.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn keep_credentials(&self, credentials: &[Credential]) -> Result<(), StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => match sqlite.keep_credentials(credentials).await {
                Err(StoreError::Full { .. }) if self.release_reserve() => sqlite.keep_credentials(credentials).await,
                kept => kept,
            },
            Records::Memory(_) => Ok(()),
        }
    }

    /// Removes credentials that ended long ago.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn forget_credentials(&self, ids: &[String]) -> Result<(), StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => sqlite.forget_credentials(ids).await,
            Records::Memory(_) => Ok(()),
        }
    }

    /// Some kept events after number `after`: at most `max`, fewer if they are large.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn events(&self, id: AttemptId, after: u64, max: usize) -> Result<Vec<Event>, StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => sqlite.events(id, after, max).await,
            Records::Memory(memory) => memory.events(id, after, max),
        }
    }

    /// Receives an answer, checks its digest and makes it durable. Returns its size in bytes.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn keep_answer(&self, id: AttemptId, digest: &str, upload: Upload) -> Result<u64, StoreError> {
        let kept = self.answers.keep(id, digest, upload).await;
        if matches!(kept, Err(StoreError::Full { .. })) && self.release_reserve() {
            tracing::info!(attempt = %id, "its answer finds room when it is sent again");
        }
        kept
    }

    /// Opens an attempt's answer.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn answer(&self, id: AttemptId, digest: &str) -> Result<answers::Kept, StoreError> {
        self.answers.open(id, digest).await
    }

    /// Removes an attempt's events before number `below`, some at a time.
    ///
    /// # Errors
    /// See [`StoreError`]; what was removed until then stays removed.
    pub async fn trim_events(&self, id: AttemptId, below: u64) -> Result<(), StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => sqlite.trim_events(id, below).await,
            Records::Memory(_) => Ok(()),
        }
    }

    /// Bytes of an attempt's events before number `below`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn event_bytes(&self, id: AttemptId, below: u64) -> Result<u64, StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => sqlite.event_bytes(id, below).await,
            Records::Memory(_) => Ok(0),
        }
    }

    /// Removes what is left of forgotten attempts, and entries on workers that later ones have overtaken, in small
    /// transactions. `needed` names the answers of attempts that are kept.
    ///
    /// # Errors
    /// See [`StoreError`]; what was removed until then stays removed.
    pub async fn compact(&self, needed: &BTreeSet<String>) -> Result<(), StoreError> {
        let Records::Sqlite(sqlite) = &self.records else { return Ok(()) };
        for id in sqlite.forgotten().await? {
            for digest in sqlite.answers_of(id).await? {
                if !needed.contains(&digest) {
                    self.answers.remove(&digest)?;
                }
            }
            sqlite.remove_forgotten(id).await?;
        }
        sqlite.remove_overtaken().await?;
        sqlite.shrink().await
    }

    /// Bytes free for everybody where the store lives; `None` where it keeps nothing itself.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.answers.free_bytes()
    }
}
