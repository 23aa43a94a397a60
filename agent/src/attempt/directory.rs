//! The attempt's directory on the worker: where everything that must survive the agent stands.
//!
//! ```text
//! <state>/attempts/<attempt id>/
//!   lock              held (flock) by the one process that drives the attempt
//!   assignment.json   what was accepted, and under which generation
//!   journal.jsonl     one line before each step
//!   events.jsonl      the event log
//!   spool/            output of each step, as the supervisor writes it; `supervisor.jsonl`, its own record of ends
//!   egress.jsonl      decisions of the egress proxy
//!   answer            the final text, if there is one
//!   receipt.json      the receipt, once it is durable
//!   delivered         status that the caller was given, where it is another than the receipt's
//! ```

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::durable::Durable;
use crate::assignment::Assignment;
use crate::ids::{AttemptId, Generation, OwnerId};
use crate::receipt::Status;

/// Longest path of a unix socket that every supported system takes.
const SOCKET_PATH_MAX: usize = 103;

/// Marker in an attempt's directory: its terminal event is durable at the controller.
pub const RELEASED: &str = "released";

/// What the caller was given instead of what the receipt says.
const DELIVERED: &str = "delivered";

/// File that holds space for the result, and its size in bytes: journal line, receipt and terminal event.
const RESERVE: &str = "reserve";
const RESERVED: usize = 192 * 1024;

/// The root of a worker's durable state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

/// What was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    pub generation: Generation,
    pub assignment: Assignment,
}

/// An attempt's directory; holding it means holding the lock: this process alone drives the attempt.
#[derive(Debug)]
pub struct AttemptDir {
    attempt: AttemptId,
    path: PathBuf,
    run: PathBuf,
    _lock: Flock<File>,
}

/// The directory of an attempt cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process drives this attempt.
    #[error("attempt {attempt} is driven by another process; follow it with `laneyard attach {attempt}`")]
    Busy { attempt: AttemptId },
    /// No such attempt here.
    #[error("no attempt {attempt} under `{}`", root.display())]
    Unknown { attempt: AttemptId, root: PathBuf },
    #[error("could not {what} `{}`", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::Io { what, path, source }
}

