//! What a client must not forget while its attempt runs: which files it reserved, and where the attempt is. The record
//! is locked for as long as its client lives, so another command can tell a live client from a killed one, and finish
//! what that one left.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::assignment::Assignment;
use agent::config::Proof;
use agent::ids::AttemptId;
use agent::progress::FileRef;
use agent::wire::attempt::CancelSignal;
use agent::wire::snapshot::SnapshotRef;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::run::drive::OnLost;
use super::run::reserve::Reserved;

/// How often a word for the holder of a record is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// One attempt's client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub attempt: AttemptId,
    /// The process that holds the record.
    pub pid: u32,
    /// That process finishes the lanes of others: a signal would be for all of them.
    #[serde(default)]
    pub background: bool,
    pub execution_id: String,
    /// `None`: embedded.
    pub controller: Option<String>,
    /// Names of files, never their content.
    #[serde(flatten)]
    pub proof: Proof,
    /// Of the credential with which it submitted, see [`credential::digest`](super::credential::digest).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    pub output: FileRecord,
    pub receipt: FileRecord,
    /// What a receipt needs should nobody see the end; without prompt and variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Box<Assignment>>,
    /// The client was told to end when its worker is lost.
    #[serde(default)]
    pub on_lost_fail: bool,
    /// A writer's working directory that travelled: what the lane leaves is applied there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<WorktreeRecord>,
}

impl Record {
    /// What its client was told to do when the worker is lost.
    #[must_use]
    pub const fn on_lost(&self) -> OnLost {
        if self.on_lost_fail { OnLost::Fail } else { OnLost::Wait }
    }
}

/// Where a result belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorktreeRecord {
    pub dir: PathBuf,
    pub snapshot: SnapshotRef,
}

/// A reserved file and its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    pub path: PathBuf,
    #[serde(flatten)]
    pub identity: FileRef,
}

impl FileRecord {
    /// Of a reservation of ours.
    #[must_use]
    pub fn of(file: &Reserved) -> Self {
        Self { path: file.path().to_owned(), identity: file.identity() }
    }

    /// Opens the file again, if it still is the same.
    ///
    /// # Errors
    /// As [`Reserved::reopen`].
    pub fn reopen(&self) -> io::Result<Reserved> {
        Reserved::reopen(&self.path, self.identity)
    }
}

/// The records of a state directory.
#[derive(Clone, Debug)]
pub struct Records {
    root: PathBuf,
}

/// A record that this process holds.
#[derive(Debug)]
pub struct Held {
    pub record: Record,
    path: PathBuf,
    lock: Flock<File>,
}

/// A record cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("no client of attempt {attempt} left a record here")]
    Unknown { attempt: AttemptId },
    #[error("process {pid} is the client of attempt {attempt}")]
    Busy { attempt: AttemptId, pid: u32 },
    #[error("could not {what} `{}`; name another place with --state-dir", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::Io { what, path, source }
}

impl Records {
    /// Those under a state directory; nothing is created yet.
    #[must_use]
    pub fn of(state_dir: &Path) -> Self {
        Self { root: state_dir.join("clients") }
    }

    fn path(&self, attempt: AttemptId) -> PathBuf {
        self.root.join(format!("{attempt}.json"))
    }

