//! A bare repository per project, below one directory with a size cap.
//!
//! `<root>/<project>.lock` is held shared by whoever uses the project and alone by eviction; `<root>/<project>/pins/` names
//! users that outlive a process (an attempt's worktree borrows objects from here until it is released).

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::oid::{ObjectFormat, ProjectId};
use super::program::Repo;
use super::scratch::{self, Scratch};
use super::{SnapshotError, io};
use crate::worktree::git::Git;

/// The caches of one machine's user.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    cap: u64,
    git: Git,
}

/// A project of the cache in use: never evicted while this lives.
#[derive(Debug)]
pub struct Lease {
    project: ProjectId,
    format: ObjectFormat,
    dir: PathBuf,
    git: Git,
    /// Object directories of this machine that the project's objects lean on: the user's own.
    sources: Vec<PathBuf>,
    _lock: File,
}

/// A user of a project that outlives a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub project: ProjectId,
    pub holder: String,
    pub age: std::time::Duration,
}

/// A project that had to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    pub project: ProjectId,
    pub bytes: u64,
}

impl Cache {
    /// Opens or makes the directory (0700). `cap`: bytes that [`Cache::evict`] leaves at most.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(root: &Path, cap: u64, git: &Git) -> Result<Self, SnapshotError> {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(root).map_err(io(root))?;
        let root = root.canonicalize().map_err(io(root))?;
        Ok(Self { root, cap, git: git.clone() })
    }

    pub(super) fn git(&self) -> &Git {
        &self.git
    }

    /// The name of the project at `place` for this cache's user: stable here, meaningless elsewhere.
    pub(super) fn project_at(&self, place: &Path) -> Result<ProjectId, SnapshotError> {
        let path = self.root.join("secret");
        let secret = match std::fs::read(&path) {
            Ok(secret) => secret,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let secret = [*uuid::Uuid::new_v4().as_bytes(), *uuid::Uuid::new_v4().as_bytes()].concat();
                let beside = self.root.join(format!("secret.{}", std::process::id()));
                std::fs::write(&beside, &secret).map_err(io(&beside))?;
                // The first one wins: a link never replaces.
                let _ = std::fs::hard_link(&beside, &path);
                std::fs::remove_file(&beside).map_err(io(&beside))?;
                std::fs::read(&path).map_err(io(&path))?
            }
            Err(source) => return Err(SnapshotError::Io { path, source }),
        };
        Ok(ProjectId::derive(&secret, place.as_os_str().as_bytes()))
    }

    /// Takes a project into use; makes its repository when there is none.
    ///
    /// # Errors
    /// The disk refuses, or the project's objects are named otherwise.
    pub fn lease(&self, project: &ProjectId, format: ObjectFormat) -> Result<Lease, SnapshotError> {
        let lock = self.lock_file(project)?;
        lock.lock_shared().map_err(io(self.lock_path(project)))?;
        let dir = self.root.join(project.as_str());
        let sources = read_sources(&dir)?;
        let lease = Lease { project: project.clone(), format, dir, git: self.git.clone(), sources, _lock: lock };
        let repository = lease.git_dir();
        for part in ["refs", "objects/pack", "objects/info"] {
            let part = repository.join(part);
            std::fs::create_dir_all(&part).map_err(io(part))?;
        }
        for part in ["pins", "tmp", "incoming", "outgoing"] {
            let part = lease.dir.join(part);
            std::fs::create_dir_all(&part).map_err(io(part))?;
        }
        scratch::sweep(&lease.dir.join("tmp"));
        let config = repository.join("config");
        match std::fs::read_to_string(&config) {
            Ok(found) if found != format.config(true) => {
                let detail =
                    format!("project {project} names its objects otherwise: it was converted to another format");
                return Err(SnapshotError::Damaged { what: "the cache", detail });
            }
            Ok(_) => {}
            Err(_) => {
                write_beside(&config, format.config(true).as_bytes())?;
                write_beside(&repository.join("HEAD"), b"ref: refs/heads/none\n")?;
            }
        }
        write_beside(&lease.dir.join("used"), b"")?;
        Ok(lease)
    }

    /// Lets a user go that [`Lease::pin`] named. One that is not there is fine.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn unpin(&self, project: &ProjectId, holder: &str) -> Result<(), SnapshotError> {
        let path = self.root.join(project.as_str()).join("pins").join(holder_name(holder)?);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(path)(error)),
            _ => Ok(()),
        }
    }

    /// Every user that outlives a process, with its project and how long ago it came.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn pins(&self) -> Result<Vec<Pin>, SnapshotError> {
        let mut pins = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(io(&self.root))?.flatten() {
            let Ok(project) = ProjectId::try_from(entry.file_name().to_string_lossy().into_owned()) else { continue };
            for pin in std::fs::read_dir(entry.path().join("pins")).into_iter().flatten().flatten() {
                let since = pin.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
                let holder = pin.file_name().to_string_lossy().into_owned();
                pins.push(Pin { project: project.clone(), holder, age: since.unwrap_or_default() });
            }
        }
        Ok(pins)
    }

    /// Removes the projects that were used longest ago until the rest is at most the cap. Blocks while it counts and removes.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn evict(&self) -> Result<Vec<Evicted>, SnapshotError> {
        let mut projects = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(io(&self.root))? {
            let entry = entry.map_err(io(&self.root))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("gone.") {
                // Left by an eviction that was cut off.
                std::fs::remove_dir_all(entry.path()).map_err(io(entry.path()))?;
            } else if let Ok(project) = ProjectId::try_from(name) {
                scratch::sweep(&entry.path().join("tmp"));
                super::pending::tidy(&entry.path());
                let used = entry.path().join("used").metadata().and_then(|meta| meta.modified());
                projects.push((used.unwrap_or(SystemTime::UNIX_EPOCH), project, size(&entry.path())));
            }
        }
        projects.sort();
        let mut total: u64 = projects.iter().map(|(_, _, bytes)| bytes).sum();
        let mut evicted = Vec::new();
        for (_, project, bytes) in projects {
            if total <= self.cap {
                break;
            }
            if self.remove(&project)? {
                total -= bytes;
                evicted.push(Evicted { project, bytes });
            }
        }
        Ok(evicted)
    }

    /// False when somebody uses it.
    fn remove(&self, project: &ProjectId) -> Result<bool, SnapshotError> {
        let lock = self.lock_file(project)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(source)) => return Err(io(self.lock_path(project))(source)),
        }
        let dir = self.root.join(project.as_str());
        let pinned = std::fs::read_dir(dir.join("pins")).is_ok_and(|mut pins| pins.next().is_some());
        if pinned {
            return Ok(false);
        }
        // Out of the way at once, so that a crash leaves no half of a repository under the project's name.
        let gone = self.root.join(format!("gone.{}", uuid::Uuid::new_v4().simple()));
        std::fs::rename(&dir, &gone).map_err(io(&dir))?;
        std::fs::remove_dir_all(&gone).map_err(io(gone))?;
        Ok(true)
    }

    fn lock_path(&self, project: &ProjectId) -> PathBuf {
        self.root.join(format!("{project}.lock"))
    }

    fn lock_file(&self, project: &ProjectId) -> Result<File, SnapshotError> {
        let path = self.lock_path(project);
        File::options().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(io(path))
    }
}

