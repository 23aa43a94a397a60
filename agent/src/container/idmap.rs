//! Id-mapped bind mounts (Linux 5.12): a tree of root's is shown to the container as an ordinary user's, and what that
//! user writes is root's on the disk. Nothing in the tree is changed.
//!
//! The mounts live below the attempt's own directory and are only needed until the container has started: it then has
//! copies of its own. A crash leaves them behind; [`sweep`] finds them there.

use std::io;
use std::path::{Path, PathBuf};

use crate::container::identity::Owner;

/// A mount could not be made. The caller falls back and says so.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} for an id-mapped mount of `{path}`")]
pub struct IdmapError {
    pub step: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

/// Owns the mounts below one directory; dropping it detaches them.
#[derive(Debug)]
pub struct IdmapMounts {
    dir: PathBuf,
    count: usize,
    /// The namespace of the last pair of owners: usually the only one.
    namespace: Option<(Owner, Owner, linux::Namespace)>,
}

impl IdmapMounts {
    /// Prepares to mount below `dir`, which is created and must be private to us.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new(dir: PathBuf) -> Result<Self, IdmapError> {
        sweep(&dir);
        std::fs::create_dir_all(&dir).map_err(|source| IdmapError {
            step: "create the directory",
            path: dir.clone(),
            source,
        })?;
        Ok(Self { dir, count: 0, namespace: None })
    }

    /// Shows `source` (file or directory) with the ids of `disk` as `inside`, and the other way round; all others keep
    /// theirs. Gives the path for the engine.
    ///
    /// # Errors
    /// No right, an old kernel, or a file system that cannot do it (also one mounted below `source`).
    pub fn add(&mut self, source: &Path, disk: Owner, inside: Owner) -> Result<PathBuf, IdmapError> {
        let target = self.dir.join(self.count.to_string());
        let failed = |step, source_error| IdmapError { step, path: source.to_owned(), source: source_error };
        let is_dir = std::fs::metadata(source).map_err(|error| failed("look at it", error))?.is_dir();
        let made = if is_dir { std::fs::create_dir(&target) } else { std::fs::write(&target, b"") };
        made.map_err(|error| failed("create the mount point", error))?;
        self.count += 1;
        let namespace = match self.namespace.take() {
            Some((left, right, namespace)) if (left, right) == (disk, inside) => namespace,
            _ => linux::namespace(disk, inside).map_err(|error| failed("make a user namespace", error))?,
        };
        let mounted = linux::mount(source, &target, &namespace).map_err(|(step, error)| failed(step, error));
        self.namespace = Some((disk, inside, namespace));
        mounted.map(|()| target)
    }
}

impl Drop for IdmapMounts {
    fn drop(&mut self) {
        sweep(&self.dir);
    }
}

