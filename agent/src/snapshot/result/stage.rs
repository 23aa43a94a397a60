//! Changes to the user's files, all or nothing: everything new is written beside first, then a journal says what is about to
//! move, then files move by renames, then a mark says that it is done. Without the mark all of it is undone.

use std::fs::{File, TryLockError};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::fstatat;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};

use super::Change;
use crate::snapshot::beneath::{Root, name};
use crate::snapshot::{SnapshotError, TreePath, io};

/// Beginning of the name of the directory that holds everything meanwhile, in the work tree's top.
const PREFIX: &str = ".laneyard-apply-";

/// A program that a killed process was about to start holds the lock until it has started.
const LETTING_GO: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// What is about to move. `old/<n>` and `new/<n>` belong to `moves[n]`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Journal {
    moves: Vec<Move>,
    /// Directories that were not there before, outer first.
    made: Vec<TreePath>,
    /// Directories that may go when they are empty, inner first.
    removed: Vec<TreePath>,
    /// Empty directories of the result.
    empty: Vec<TreePath>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Move {
    path: TreePath,
    was: bool,
    becomes: bool,
}

/// Changes that are written beside the user's files.
pub(super) struct Stage {
    root: Root,
    dir: PathBuf,
    journal: Journal,
    /// Nobody else ends what we are still doing.
    _lock: File,
}

/// What an interrupted application left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    Nothing,
    /// It had not been finished: every file is as before.
    Undone,
    /// It had been finished: every file is as in the result.
    Finished,
}

impl Stage {
    /// Makes the directory; the caller fills [`Stage::new_file`].
    pub(super) fn make(top: &Path) -> Result<Self, SnapshotError> {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let dir = top.join(format!("{PREFIX}{}", &unique[..12]));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&dir).map_err(io(&dir))?;
        for part in ["old", "new"] {
            std::fs::create_dir(dir.join(part)).map_err(io(&dir))?;
        }
        let root = Root::open(top).map_err(|errno| io(top)(errno.into()))?;
        let journal = Journal { moves: Vec::new(), made: Vec::new(), removed: Vec::new(), empty: Vec::new() };
        let lock = lock(&dir)?;
        Ok(Self { root, dir, journal, _lock: lock })
    }

    pub(super) fn new_file(&self, number: usize) -> PathBuf {
        self.dir.join("new").join(number.to_string())
    }

    pub(super) fn old_file(&self, number: usize) -> PathBuf {
        self.dir.join("old").join(number.to_string())
    }

    /// Writes down what is about to happen. From here on only [`Stage::finish`] or [`recover`] may end it.
    pub(super) fn arm(
        &mut self,
        changes: &[Change],
        removed: Vec<TreePath>,
        empty: Vec<TreePath>,
    ) -> Result<(), SnapshotError> {
        let moves = changes.iter().map(|change| Move {
            path: change.path.clone(),
            was: change.before.is_some(),
            becomes: change.after.is_some(),
        });
        let moves: Vec<Move> = moves.collect();
        let needed = moves.iter().filter(|moved| moved.becomes).flat_map(|moved| moved.path.parents());
        let needed = needed.chain(empty.iter().flat_map(|path| std::iter::once(path.clone()).chain(path.parents())));
        let mut made: Vec<TreePath> = needed.filter(|path| self.root.directory(path, false).is_err()).collect();
        made.sort();
        made.dedup();
        self.journal = Journal { moves, made, removed, empty };
        let text = serde_json::to_vec(&self.journal)
            .map_err(|error| SnapshotError::Damaged { what: "the journal", detail: error.to_string() })?;
        let (beside, path) = (self.dir.join("journal.part"), self.dir.join("journal"));
        std::fs::write(&beside, text).map_err(io(&beside))?;
        sync(&beside)?;
        sync(&self.dir.join("new"))?;
        std::fs::rename(&beside, &path).map_err(io(&path))?;
        sync(&self.dir)
    }

    /// First half: what was there moves aside.
    pub(super) fn clear(&self) -> Result<(), SnapshotError> {
        let old = open(&self.dir.join("old"))?;
        for (number, moved) in self.journal.moves.iter().enumerate().filter(|(_, moved)| moved.was) {
            self.rename_out(&moved.path, &old, number)?;
        }
        for path in &self.journal.removed {
            self.remove_directory(path);
        }
        Ok(())
    }

    /// Second half: the result moves in, and the mark is set.
    pub(super) fn fill(&self) -> Result<(), SnapshotError> {
        let new = open(&self.dir.join("new"))?;
        for (number, moved) in self.journal.moves.iter().enumerate().filter(|(_, moved)| moved.becomes) {
            let error = |errno: Errno| io(moved.path.as_path())(errno.into());
            let (parent, _) = self.root.parent(&moved.path, true).map_err(error)?;
            if fstatat(parent.as_fd(), name(&moved.path), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
                return Err(SnapshotError::Changed { paths: vec![moved.path.clone()] });
            }
            renameat(new.as_fd(), number.to_string().as_str(), parent.as_fd(), name(&moved.path)).map_err(error)?;
        }
        for path in &self.journal.empty {
            self.root.directory(path, true).map_err(|errno| io(path.as_path())(errno.into()))?;
        }
        let done = self.dir.join("done");
        std::fs::write(&done, b"").map_err(io(&done))?;
        sync(&done)?;
        sync(&self.dir)
    }

    /// Everything is in place: what was there before goes.
    pub(super) fn finish(self) -> Result<(), SnapshotError> {
        self.remove()
    }

    /// The journal first: what is left without one is only rubbish.
    fn remove(self) -> Result<(), SnapshotError> {
        match std::fs::remove_file(self.dir.join("journal")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(self.dir)(error)),
            _ => {}
        }
        std::fs::remove_dir_all(&self.dir).map_err(io(self.dir))
    }

    /// Puts everything back as it was.
    pub(super) fn undo(self) -> Result<(), SnapshotError> {
        let (old, new) = (open(&self.dir.join("old"))?, open(&self.dir.join("new"))?);
        for (number, moved) in self.journal.moves.iter().enumerate().filter(|(_, moved)| moved.becomes) {
            let waiting = self.new_file(number).symlink_metadata().is_ok();
            if !waiting {
                self.rename_out(&moved.path, &new, number)?;
            }
        }
        self.journal.made.iter().rev().for_each(|path| self.remove_directory(path));
        for path in self.journal.removed.iter().rev() {
            self.root.directory(path, true).map_err(|errno| io(path.as_path())(errno.into()))?;
        }
        for (number, moved) in self.journal.moves.iter().enumerate().filter(|(_, moved)| moved.was) {
            if self.old_file(number).symlink_metadata().is_ok() {
                let error = |errno: Errno| io(moved.path.as_path())(errno.into());
                let (parent, _) = self.root.parent(&moved.path, true).map_err(error)?;
                renameat(old.as_fd(), number.to_string().as_str(), parent.as_fd(), name(&moved.path)).map_err(error)?;
            }
        }
        self.remove()
    }

    fn rename_out(&self, path: &TreePath, to: &File, number: usize) -> Result<(), SnapshotError> {
        let (parent, _) =
            self.root.parent(path, false).map_err(|_| SnapshotError::Changed { paths: vec![path.clone()] })?;
        renameat(parent.as_fd(), name(path), to.as_fd(), number.to_string().as_str()).map_err(|errno| match errno {
            Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => SnapshotError::Changed { paths: vec![path.clone()] },
            other => io(path.as_path())(other.into()),
        })
    }

    /// A directory that is not empty, or not there, stays as it is.
    fn remove_directory(&self, path: &TreePath) {
        if let Ok((parent, _)) = self.root.parent(path, false) {
            let _ = unlinkat(parent.as_fd(), name(path), UnlinkatFlags::RemoveDir);
        }
    }
}

