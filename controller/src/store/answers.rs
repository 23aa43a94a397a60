//! Final answers: content-addressed files, or the local worker's own.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent::ids::AttemptId;
use agent::link::Runner;
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::{StoreError, Upload};

/// Longest answer, in bytes.
pub const ANSWER_LIMIT: u64 = 256 << 20;

/// An answer up to this many bytes is read at once.
const ONE_READ: u64 = 256 << 10;

/// An answer that is kept.
#[derive(Debug)]
pub enum Kept {
    Whole(bytes::Bytes),
    /// At its beginning; `length` is in bytes.
    Long {
        file: tokio::fs::File,
        length: u64,
    },
}

/// An upload takes no longer.
const UPLOADED_JUST_NOW: std::time::Duration = std::time::Duration::from_secs(3600);

#[derive(Clone, Debug)]
pub(super) enum Answers {
    Directory(PathBuf),
    OfRunner(Owner),
}

/// The local worker, and where its answers lie, also after it released their attempts.
#[derive(Clone)]
pub(super) struct Owner {
    runner: Arc<dyn Runner>,
    paths: Arc<Mutex<BTreeMap<AttemptId, PathBuf>>>,
}

impl From<Arc<dyn Runner>> for Owner {
    fn from(runner: Arc<dyn Runner>) -> Self {
        Self { runner, paths: Arc::default() }
    }
}

impl Owner {
    fn path(&self, id: AttemptId) -> Option<PathBuf> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = paths.get(&id) {
            return Some(path.clone());
        }
        let path = self.runner.answer(id)?;
        paths.insert(id, path.clone());
        Some(path)
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Owner")
    }
}

impl Answers {
    pub(super) fn in_directory(dir: &Path) -> Result<Self, StoreError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| StoreError::file("create", dir, source))?;
        Ok(Self::Directory(dir.to_owned()))
    }

    pub(super) async fn keep(&self, id: AttemptId, digest: &str, mut upload: Upload) -> Result<u64, StoreError> {
        let mut file = match self {
            Self::Directory(dir) => {
                let file = tempfile::Builder::new().prefix(".upload-").tempfile_in(dir);
                Some((dir, file.map_err(|source| StoreError::file("create a file in", dir, source))?))
            }
            // The worker has the very same bytes; only the digest is checked.
            Self::OfRunner(owner) => {
                owner.path(id);
                None
            }
        };
        let mut hash = Sha256::new();
        let mut bytes = 0;
        while let Some(chunk) = upload.next().await {
            let chunk = chunk.map_err(StoreError::Upload)?;
            bytes += chunk.len() as u64;
            if bytes > ANSWER_LIMIT {
                return Err(StoreError::TooLong { limit: ANSWER_LIMIT });
            }
            hash.update(&chunk);
            if let Some((dir, file)) = &mut file {
                file.write_all(&chunk).map_err(|source| StoreError::file("write to", dir, source))?;
            }
        }
        if hex(&hash.finalize()) != digest {
            return Err(StoreError::DigestMismatch);
        }
        if let Some((dir, file)) = file {
            let failed = |source| StoreError::file("keep an answer in", dir, source);
            file.as_file().sync_all().map_err(failed)?;
            file.persist(dir.join(digest)).map_err(|error| failed(error.error))?;
            std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        }
        Ok(bytes)
    }

    /// Removes an answer that no attempt names any more. One that was just uploaded again is left: its attempt may be
    /// about to name it.
    pub(super) fn remove(&self, digest: &str) -> Result<(), StoreError> {
        let Self::Directory(dir) = self else { return Ok(()) };
        let path = dir.join(digest);
        let age = path.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_none_or(|age| age < UPLOADED_JUST_NOW) {
            return Ok(());
        }
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::file("remove", &path, source))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn open(&self, id: AttemptId, digest: &str) -> Result<Kept, StoreError> {
        let path = match self {
            Self::Directory(dir) => dir.join(digest),
            Self::OfRunner(owner) => owner.path(id).ok_or_else(|| {
                let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
                StoreError::file("find", Path::new(&format!("answer of {id}")), gone)
            })?,
        };
        let failed = |source| StoreError::file("open", &path, source);
        let opening = path.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut file = std::fs::File::open(opening)?;
            let length = file.metadata()?.len();
            if length > ONE_READ {
                return Ok(Kept::Long { file: file.into(), length });
            }
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(Kept::Whole(bytes.into()))
        });
        read.await.map_err(std::io::Error::other).and_then(|read| read).map_err(failed)
    }

    #[allow(clippy::useless_conversion, reason = "the count has 32 bits on macOS")]
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let Self::Directory(dir) = self else { return None };
        let stat = nix::sys::statvfs::statvfs(dir.as_path()).ok()?;
        Some(u64::from(stat.blocks_available()).saturating_mul(stat.fragment_size()))
    }
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
