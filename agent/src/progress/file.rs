//! Bounded reads that follow no link and wait for no pipe (runner 7.3).

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;

/// A file's identity: it survives writing in place, never a rename over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileRef {
    pub dev: u64,
    pub ino: u64,
}

impl FileRef {
    /// Identity of an open file.
    ///
    /// # Errors
    /// What `fstat` says.
    pub fn of(file: &File) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self { dev: meta.dev(), ino: meta.ino() })
    }

    /// Identity of the regular file at the path itself; `None` for anything else there.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let meta = std::fs::symlink_metadata(path).ok()?;
        meta.is_file().then(|| Self { dev: meta.dev(), ino: meta.ino() })
    }
}

/// Why a file told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    Missing,
    NotRegularFile,
    Oversize,
    Undecodable,
}

impl Unreadable {
    /// The reason's spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NotRegularFile => "not-regular-file",
            Self::Oversize => "oversize",
            Self::Undecodable => "undecodable",
        }
    }
}

/// At most `limit` bytes of a regular file, as text; with `only`, just if it is that very file.
pub(super) fn read_bounded(path: &Path, limit: u64, only: Option<FileRef>) -> Result<String, Unreadable> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => Unreadable::Missing,
            Some(Errno::ELOOP) => Unreadable::NotRegularFile,
            _ => Unreadable::Undecodable,
        }
    })?;
    let meta = file.metadata().map_err(|_| Unreadable::Undecodable)?;
    if !meta.is_file() {
        return Err(Unreadable::NotRegularFile);
    }
    if only.is_some_and(|wanted| wanted.dev != meta.dev() || wanted.ino != meta.ino()) {
        return Err(Unreadable::Undecodable);
    }
    if meta.len() > limit {
        return Err(Unreadable::Oversize);
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|_| Unreadable::Undecodable)?;
    if bytes.len() as u64 > limit {
        return Err(Unreadable::Oversize);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