/// Ends what an interrupted application left in `top`. Call it before anything else looks at the files.
///
/// # Errors
/// A file that was moved cannot be moved back.
pub fn recover(top: &Path) -> Result<Recovered, SnapshotError> {
    let mut recovered = Recovered::Nothing;
    for entry in std::fs::read_dir(top).map_err(io(top))? {
        let entry = entry.map_err(io(top))?;
        let is_stage = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_stage {
            continue;
        }
        let dir = entry.path();
        let lock = lock(&dir)?;
        let journal = match std::fs::read(dir.join("journal")) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| SnapshotError::Damaged { what: "the journal", detail: error.to_string() })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // Nothing had moved yet.
                std::fs::remove_dir_all(&dir).map_err(io(&dir))?;
                recovered = Recovered::Undone;
                continue;
            }
            Err(source) => return Err(io(dir.join("journal"))(source)),
        };
        let root = Root::open(top).map_err(|errno| io(top)(errno.into()))?;
        let done = dir.join("done").exists();
        let stage = Stage { root, dir, journal, _lock: lock };
        recovered = if done {
            stage.finish()?;
            Recovered::Finished
        } else {
            stage.undo()?;
            Recovered::Undone
        };
    }
    Ok(recovered)
}

fn lock(dir: &Path) -> Result<File, SnapshotError> {
    let lock = open(dir)?;
    let began = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if began.elapsed() < LETTING_GO => std::thread::sleep(LOOK),
            Err(error) => return Err(io(dir)(error.into())),
        }
    }
}

fn open(dir: &Path) -> Result<File, SnapshotError> {
    File::open(dir).map_err(io(dir))
}

pub(super) fn sync(path: &Path) -> Result<(), SnapshotError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(io(path))
}
