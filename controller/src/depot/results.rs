//! One small file for each result, and an empty one beside it once somebody has looked at it.

use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use agent::ids::AttemptId;
use agent::snapshot::Oid;
use agent::wire::snapshot::{ResultView, SnapshotRef};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::DepotError;

/// A result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    pub attempt: AttemptId,
    pub submitter: String,
    pub snapshot: SnapshotRef,
    pub result: Oid,
    #[serde(with = "time::serde::rfc3339")]
    pub kept_at: OffsetDateTime,
    /// Not in the file: said by the one beside it.
    #[serde(skip)]
    pub reviewed: bool,
}

impl From<Left> for ResultView {
    fn from(left: Left) -> Self {
        let Left { attempt, snapshot, result, kept_at, reviewed, .. } = left;
        Self { attempt, snapshot, result, kept_at, reviewed }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Results {
    dir: PathBuf,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> DepotError {
    let path = path.to_owned();
    move |source| DepotError::File { what, path, source }
}

impl Results {
    pub(super) fn open(dir: &Path) -> Result<Self, DepotError> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("create", dir))?;
        Ok(Self { dir: dir.to_owned() })
    }

    fn path(&self, attempt: AttemptId) -> PathBuf {
        self.dir.join(format!("{attempt}.json"))
    }

    fn mark(&self, attempt: AttemptId) -> PathBuf {
        self.dir.join(format!("{attempt}.reviewed"))
    }

    pub(super) fn keep(
        &self,
        attempt: AttemptId,
        submitter: &str,
        snapshot: &SnapshotRef,
        result: &Oid,
    ) -> Result<(), DepotError> {
        if self.look(attempt)?.is_some_and(|left| left.result == *result) {
            return Ok(());
        }
        let left = Left {
            attempt,
            submitter: submitter.to_owned(),
            snapshot: snapshot.clone(),
            result: result.clone(),
            kept_at: OffsetDateTime::now_utc(),
            reviewed: false,
        };
        let text = serde_json::to_vec(&left).map_err(|error| failed("write", &self.dir)(error.into()))?;
        self.write(&self.path(attempt), &text)
    }

    pub(super) fn look(&self, attempt: AttemptId) -> Result<Option<Left>, DepotError> {
        let path = self.path(attempt);
        match std::fs::read(&path) {
            Ok(text) => {
                let left: Left =
                    serde_json::from_slice(&text).map_err(|error| failed("understand", &path)(error.into()))?;
                Ok(Some(Left { reviewed: self.is_reviewed(attempt), ..left }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    pub(super) fn all(&self) -> Result<Vec<Left>, DepotError> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(failed("list", &self.dir))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(attempt) = name.strip_suffix(".json").and_then(|name| name.parse().ok()) else { continue };
            all.extend(self.look(attempt)?);
        }
        all.sort_by_key(|left| (left.kept_at, left.attempt));
        Ok(all)
    }

    pub(super) fn review(&self, attempt: AttemptId) -> Result<(), DepotError> {
        self.write(&self.mark(attempt), b"")
    }

    pub(super) fn is_reviewed(&self, attempt: AttemptId) -> bool {
        self.mark(attempt).exists()
    }

    pub(super) fn remove(&self, attempt: AttemptId) -> Result<(), DepotError> {
        for path in [self.path(attempt), self.mark(attempt)] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self, path: &Path, text: &[u8]) -> Result<(), DepotError> {
        let written = || {
            let mut fresh = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.dir)?;
            fresh.write_all(text)?;
            fresh.as_file().sync_all()?;
            fresh.persist(path).map_err(|error| error.error)?;
            std::fs::File::open(&self.dir)?.sync_all()
        };
        written().map_err(failed("write", path))
    }
}
