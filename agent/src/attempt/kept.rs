//! Worktrees that outlive their attempts: what a failed writer left stays until somebody lets it go.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::directory::{DirectoryError, StateDir};
use super::snapshot::parts;
use crate::ids::AttemptId;
use crate::snapshot::Cache;

/// Marker: the attempt is over and its worktree is kept for people.
pub const KEPT: &str = "worktree.kept";

/// A worktree of an attempt that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptWorktree {
    pub attempt: AttemptId,
    pub path: PathBuf,
    /// Since its attempt ended.
    pub age: Duration,
    /// Its result is at the controller too.
    pub result_kept: bool,
}

/// All kept worktrees, oldest first. None was looked at by anybody: those are removed when their review is heard of.
///
/// # Errors
/// The state directory cannot be listed.
pub fn list(state: &StateDir) -> Result<Vec<KeptWorktree>, DirectoryError> {
    let mut all = Vec::new();
    for attempt in state.attempts()? {
        let dir = state.attempt_path(attempt);
        let Ok(meta) = dir.join(KEPT).metadata() else { continue };
        let since = meta.modified().unwrap_or_else(|_| SystemTime::now());
        let result_kept = std::fs::read_to_string(dir.join(KEPT)).is_ok_and(|text| text == "controller");
        let age = since.elapsed().unwrap_or_default();
        all.push(KeptWorktree { attempt, path: dir.join("worktree"), age, result_kept });
    }
    Ok(all)
}

/// Bytes of a directory on the disk. Blocks while it counts.
#[must_use]
pub fn size(path: &Path) -> u64 {
    crate::snapshot::cache::size(path)
}

/// Removes a kept worktree and lets its snapshot go. One that is not there is fine; one that is still used is left alone.
///
/// # Errors
/// It cannot be removed.
pub fn release(state: &StateDir, cache: &Cache, attempt: AttemptId) -> io::Result<()> {
    let dir = state.attempt_path(attempt);
    if !dir.join(KEPT).exists() || state.is_driven(attempt) {
        return Ok(());
    }
    remove(&dir, Some(cache), attempt)?;
    std::fs::remove_file(dir.join(KEPT))
}

/// Says that the worktree in `dir` stays.
pub(super) fn keep(dir: &Path, result_kept: bool) -> io::Result<()> {
    std::fs::write(dir.join(KEPT), if result_kept { "controller" } else { "worker" })
}

/// The controller has the result of the worktree in `dir` after all; it stays for people all the same.
pub(super) fn brought(dir: &Path) -> io::Result<()> {
    let path = dir.join(KEPT);
    let since = path.metadata()?.modified()?;
    keep(dir, true)?;
    std::fs::File::options().write(true).open(&path)?.set_modified(since)
}

/// Removes the worktree in `dir`.
pub(super) fn remove(dir: &Path, cache: Option<&Cache>, attempt: AttemptId) -> io::Result<()> {
    if let Some(cache) = cache {
        let holder = attempt.to_string();
        // Pinned before anything was noted, so the pins themselves are asked.
        for pin in cache.pins().map_err(io::Error::other)?.into_iter().filter(|pin| pin.holder == holder) {
            cache.unpin(&pin.project, &holder).map_err(io::Error::other)?;
        }
    }
    for part in parts(dir) {
        remove_tree(&part)?;
    }
    Ok(())
}

/// Removes a file or a tree, also one whose directories a lane has closed; absent is fine.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path).or_else(|_| {
            open_up(path);
            std::fs::remove_dir_all(path)
        }),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives the owner every right on every directory.
fn open_up(root: &Path) {
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        let _ = std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700));
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        open.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
}