    /// Writes a new record, held by this process before anybody can see it. It survives this process; see [`Held::durable`]
    /// for a power cut.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn hold(&self, record: Record) -> Result<Held, RecordError> {
        let path = self.path(record.attempt);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root).map_err(failed("create", &self.root))?;
        let fresh = path.with_extension("new");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(failed("create", &fresh))?;
        let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| failed("lock", &fresh)(errno.into()))?;
        write(&mut lock, &record).map_err(failed("write", &fresh))?;
        std::fs::rename(&fresh, &path).map_err(failed("write", &path))?;
        Ok(Held { record, path, lock })
    }

    /// Takes over the record of a client that is gone.
    ///
    /// # Errors
    /// There is none, its client lives, or it cannot be read.
    pub fn take(&self, attempt: AttemptId) -> Result<Held, RecordError> {
        self.take_as(attempt, false)
    }

    /// The same; with `background`, as the process that finishes the lanes of others.
    ///
    /// # Errors
    /// As [`Records::take`].
    pub fn take_as(&self, attempt: AttemptId, background: bool) -> Result<Held, RecordError> {
        let path = self.path(attempt);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(RecordError::Unknown { attempt }),
            other => other.map_err(failed("open", &path))?,
        };
        let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(mut file, errno)| match errno {
            nix::errno::Errno::EWOULDBLOCK => {
                RecordError::Busy { attempt, pid: read(&mut file).map_or(0, |record| record.pid) }
            }
            other => failed("lock", &path)(other.into()),
        })?;
        if FileRef::of(&lock).ok() != FileRef::at(&path) {
            return Err(RecordError::Unknown { attempt }); // forgotten while we waited for it
        }
        let mut record = read(&mut lock).map_err(failed("read", &path))?;
        (record.pid, record.background) = (std::process::id(), background);
        write(&mut lock, &record).and_then(|()| lock.sync_all()).map_err(failed("write", &path))?;
        Ok(Held { record, path, lock })
    }

    /// Leaves a word for the process in the background that holds a record: its lane is to be cancelled.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn ask(&self, attempt: AttemptId, signal: CancelSignal) -> Result<(), RecordError> {
        let path = asking(&self.path(attempt));
        let fresh = path.with_extension(format!("cancel-{}", std::process::id()));
        std::fs::write(&fresh, signal.as_str()).map_err(failed("write", &fresh))?;
        std::fs::rename(&fresh, &path).map_err(failed("write", &path))
    }

    /// Waits for such a word.
    pub async fn asked(&self, attempt: AttemptId) -> CancelSignal {
        let path = asking(&self.path(attempt));
        loop {
            if let Ok(word) = std::fs::read_to_string(&path) {
                let terminate = word == CancelSignal::Terminate.as_str();
                return if terminate { CancelSignal::Terminate } else { CancelSignal::Interrupt };
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The record, whoever holds it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn look(&self, attempt: AttemptId) -> Result<Record, RecordError> {
        let path = self.path(attempt);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RecordError::Unknown { attempt }),
            Err(error) => Err(failed("open", &path)(error)),
            Ok(mut file) => read(&mut file).map_err(failed("read", &path)),
        }
    }

    /// True if the record's client lives.
    #[must_use]
    pub fn is_held(&self, attempt: AttemptId) -> bool {
        let Ok(file) = File::open(self.path(attempt)) else { return false };
        matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, nix::errno::Errno::EWOULDBLOCK)))
    }

    /// Attempts with a record, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<AttemptId> {
        self.named("json")
    }

    /// Attempts with a file of this ending, oldest first.
    pub(super) fn named(&self, ending: &str) -> Vec<AttemptId> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let attempt = |name: String| name.strip_suffix(ending)?.strip_suffix('.')?.parse().ok();
        let mut found: Vec<AttemptId> = names.filter_map(attempt).collect();
        found.sort_unstable();
        found
    }

    /// A file beside an attempt's record.
    pub(super) fn beside(&self, attempt: AttemptId, ending: &str) -> PathBuf {
        self.path(attempt).with_extension(ending)
    }

    /// Writes one, whole or not at all.
    pub(super) fn write_beside(&self, attempt: AttemptId, ending: &str, value: &impl Serialize) -> io::Result<()> {
        let path = self.beside(attempt, ending);
        let fresh = path.with_extension(format!("{ending}-{}", std::process::id()));
        let text = serde_json::to_string(value).map_err(io::Error::other)?;
        std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &path))
    }

    /// Removes one, if it is there.
    pub(super) fn remove_beside(&self, attempt: AttemptId, ending: &str) {
        let _ = std::fs::remove_file(self.beside(attempt, ending)); // it is looked at, and removed, once more
    }
}

impl Held {
    /// Begins to make the record outlast a power cut, and gives the end of that to wait for.
    pub fn durable(&self) -> impl Future<Output = Result<(), RecordError>> + use<> {
        let (file, path) = (self.lock.try_clone(), self.path.clone());
        let syncing = tokio::task::spawn_blocking(move || {
            file?.sync_all()?;
            path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
        });
        let path = self.path.clone();
        async move {
            let synced = syncing.await.map_err(io::Error::other).and_then(|synced| synced);
            synced.map_err(failed("write", &path))
        }
    }

    /// The attempt's files are in place: nothing needs to be remembered.
    pub fn forget(self) {
        let _ = std::fs::remove_file(asking(&self.path));
        let _ = std::fs::remove_file(self.path.with_extension(super::later::NOTE));
        let _ = std::fs::remove_file(&self.path); // a record too many is adopted and found finished
    }
}

/// Where a word for the holder of this record is left.
fn asking(record: &Path) -> PathBuf {
    record.with_extension("cancel")
}

fn read(file: &mut File) -> io::Result<Record> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(io::Error::other)
}

fn write(file: &mut File, record: &Record) -> io::Result<()> {
    let text = serde_json::to_string(record).map_err(io::Error::other)?;
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(directory: &Path) -> Record {
        let path = directory.join("file");
        std::fs::write(&path, "").unwrap();
        let file = FileRecord { identity: FileRef::at(&path).unwrap(), path };
        Record {
            attempt: AttemptId::generate(),
            pid: std::process::id(),
            background: false,
            execution_id: "x".to_owned(),
            controller: None,
            proof: Proof::default(),
            credential: None,
            output: file.clone(),
            receipt: file,
            assignment: None,
            on_lost_fail: false,
            worktree: None,
        }
    }

    #[test]
    fn a_live_clients_record_cannot_be_taken_and_a_dead_ones_can() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::of(directory.path());
        let record = record(directory.path());
        let attempt = record.attempt;
        let held = records.hold(record.clone()).unwrap();
        assert!(records.is_held(attempt));
        let busy = records.take(attempt).unwrap_err();
        assert!(matches!(busy, RecordError::Busy { pid, .. } if pid == std::process::id()), "{busy}");
        drop(held); // as a kill does
        assert!(!records.is_held(attempt));
        let taken = records.take(attempt).unwrap();
        assert_eq!(taken.record, record);
        assert_eq!(records.all(), [attempt]);
        taken.forget();
        assert!(matches!(records.take(attempt).unwrap_err(), RecordError::Unknown { .. }));
    }

    #[test]
    fn a_file_that_was_replaced_is_not_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let record = record(directory.path());
        assert!(record.output.reopen().is_ok());
        let other = directory.path().join("other");
        std::fs::write(&other, "theirs").unwrap();
        std::fs::rename(&other, &record.output.path).unwrap();
        assert!(record.output.reopen().is_err());
    }
}
