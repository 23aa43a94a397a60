//! The ledger's file: one writer at a time, and always the old or the new content, whatever happens in between.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::step::StepError;
use super::{Asked, Ledger, Recorded};

/// How long a writer waits for another: 500 tries, 20 milliseconds apart.
const TRIES: u32 = 500;
const PAUSE: Duration = Duration::from_millis(20);

/// A ledger on disk; the file may be absent, which is an empty ledger.
#[derive(Clone, Debug)]
pub struct LedgerFile {
    path: PathBuf,
}

/// The ledger could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file breaks its own rules.
    #[error("the ledger is invalid")]
    Invalid(Vec<String>),
    /// The request contradicts the ledger.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Another writer holds the lock, or died with it. It is never stolen.
    #[error("ledger lock {} is held; if no op-record is running, a writer died: check the ledger, then remove the directory", .0.display())]
    Locked(PathBuf),
    #[error("cannot {doing} {}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl LedgerFile {
    /// Names a ledger; touches nothing.
    #[must_use]
    pub fn new(path: &OsStr) -> Self {
        Self { path: PathBuf::from(path) }
    }

    /// Reads the ledger without a lock: writers replace the file as a whole.
    ///
    /// # Errors
    /// The file cannot be read, or is no valid ledger.
    pub fn read(&self) -> Result<Ledger, StoreError> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ledger::default()),
            read => read.map_err(|source| self.failed("read ledger", source))?,
        };
        Ledger::read(&String::from_utf8_lossy(&bytes), &self.path.display().to_string()).map_err(StoreError::Invalid)
    }

    /// Takes one request under the lock and makes it durable before it answers. Waits at most ten seconds for others.
    ///
    /// # Errors
    /// The request is refused, or the change could not be made durable; the file then holds what it held before.
    pub fn record(&self, asked: Asked, now: impl FnOnce() -> String) -> Result<Recorded, StoreError> {
        let lock = Lock::acquire(&self.path)?;
        let mut ledger = self.read()?;
        let recorded = ledger.record(asked, &now())?;
        if !matches!(recorded, Recorded::Idempotent(_)) {
            self.replace(&ledger.render())?;
        }
        drop(lock);
        Ok(recorded)
    }

    fn replace(&self, text: &str) -> Result<(), StoreError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = self.directory().join(format!(".{name}.{}.tmp", uuid::Uuid::new_v4().simple()));
        let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, &self.path));
        if let Err(source) = written {
            // The error that matters is the first one.
            let _ = fs::remove_file(&temporary);
            return Err(self.failed("write ledger", source));
        }
        File::open(self.directory())
            .and_then(|directory| directory.sync_all())
            .map_err(|source| self.failed("make durable the ledger", source))
    }

    fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> StoreError {
        StoreError::Io { doing, path: self.path.clone(), source }
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The lock directory; removed when dropped.
struct Lock {
    path: PathBuf,
}

impl Lock {
    fn acquire(ledger: &Path) -> Result<Self, StoreError> {
        let mut name = OsString::from(ledger);
        name.push(".lock");
        let path = PathBuf::from(name);
        for attempt in 0..=TRIES {
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if attempt < TRIES {
                        thread::sleep(PAUSE);
                    }
                }
                Err(source) => return Err(StoreError::Io { doing: "lock ledger with", path, source }),
            }
        }
        Err(StoreError::Locked(path))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A lock that cannot be removed shows at the next writer, with its path.
        let _ = fs::remove_dir(&self.path);
    }
}
