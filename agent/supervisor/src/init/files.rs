//! Files inside the container: executables, private files of a driver, results.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use laneyard_supervisor::frame::MAX_PIECE;
use laneyard_supervisor::protocol::{Answer, PutFile, Report};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::libc;
use nix::unistd::{AccessFlags, access};

use super::link::Outgoing;

/// The executable that `name` means, as an absolute path. Relative entries of `path` count from `cwd`.
pub(super) fn find(name: &str, path: &str, cwd: &str) -> Option<String> {
    let runs = |file: &Path| file.is_file() && access(file, AccessFlags::X_OK).is_ok();
    let cwd = Path::new(cwd);
    let candidates: Vec<PathBuf> = match name {
        "" => Vec::new(),
        _ if name.contains('/') => vec![cwd.join(name)],
        _ => path.split(':').map(|entry| cwd.join(entry).join(name)).collect(),
    };
    candidates.into_iter().find(|file| runs(file)).and_then(|file| file.into_os_string().into_string().ok())
}

/// Makes the home directory where it is missing; a warning when that fails.
pub(super) fn make_home(home: &Path) -> Option<String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(home);
    made.err().map(|error| format!("cannot make the home directory {}: {error}", home.display()))
}

/// Files that are being written, and those that were.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    open: HashMap<u64, File>,
    /// Made by us, so ours to replace: an agent that was killed in the middle puts its files again.
    made: HashSet<PathBuf>,
}

impl Uploads {
    /// The connection is gone, and with it whoever would finish these.
    pub(super) fn abandon(&mut self) {
        self.open.clear();
    }

    pub(super) fn begin(&mut self, put: &PutFile) -> io::Result<()> {
        let path = Path::new(&put.path);
        if !path.is_absolute() {
            return Err(errno(libc::EINVAL));
        }
        if let Some(parent) = path.parent() {
            make_parents(parent, put.dir_mode)?;
        }
        if self.made.contains(path) {
            fs::remove_file(path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(put.mode & 0o600).open(path)?;
        self.made.insert(path.to_owned());
        file.set_permissions(Permissions::from_mode(put.mode))?;
        file.write_all(&put.bytes)?;
        if !put.last {
            self.open.insert(put.upload, file);
        }
        Ok(())
    }

    pub(super) fn more(&mut self, upload: u64, bytes: &[u8], last: bool) -> io::Result<()> {
        let file = self.open.get_mut(&upload).ok_or_else(|| errno(libc::EBADF))?;
        let written = file.write_all(bytes);
        if last || written.is_err() {
            self.open.remove(&upload);
        }
        written
    }
}

fn make_parents(dir: &Path, mode: u32) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        make_parents(parent, mode)?;
    }
    match DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a regular file of at most `max` bytes.
pub(super) fn open_result(path: &str, max: u64) -> io::Result<File> {
    let file = open_without_links(Path::new(path))?;
    let meta = file.metadata()?;
    match () {
        () if !meta.is_file() => Err(errno(libc::EINVAL)),
        () if meta.len() > max => Err(errno(libc::EFBIG)),
        () => Ok(file),
    }
}

/// Sends the file piece by piece, as fast as the agent takes it, then the answer.
pub(super) async fn send_result(mut file: File, max: u64, id: u64, outgoing: Outgoing) {
    let mut room = max;
    let mut buffer = vec![0; MAX_PIECE];
    let answer = loop {
        match file.read(&mut buffer) {
            Ok(0) => break Answer::Done,
            Ok(n) if n as u64 > room => break failed(&errno(libc::EFBIG)), // it grew
            Ok(n) => {
                room -= n as u64;
                if outgoing.send(Report::Piece { id, bytes: buffer[..n].to_vec() }).await.is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break failed(&error),
        }
    };
    let _ = outgoing.send(Report::Reply { id, answer }).await;
}

/// The agent names a path, but whoever runs in the container may have put a link there.
fn open_without_links(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, path, how) {
        Ok(descriptor) => Ok(File::from(descriptor)),
        // An old kernel, or an old seccomp profile: the last component is still checked.
        Err(Errno::ENOSYS | Errno::EPERM) => OpenOptions::new().read(true).custom_flags(flags.bits()).open(path),
        Err(error) => Err(error.into()),
    }
}

/// An answer that tells the error.
pub(super) fn failed(error: &io::Error) -> Answer {
    Answer::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO), message: error.to_string() }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