impl StateDir {
    /// Opens the state directory, creating it (mode 0700) with its parents.
    ///
    /// # Errors
    /// It cannot be created, or its owner id cannot be read or written.
    pub fn open(root: &Path) -> Result<Self, DirectoryError> {
        for path in [root.to_owned(), root.join("attempts")] {
            DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed("create", &path))?;
        }
        // Engines and the kernel report resolved paths: compare like with like.
        let root = root.canonicalize().map_err(failed("resolve", root))?;
        Ok(Self { root })
    }

    /// The directory itself, resolved.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Random id of this state directory, made on first use: the owner label of every container that it starts.
    ///
    /// # Errors
    /// The id cannot be read or written.
    pub fn owner(&self) -> Result<OwnerId, DirectoryError> {
        let path = self.root.join("owner");
        for _ in 0..2 {
            match fs::read_to_string(&path) {
                Ok(text) => return text.parse().map_err(|error| failed("read", &path)(io::Error::other(error))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("read", &path)(error)),
            }
            let mut fresh = tempfile::NamedTempFile::new_in(&self.root).map_err(failed("write", &path))?;
            write!(fresh, "{}", uuid::Uuid::new_v4().simple()).map_err(failed("write", &path))?;
            fresh.as_file().sync_all().map_err(failed("write", &path))?;
            // Two processes may race here; the first one's id stays.
            match fresh.persist_noclobber(&path) {
                Ok(_) => {}
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("write", &path)(error.error)),
            }
        }
        Err(failed("read", &path)(io::ErrorKind::NotFound.into()))
    }

    /// Where an attempt's directory is, whether or not it exists.
    #[must_use]
    pub fn attempt_path(&self, attempt: AttemptId) -> PathBuf {
        self.root.join("attempts").join(attempt.to_string())
    }

    /// Directory of the attempt's sockets. Short, since the paths of sockets are limited; its name is stable, since a
    /// container refers to it for as long as it runs.
    #[must_use]
    pub fn run_path(&self, attempt: AttemptId) -> PathBuf {
        let here = self.root.join("run").join(attempt.short());
        if here.as_os_str().len() + "/egress.sock".len() <= SOCKET_PATH_MAX {
            return here;
        }
        short_run_root().join(attempt.short())
    }

    /// Notes that the caller of an attempt was given another end than its receipt tells. Not synced: it is for lists, and a
    /// power cut may take it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_delivered(&self, attempt: AttemptId, status: Status) -> io::Result<()> {
        let path = self.attempt_path(attempt);
        if !path.is_dir() {
            return Ok(()); // no worker ever had it
        }
        let fresh = path.join("delivered.new");
        fs::write(&fresh, status.as_str())?;
        fs::rename(fresh, path.join(DELIVERED))
    }

    /// What was noted by [`Self::note_delivered`].
    #[must_use]
    pub fn delivered(&self, attempt: AttemptId) -> Option<Status> {
        fs::read_to_string(self.attempt_path(attempt).join(DELIVERED)).ok()?.parse().ok()
    }

    /// All attempts that have a directory here, oldest first.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn attempts(&self) -> Result<Vec<AttemptId>, DirectoryError> {
        let mut found = self.named()?;
        found.retain(|attempt| self.was_accepted(*attempt));
        Ok(found)
    }

    /// Those of [`StateDir::attempts`] for which something is left to do: the terminal event is not delivered, or what only a
    /// running attempt needs is still there. Asked at every command, so it looks once at each that is over.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn unfinished(&self) -> Result<Vec<AttemptId>, DirectoryError> {
        let mut found = self.named()?;
        let running = self.running();
        found.retain(|attempt| {
            let released = self.attempt_path(*attempt).join(RELEASED).exists();
            (!released || running.contains(&attempt.short())) && self.was_accepted(*attempt)
        });
        Ok(found)
    }

    /// Names of the directories of sockets, wherever they stand ([`StateDir::run_path`]).
    fn running(&self) -> HashSet<String> {
        let places = [self.root.join("run"), short_run_root()];
        let entries = places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn named(&self) -> Result<Vec<AttemptId>, DirectoryError> {
        let path = self.root.join("attempts");
        let mut found = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed("list", &path))? {
            let entry = entry.map_err(failed("list", &path))?;
            found.extend(entry.file_name().to_str().and_then(|name| name.parse::<AttemptId>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// A directory without an assignment was never accepted: its creator died before the promise.
    fn was_accepted(&self, attempt: AttemptId) -> bool {
        self.attempt_path(attempt).join("assignment.json").exists()
    }

    /// Reads what was accepted, without taking the lock.
    ///
    /// # Errors
    /// The attempt is unknown here, or its record cannot be read.
    pub fn accepted(&self, attempt: AttemptId) -> Result<Accepted, DirectoryError> {
        let path = self.attempt_path(attempt).join("assignment.json");
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::Unknown { attempt, root: self.root.clone() });
            }
            other => other.map_err(failed("read", &path))?,
        };
        serde_json::from_slice(&bytes).map_err(|error| failed("read", &path)(io::Error::other(error)))
    }

    /// Accepts an attempt: makes its directory, takes its lock and writes the assignment. It is promised once
    /// [`AttemptDir::durable`] says so. An attempt that was accepted before is opened as it is.
    ///
    /// # Errors
    /// Another process holds it, or the directory cannot be written.
    pub fn accept(&self, accepted: &Accepted) -> Result<AttemptDir, DirectoryError> {
        let attempt = accepted.assignment.attempt;
        let path = self.attempt_path(attempt);
        DirBuilder::new().recursive(true).mode(0o700).create(path.join("spool")).map_err(failed("create", &path))?;
        let dir = self.lock(attempt)?;
        let file = path.join("assignment.json");
        if !file.exists() {
            let bytes =
                serde_json::to_vec(accepted).map_err(|error| failed("write", &file)(io::Error::other(error)))?;
            dir.write_whole("assignment.json", &bytes).map_err(failed("write", &file))?;
        }
        Ok(dir)
    }

    /// Removes what an acceptance left that did not succeed. An attempt that some process drives is left alone.
    pub fn forget(&self, attempt: AttemptId) {
        if !self.is_driven(attempt)
            && let Err(error) = fs::remove_dir_all(self.attempt_path(attempt))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%attempt, %error, "what a refused attempt left could not be removed");
        }
    }

    /// Takes over an accepted attempt whose driver is gone.
    ///
    /// # Errors
    /// The attempt is unknown here or another process drives it.
    pub fn adopt(&self, attempt: AttemptId) -> Result<(AttemptDir, Accepted), DirectoryError> {
        let accepted = self.accepted(attempt)?;
        Ok((self.lock(attempt)?, accepted))
    }

    /// True while a process drives the attempt. Lookers do not get into each other's way.
    #[must_use]
    pub fn is_driven(&self, attempt: AttemptId) -> bool {
        let Ok(file) = File::open(self.attempt_path(attempt).join("lock")) else { return false };
        matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, nix::errno::Errno::EWOULDBLOCK)))
    }

    /// True while a client on this machine, alive or killed, still wants answer or receipt of the attempt.
    #[must_use]
    pub fn is_awaited(&self, attempt: AttemptId) -> bool {
        self.root.join("clients").join(format!("{attempt}.json")).exists()
    }

    fn lock(&self, attempt: AttemptId) -> Result<AttemptDir, DirectoryError> {
        let path = self.attempt_path(attempt);
        let lock = path.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock)
            .map_err(failed("open", &lock))?;
        let held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => held,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Err(DirectoryError::Busy { attempt }),
            Err((_, errno)) => return Err(failed("lock", &lock)(errno.into())),
        };
        let run = self.run_path(attempt);
        Ok(AttemptDir { attempt, path, run, _lock: held })
    }
}

