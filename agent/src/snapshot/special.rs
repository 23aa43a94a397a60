//! What Git has no word for: FIFOs, sockets and devices, which no snapshot carries, and directories that lost their files.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::TreePath;
use super::index::{Entry, GITLINK};
use super::scan::split;

/// Directories of known files that are read. Naming what cannot travel is a courtesy, and in a tree of fifty thousand
/// directories it would take as long as the rest of the snapshot.
const DIRECTORIES_READ: usize = 4096;

/// True for something that is there and is no file, link or directory. Never opens it: that may wait for ever.
pub(super) fn is_special(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| of(meta.file_type()))
}

fn of(kind: std::fs::FileType) -> bool {
    !kind.is_file() && !kind.is_symlink() && !kind.is_dir()
}

/// Those in the first [`DIRECTORIES_READ`] directories of known files, and below what Git lists as untracked. Sorted;
/// nested repositories are not entered, nor is what Git ignores as a whole.
pub(super) fn specials(root: &Path, entries: &[Entry], listed: &[u8]) -> Vec<TreePath> {
    let mut found = Vec::new();
    for dir in directories(entries).into_iter().take(DIRECTORIES_READ) {
        look_into(root, dir, &mut found, |_| {});
    }
    let untracked = split(listed).filter_map(|path| path.strip_suffix(b"/"));
    let mut open: Vec<Vec<u8>> = untracked.map(<[u8]>::to_vec).collect();
    while let Some(dir) = open.pop() {
        if root.join(std::ffi::OsStr::from_bytes(&dir)).join(".git").symlink_metadata().is_err() {
            look_into(root, &dir, &mut found, |inner| open.push(inner));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Directories that lost their last known file and are still there, as Git would list them: no list of untracked paths names
/// those.
pub(super) fn emptied(root: &Path, before: &[Entry], after: &[Entry]) -> Vec<u8> {
    let kept: HashSet<&[u8]> = directories(after).into_iter().collect();
    let lost: HashSet<&[u8]> = directories(before).into_iter().filter(|dir| !kept.contains(dir)).collect();
    let mut listed = Vec::new();
    for dir in &lost {
        let Ok(path) = TreePath::parse(dir) else { continue };
        // An outer one is walked with all that is in it; a link leads to what was no part of it.
        let inner = path.parents().any(|parent| lost.contains(parent.as_bytes()));
        let real = |path: &TreePath| path.under(root).symlink_metadata().is_ok_and(|meta| meta.is_dir());
        if !inner && real(&path) && path.parents().all(|parent| real(&parent)) {
            listed.extend([dir, &b"/\0"[..]].concat());
        }
    }
    listed
}

/// Directories that hold a known file, and those above them.
fn directories(entries: &[Entry]) -> Vec<&[u8]> {
    let above = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (mut all, mut seen) = (vec![&b""[..]], HashSet::new());
    let mut last: &[u8] = b"";
    for entry in entries.iter().filter(|entry| !entry.skip && entry.mode() != GITLINK) {
        let mut dir = &entry.path[..above(&entry.path)];
        if dir == last {
            continue;
        }
        last = dir;
        while !dir.is_empty() && seen.insert(dir) {
            all.push(dir);
            dir = &dir[..above(dir)];
        }
    }
    all
}

fn look_into(root: &Path, dir: &[u8], found: &mut Vec<TreePath>, mut inner: impl FnMut(Vec<u8>)) {
    let path = root.join(std::ffi::OsStr::from_bytes(dir));
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let name = || match dir {
            b"" => entry.file_name().as_bytes().to_vec(),
            dir => [dir, b"/", entry.file_name().as_bytes()].concat(),
        };
        if kind.is_dir() {
            inner(name());
        } else if of(kind) {
            found.extend(TreePath::parse(&name()).ok());
        }
    }
}