impl Lease {
    /// The project.
    #[must_use]
    pub fn project(&self) -> &ProjectId {
        &self.project
    }

    pub(super) fn format(&self) -> ObjectFormat {
        self.format
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn git_dir(&self) -> PathBuf {
        self.dir.join("repository.git")
    }

    /// Its object directory: what a container mounts (read-only) to see a worktree's history.
    #[must_use]
    pub fn objects(&self) -> PathBuf {
        self.git_dir().join("objects")
    }

    pub(super) fn repo(&self) -> Repo {
        Repo::bare(&self.git, &self.git_dir()).reading(&self.sources)
    }

    pub(super) fn sources(&self) -> &[PathBuf] {
        &self.sources
    }

    /// Remembers where the user's objects are, for this lease and later ones.
    pub(super) fn lean_on(&mut self, sources: &[PathBuf]) -> Result<(), SnapshotError> {
        let new: Vec<&PathBuf> = sources.iter().filter(|source| !self.sources.contains(source)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let all: Vec<PathBuf> = self.sources.iter().chain(new).cloned().collect();
        let text: Vec<u8> = all.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
        write_beside(&self.dir.join("sources"), &text)?;
        self.sources = all;
        Ok(())
    }

    /// A new private directory, removed when the handle goes, or after this process was killed.
    pub(super) fn scratch(&self) -> Result<Scratch, SnapshotError> {
        Scratch::new(&self.dir.join("tmp"))
    }

    /// Keeps the project beyond this process, until [`Cache::unpin`] with the same name (an attempt's id).
    ///
    /// # Errors
    /// The name is none, or the disk refuses.
    pub fn pin(&self, holder: &str) -> Result<(), SnapshotError> {
        write_beside(&self.dir.join("pins").join(holder_name(holder)?), b"")
    }
}

/// Those that are still there.
fn read_sources(dir: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    let path = dir.join("sources");
    match std::fs::read(&path) {
        Ok(text) => {
            let paths = text.split(|byte| *byte == 0).filter(|path| !path.is_empty());
            Ok(paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).filter(|path| path.is_dir()).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(io(path)(source)),
    }
}

fn holder_name(holder: &str) -> Result<&str, SnapshotError> {
    let good = !holder.is_empty()
        && holder.len() <= 128
        && !holder.starts_with('.')
        && holder.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if good { Ok(holder) } else { Err(SnapshotError::Holder { name: holder.to_owned() }) }
}

/// Replaces a file as one step.
pub(super) fn write_beside(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(io(parent))?;
    std::io::Write::write_all(&mut file, bytes).map_err(io(path))?;
    file.persist(path).map_err(|error| io(path)(error.error))?;
    Ok(())
}

/// Bytes on disk, links not followed.
pub(crate) fn size(dir: &Path) -> u64 {
    let mut total = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => open.push(entry.path()),
                Ok(meta) => total += meta.blocks() * 512,
                Err(_) => {}
            }
        }
    }
    total
}
