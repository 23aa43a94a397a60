//! Private directories of a store: gone with their work, swept when their process died, and the way of their objects into the
//! store.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{SnapshotError, io};

/// Locked as long as the directory is somebody's.
const ALIVE: &str = "alive";
/// End of the name of one that is being removed.
const GONE: &str = ".gone";

/// A private directory, removed when this goes.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    _alive: File,
}

impl Scratch {
    /// Makes one below `parent`.
    ///
    /// # Errors
    /// The disk refuses.
    pub(super) fn new(parent: &Path) -> Result<Self, SnapshotError> {
        loop {
            let path = parent.join(format!("work-{}", uuid::Uuid::new_v4().simple()));
            DirBuilder::new().mode(0o700).create(&path).map_err(io(&path))?;
            let alive = path.join(ALIVE);
            match File::create_new(&alive) {
                Ok(file) => {
                    // A sweep may have come between the two, and then has it.
                    let ours = file.try_lock().is_ok() && is_at(&file, &alive);
                    if ours {
                        return Ok(Self { path, _alive: file });
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(SnapshotError::Io { path: alive, source }),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        told(&self.path, remove(&self.path));
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let inode = |meta: std::io::Result<std::fs::Metadata>| meta.map(|meta| (meta.dev(), meta.ino())).ok();
    inode(file.metadata()).is_some_and(|ours| Some(ours) == inode(path.metadata()))
}

/// Out of the way at once: a program that still writes there finds nothing, and what a crash leaves is known as garbage.
fn remove(path: &Path) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(GONE);
    let gone = path.with_file_name(name);
    std::fs::rename(path, &gone)?;
    std::fs::remove_dir_all(&gone)
}

/// Removes below `parent` what processes left that are no more.
pub(super) fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let removed = if entry.file_name().as_encoded_bytes().ends_with(GONE.as_bytes()) {
            std::fs::remove_dir_all(&path)
        } else {
            match File::options().write(true).open(path.join(ALIVE)) {
                Ok(alive) if alive.try_lock().is_ok() => remove(&path),
                // Its maker died, or has only just begun, and then begins anew: only what is empty goes.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let _ = std::fs::remove_dir(&path);
                    Ok(())
                }
                _ => Ok(()),
            }
        };
        told(&path, removed);
    }
}

fn told(path: &Path, removed: std::io::Result<()>) {
    match removed {
        // A sweep was faster.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, path = %path.display(), "a private directory of the store stays"),
        Ok(()) => {}
    }
}

/// Moves objects that Git wrote into `from` into the store at `to`, on the same file system: directories that the store lacks as
/// a whole, others file by file. One that is there already is the same.
///
/// # Errors
/// The disk refuses; what was moved is good there.
pub(super) fn adopt(from: &Path, to: &Path) -> Result<(), SnapshotError> {
    for entry in std::fs::read_dir(from).map_err(io(from))? {
        let dir = entry.map_err(io(from))?.path();
        let Some(name) = dir.file_name().filter(|name| *name != "info") else { continue };
        let target = to.join(name);
        let mut files = Vec::new();
        let mut whole = name != "pack";
        for file in std::fs::read_dir(&dir).map_err(io(&dir))? {
            let file = file.map_err(io(&dir))?.file_name();
            // Left by a program that was cut off.
            if file.as_encoded_bytes().starts_with(b"tmp_") { whole = false } else { files.push(file) }
        }
        // Refused when the store has objects there.
        if whole && std::fs::rename(&dir, &target).is_ok() {
            continue;
        }
        // Git looks for `.idx`: it comes last.
        files.sort_by_key(|file| file.as_encoded_bytes().ends_with(b".idx"));
        std::fs::create_dir_all(&target).map_err(io(&target))?;
        for file in files {
            std::fs::rename(dir.join(&file), target.join(&file)).map_err(io(target.join(&file)))?;
        }
    }
    Ok(())
}