impl AttemptDir {
    /// The attempt.
    #[must_use]
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a file of the attempt.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Spool file of a step's stream (`out` or `err`), or of the supervisor's own record.
    #[must_use]
    pub fn spool(&self, name: &str) -> PathBuf {
        self.path.join("spool").join(name)
    }

    /// Directory of the attempt's sockets.
    #[must_use]
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// Makes the directory of the sockets (mode 0755: the container's user connects to them).
    ///
    /// # Errors
    /// It cannot be created, or it exists and is not ours.
    pub fn create_run(&self) -> io::Result<()> {
        if let Some(parent) = self.run.parent() {
            DirBuilder::new().recursive(true).mode(0o711).create(parent)?;
        }
        match DirBuilder::new().mode(0o755).create(&self.run) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let meta = fs::symlink_metadata(&self.run)?;
                let ours = std::os::unix::fs::MetadataExt::uid(&meta) == nix::unistd::Uid::effective().as_raw();
                if meta.is_dir() && ours { Ok(()) } else { Err(error) }
            }
            other => other,
        }
    }

    /// Removes the directory of the sockets; absent is fine.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_run(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.run) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Forgets a small text; absent is fine.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_note(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Sets space aside for the attempt's own end: a disk that fills up meanwhile still takes the result.
    ///
    /// # Errors
    /// There is not even this much space: the attempt must not start.
    pub fn reserve(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.file(RESERVE))?;
        if allocate(&file, RESERVED)? {
            return Ok(());
        }
        // A hole would promise nothing: the bytes are really written.
        (&file).write_all(&vec![0; RESERVED])?;
        file.sync_all()
    }

    /// Gives the reserved space back, right before the result is written.
    pub fn release_reserve(&self) {
        let _ = fs::remove_file(self.file(RESERVE));
    }

    /// A small text that a later driver of the attempt may need; `None` if it was never written, or not to its end.
    #[must_use]
    pub fn read_note(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path.join(name)).ok().filter(|text| !text.is_empty())
    }

    /// Begins to make the accepted assignment outlast a power cut.
    #[must_use]
    pub fn durable(&self) -> Durable {
        let dir = self.path.clone();
        Durable::begin(move || {
            File::open(dir.join("assignment.json"))?.sync_all()?;
            let parents = [Some(dir.as_path()), dir.parent()];
            parents.into_iter().flatten().try_for_each(|dir| File::open(dir)?.sync_all())
        })
    }

    /// Keeps a small text for a later driver of the attempt, whole or not at all. It survives this process, and a power cut
    /// only with [`Self::sync`]: mostly it is about a living container, which ends with the power too.
    ///
    /// # Errors
    /// The device refuses; an older note of that name is untouched then.
    pub fn write_note(&self, name: &str, text: &str) -> io::Result<()> {
        if self.read_note(name).as_deref() == Some(text) {
            return Ok(());
        }
        self.write_whole(name, text.as_bytes())
    }

    fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut fresh = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.path)?;
        fresh.write_all(bytes)?;
        fresh.persist(self.path.join(name)).map(drop).map_err(|error| error.error)
    }

    /// Makes a file that was written as a note outlast a power cut.
    ///
    /// # Errors
    /// It is not there, or the device refuses.
    pub fn sync(&self, name: &str) -> io::Result<()> {
        File::open(self.path.join(name))?.sync_all()?;
        File::open(&self.path)?.sync_all()
    }

    /// Writes a file whole and durably (new file, sync, rename, sync of the directory), mode 0600.
    ///
    /// # Errors
    /// The device refuses; an older file of that name is untouched then.
    pub fn write_durably(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut fresh = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.path)?;
        fresh.write_all(bytes)?;
        fresh.as_file().sync_all()?;
        fresh.persist(self.path.join(name)).map_err(|error| error.error)?;
        File::open(&self.path)?.sync_all()
    }
}

/// Where sockets of a state directory stand whose own path is too long for them.
fn short_run_root() -> PathBuf {
    PathBuf::from(format!("/tmp/laneyard-{}", nix::unistd::Uid::effective()))
}

/// Takes the blocks of a file's first `bytes` from the device. False where the system or the file system cannot.
fn allocate(file: &File, bytes: usize) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        use nix::errno::Errno;
        let length = i64::try_from(bytes).map_err(io::Error::other)?;
        match nix::fcntl::posix_fallocate(file, 0, length) {
            Ok(()) => return Ok(true),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let _ = (file, bytes);
    Ok(false)
}
