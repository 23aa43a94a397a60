//! Directories below a root, reached part by part without following a link: nobody leads us elsewhere meanwhile.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

use super::TreePath;

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A directory, held open.
pub(super) struct Root(OwnedFd);

impl Root {
    pub(super) fn open(root: &Path) -> Result<Self, Errno> {
        Ok(Self(nix::fcntl::open(root, DIRECTORY, Mode::empty())?))
    }

    /// The directory at `path`; a link on the way is `ELOOP` or `ENOTDIR`. Gives the directories it made, outer first.
    pub(super) fn directory(&self, path: &TreePath, make: bool) -> Result<(OwnedFd, Vec<TreePath>), Errno> {
        self.walk(path.as_bytes(), make)
    }

    /// The directory that holds `path`.
    pub(super) fn parent(&self, path: &TreePath, make: bool) -> Result<(OwnedFd, Vec<TreePath>), Errno> {
        let end = path.as_bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.walk(&path.as_bytes()[..end], make)
    }

    fn walk(&self, path: &[u8], make: bool) -> Result<(OwnedFd, Vec<TreePath>), Errno> {
        let mut made = Vec::new();
        let mut here = openat(self.0.as_fd(), ".", DIRECTORY, Mode::empty())?;
        let mut end = 0;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            end += part.len();
            let name = std::ffi::OsStr::from_bytes(part);
            let next = openat(here.as_fd(), name, DIRECTORY, Mode::empty());
            here = match next {
                Err(Errno::ENOENT) if make => {
                    mkdirat(here.as_fd(), name, Mode::from_bits_truncate(0o777))?;
                    made.extend(TreePath::parse(&path[..end]));
                    openat(here.as_fd(), name, DIRECTORY, Mode::empty())?
                }
                other => other?,
            };
            end += 1;
        }
        Ok((here, made))
    }
}

/// The last part of a path.
pub(super) fn name(path: &TreePath) -> &std::ffi::OsStr {
    let bytes = path.as_bytes();
    let start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    std::ffi::OsStr::from_bytes(&bytes[start..])
}
