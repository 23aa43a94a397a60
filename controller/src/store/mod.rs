//! What the controller keeps: the journal, assignments, event logs, answers.
//!
//! `serve` keeps them in SQLite and a directory. Embedded mode keeps nothing itself: the local worker's own files are
//! the durable truth, and this module reads them there.

pub mod answers;
mod memory;
mod sqlite;

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
use self::sqlite::Sqlite;
use crate::event::Entry;
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
}

#[derive(Clone, Debug)]
enum Records {
    Sqlite(Sqlite),
    Memory(Arc<Memory>),
}

impl Store {
    /// Opens or creates the store in a directory, and brings an older one up to date.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open(dir: &Path) -> Result<Self, StoreError> {
        let answers = Answers::in_directory(&dir.join("blobs"))?;
        Ok(Self { records: Records::Sqlite(Sqlite::open(&dir.join("controller.sqlite")).await?), answers })
    }

    /// A store over what the local worker keeps.
    #[must_use]
    pub fn embedded(runner: Arc<dyn Runner>) -> Self {
        let answers = Answers::OfRunner(Arc::clone(&runner).into());
        Self { records: Records::Memory(Arc::new(Memory::new(runner))), answers }
    }

    /// Makes a batch durable, all or nothing.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing of the batch is kept then.
    pub async fn commit(&self, effects: &Effects) -> Result<(), StoreError> {
        match &self.records {
            Records::Sqlite(sqlite) => sqlite.commit(effects).await,
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
        self.answers.keep(id, digest, upload).await
    }

    /// Opens an attempt's answer. Returns its size in bytes too.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn answer(&self, id: AttemptId, digest: &str) -> Result<(tokio::fs::File, u64), StoreError> {
        self.answers.open(id, digest).await
    }

    /// Bytes free for everybody where the store lives; `None` where it keeps nothing itself.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.answers.free_bytes()
    }
}
