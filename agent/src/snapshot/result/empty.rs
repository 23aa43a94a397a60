//! Directories without files: no tree of Git's has them, people and programs make them nevertheless.

use super::ResultTree;
use crate::snapshot::{Snapshot, TreePath};

/// Made by claude in its working directory, left empty, and of no use to anybody.
const OF_CLI: &str = ".claude/.cc-writes";

/// An empty directory that a CLI made for itself, unless the snapshot had it.
pub(super) fn made_by_cli(snapshot: &Snapshot, path: &TreePath) -> bool {
    let name = String::from(path.clone());
    let below = match &snapshot.cwd {
        Some(cwd) => name.strip_prefix(&String::from(cwd.clone())).and_then(|below| below.strip_prefix('/')),
        None => Some(&*name),
    };
    below == Some(OF_CLI) && !snapshot.content.empty_directories.contains(path)
}

/// What became of a directory that is or was empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryChange {
    /// It is new.
    Added,
    /// It had files.
    Emptied,
    /// It was empty and is gone.
    Deleted,
}

impl ResultTree {
    /// Empty directories that are or were in only one of the two; one that got files is told by its files.
    #[must_use]
    pub fn directories(&self, snapshot: &Snapshot) -> Vec<(TreePath, DirectoryChange)> {
        let (before, after) = (&snapshot.content.empty_directories, &self.content.empty_directories);
        let holds = |dir: &TreePath, path: &TreePath| path.parents().any(|parent| parent == *dir);
        let had = |dir: &TreePath| {
            let mut lost = self.changes.iter().filter(|change| change.before.is_some() && change.after.is_none());
            lost.any(|change| holds(dir, &change.path)) || before.iter().any(|path| holds(dir, path))
        };
        let has = |dir: &TreePath| {
            let mut got = self.changes.iter().filter(|change| change.after.is_some());
            got.any(|change| holds(dir, &change.path)) || after.iter().any(|path| holds(dir, path))
        };
        let new = after.iter().filter(|path| !before.contains(path));
        let new =
            new.map(|path| (path.clone(), if had(path) { DirectoryChange::Emptied } else { DirectoryChange::Added }));
        let gone = before.iter().filter(|path| !after.contains(path) && !has(path));
        let gone = gone.map(|path| (path.clone(), DirectoryChange::Deleted));
        let mut all: Vec<_> = new.chain(gone).collect();
        all.sort_by(|left, right| left.0.cmp(&right.0));
        all
    }
}
