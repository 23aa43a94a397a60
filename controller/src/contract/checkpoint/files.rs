//! The files of a checkpoint: inside the worktree, outside Git metadata, regular, with no second name.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::digest::{Entry, hex};
use super::repository::{Repository, io};
use super::{CheckpointError, Result, refuse};

/// Refuses all paths at once that resolve outside the root or into metadata; symlinks are followed.
pub(super) fn all_inside(repository: &Repository, paths: &[String]) -> Result<()> {
    let escapes = |path: &&String| !resolve(&repository.root.join(path)).is_some_and(|real| allowed(repository, &real));
    let bad: Vec<String> = paths
        .iter()
        .filter(escapes)
        .map(|path| format!("the path \"{path}\" resolves outside the worktree or into Git metadata"))
        .collect();
    if bad.is_empty() { Ok(()) } else { Err(CheckpointError::Refused(bad)) }
}

/// Real path of a file, or of its deepest existing ancestor. `None` for a dangling link and for what cannot be followed.
fn resolve(path: &Path) -> Option<PathBuf> {
    let mut path = path;
    loop {
        match fs::canonicalize(path) {
            Ok(real) => return Some(real),
            Err(error) if is_absent(&error) && path.symlink_metadata().is_err_and(|error| is_absent(&error)) => {
                path = path.parent()?;
            }
            Err(_) => return None,
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn allowed(repository: &Repository, real: &Path) -> bool {
    real.starts_with(&repository.root)
        && !real.starts_with(repository.root.join(".git"))
        && !repository.metadata.iter().any(|directory| real.starts_with(directory))
}

/// Reads one file for the digest. What is hashed is what was checked: the open file, not its name.
pub(super) fn entry(repository: &Repository, path: &str) -> Result<Entry> {
    let full = repository.root.join(path);
    let named = full.symlink_metadata().map_err(io("look at", &full))?;
    if !is_plain(&named) {
        return refuse(format!("\"{path}\" is not a regular file with one name"));
    }
    let real = fs::canonicalize(&full).map_err(io("find", &full))?;
    if !allowed(repository, &real) {
        return refuse(format!("the path \"{path}\" resolves outside the worktree or into Git metadata"));
    }
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
        .open(&real)
        .map_err(io("open", &full))?;
    let opened = file.metadata().map_err(io("look at", &full))?;
    if !is_plain(&opened) || (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
        return refuse(format!("\"{path}\" changed while it was read"));
    }
    let (size, content) = hash(&mut file).map_err(io("read", &full))?;
    Ok(Entry { path: path.to_owned(), mode: opened.mode() & 0o777, size, content })
}

/// Regular, no link, and no other name: a hard link could be metadata.
fn is_plain(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.nlink() == 1
}

fn hash(file: &mut File) -> io::Result<(u64, String)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut size = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((size, hex(&hasher.finalize()))),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                size += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
