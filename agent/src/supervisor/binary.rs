//! The supervisor's own program, carried inside the agent.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

static BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supervisor"));

/// The static program that runs as first process in any image of this CPU's Linux.
#[must_use]
pub fn binary() -> &'static [u8] {
    BINARY
}

/// The supervisor could not be put in place.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the supervisor program to {path}: make the directory writable and check the free space")]
pub struct InstallError {
    path: PathBuf,
    source: io::Error,
}

/// Writes the program into `dir` under a name made from its content, mode 0555, and returns its path. Does nothing
/// when it is there already; attempts of an older agent keep their own.
///
/// # Errors
/// [`InstallError`] names the file.
pub fn install(dir: &Path) -> Result<PathBuf, InstallError> {
    let path = dir.join(concat!("supervisor-", env!("SUPERVISOR_DIGEST")));
    match place(dir, &path) {
        Ok(()) => Ok(path),
        Err(source) => Err(InstallError { path, source }),
    }
}

fn place(dir: &Path, path: &Path) -> io::Result<()> {
    if fs::metadata(path)
        .is_ok_and(|meta| meta.len() == BINARY.len() as u64 && meta.permissions().mode() & 0o777 == 0o555)
    {
        return Ok(());
    }
    let staged = dir.join(format!(".supervisor.{}", uuid::Uuid::new_v4().simple()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o555).open(&staged).and_then(|mut file| {
        file.write_all(BINARY)?;
        file.set_permissions(fs::Permissions::from_mode(0o555))?; // whatever the umask is
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&staged, path)).inspect_err(|_| drop(fs::remove_file(&staged)))
}