/// Detaches every mount below `dir` and removes the directory. Safe to repeat; does nothing to a directory that is absent.
pub fn sweep(dir: &Path) {
    if !dir.exists() {
        return;
    }
    linux::detach_below(dir);
    // Mount points are empty files and directories; anything else (a mount that is still there) stays.
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries {
        let path = entry.path();
        let _ = if path.is_dir() { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
    }
    let _ = std::fs::remove_dir(dir);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::CString;
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use nix::fcntl::OFlag;
    use nix::libc;
    use nix::mount::{MntFlags, umount2};

    use super::Owner;

    type Failed = (&'static str, io::Error);

    const OPEN_TREE_CLONE: u32 = 1;
    const AT_RECURSIVE: u32 = 0x8000;
    const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
    const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns_fd: u64,
    }

    pub(super) type Namespace = OwnedFd;

    pub(super) fn mount(source: &Path, target: &Path, namespace: &Namespace) -> Result<(), Failed> {
        let tree = open_tree(source).map_err(|error| ("clone the mount", error))?;
        let fd = u64::try_from(namespace.as_raw_fd()).unwrap_or_default();
        let attr = MountAttr { set: MOUNT_ATTR_IDMAP, clear: 0, propagation: 0, userns_fd: fd };
        let flags = libc::AT_EMPTY_PATH.cast_unsigned() | AT_RECURSIVE;
        // SAFETY: the path is a valid empty string, `attr` outlives the call and its size is given.
        let set = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                c"".as_ptr(),
                flags,
                &raw const attr,
                size_of::<MountAttr>(),
            )
        };
        check(set).map_err(|error| ("translate the ids", error))?;
        let path = c_path(target).map_err(|error| ("name the mount point", error))?;
        // SAFETY: both paths are valid C strings, the descriptor is open.
        let moved = unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_FDCWD,
                path.as_ptr(),
                MOVE_MOUNT_F_EMPTY_PATH,
            )
        };
        check(moved).map(drop).map_err(|error| ("attach the mount", error))
    }

    fn check(result: libc::c_long) -> io::Result<libc::c_long> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    fn c_path(path: &Path) -> io::Result<CString> {
        CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
    }

    fn open_tree(source: &Path) -> io::Result<OwnedFd> {
        let path = c_path(source)?;
        let flags = OPEN_TREE_CLONE | AT_RECURSIVE | libc::O_CLOEXEC.cast_unsigned();
        // SAFETY: the path is a valid C string.
        let fd = check(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })?;
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel just gave us this descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A user namespace that swaps two ids. It needs a process to be born in; that one ends as soon as we hold the namespace.
    pub(super) fn namespace(disk: Owner, inside: Owner) -> io::Result<Namespace> {
        let (ready_read, ready_write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child makes only async-signal-safe system calls and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        if child == 0 {
            // SAFETY: plain system calls on descriptors that this process owns.
            unsafe {
                let word = [u8::from(libc::unshare(libc::CLONE_NEWUSER) == 0)];
                libc::write(ready_write.as_raw_fd(), word.as_ptr().cast(), 1);
                // Until the parent has what it wants. A parent that dies takes its child along.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
                libc::_exit(0);
            }
        }
        drop(ready_write);
        let made = namespace_of(child, &ready_read, disk, inside);
        let child = nix::unistd::Pid::from_raw(child);
        let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(child, None);
        made
    }

    fn namespace_of(child: i32, ready: &OwnedFd, disk: Owner, inside: Owner) -> io::Result<OwnedFd> {
        let mut word = [0u8];
        let got = nix::unistd::read(ready, &mut word)?;
        if got != 1 || word[0] != 1 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "user namespaces are not allowed here"));
        }
        std::fs::write(format!("/proc/{child}/uid_map"), swap(disk.uid, inside.uid))?;
        std::fs::write(format!("/proc/{child}/gid_map"), swap(disk.gid, inside.gid))?;
        Ok(std::fs::File::open(format!("/proc/{child}/ns/user"))?.into())
    }

    /// All ids map to themselves, but for two that change places.
    fn swap(left: u32, right: u32) -> String {
        let (low, high) = (left.min(right), left.max(right));
        let last = u32::MAX - 1;
        let mut lines = Vec::new();
        let mut keep = |from: u32, to: u32| {
            if from < to {
                lines.push(format!("{from} {from} {}", to - from));
            }
        };
        keep(0, low);
        if low < high {
            keep(low + 1, high);
        }
        keep(high + 1, last);
        lines.push(format!("{low} {high} 1"));
        if low < high {
            lines.push(format!("{high} {low} 1"));
        }
        lines.join("\n") + "\n"
    }

    pub(super) fn detach_below(dir: &Path) {
        let Ok(dir) = dir.canonicalize() else { return };
        let mut points = mount_points(&dir);
        points.sort_by_key(|path| std::cmp::Reverse(path.as_os_str().len()));
        for point in points {
            if let Err(error) = umount2(&point, MntFlags::MNT_DETACH) {
                tracing::warn!(path = %point.display(), %error, "an id-mapped mount could not be detached");
            }
        }
    }

    fn mount_points(dir: &Path) -> Vec<PathBuf> {
        crate::container::mounts::mount_points()
            .into_iter()
            .filter(|point| point.starts_with(dir) && point != dir)
            .collect()
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn every_id_is_mapped_once_and_two_change_places() {
            assert_eq!(super::swap(0, 1000), "1 1 999\n1001 1001 4294966293\n0 1000 1\n1000 0 1\n");
            assert_eq!(super::swap(5, 5), "0 0 5\n6 6 4294967288\n5 5 1\n");
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use std::io;
    use std::path::Path;

    use super::Owner;

    pub(super) type Namespace = std::convert::Infallible;

    /// Elsewhere the engine's virtual machine translates owners by itself.
    pub(super) fn namespace(_: Owner, _: Owner) -> io::Result<Namespace> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn mount(_: &Path, _: &Path, namespace: &Namespace) -> Result<(), (&'static str, io::Error)> {
        match *namespace {}
    }

    pub(super) fn detach_below(_: &Path) {}
}
