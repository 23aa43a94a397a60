//! The stored login of an instance: carried into the container's private HOME, and back if the CLI renewed it there.
//!
//! A login file often holds a refresh token that serves once. So an attempt holds the instance's login alone for as long
//! as it runs, works on a copy of its own, and never mounts the user's directory (field lessons L22, L23).

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::libc;

use super::ending::Endings;
use super::journal::Ending;
use super::place::{Place, PlaceError};
use crate::supervisor::PutFile;

/// A login file is small; more is not one.
const MOST: u64 = 1 << 20;

/// Between two tries to get the login while another attempt holds it.
const AGAIN: Duration = Duration::from_millis(100);

/// The lock stands beside the files.
const LOCK: &str = ".laneyard-login.lock";

/// A login that this attempt holds.
#[derive(Debug)]
pub(super) struct Login {
    home: PathBuf,
    files: Vec<Carried>,
    _lock: Flock<File>,
}

#[derive(Debug)]
struct Carried {
    /// Below HOME on both sides.
    name: &'static str,
    content: Vec<u8>,
}

/// The login cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoginError {
    #[error("the login file `{}` cannot be used: {source}; sign in again with this HOME", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Place(#[from] PlaceError),
}

impl Login {
    /// Takes the login below `home`; `None` if it has none of the driver's files. Waits while another attempt holds it.
    ///
    /// # Errors
    /// A file that is no regular file of ours, or the reason to end that came first.
    pub(super) async fn take(
        home: &Path,
        names: &[&'static str],
        endings: &mut Endings,
    ) -> Result<Option<Self>, Result<Ending, LoginError>> {
        let here = |name: &&&'static str| home.join(**name).symlink_metadata().is_ok();
        let names: Vec<&'static str> = names.iter().filter(here).copied().collect();
        if names.is_empty() {
            return Ok(None);
        }
        let path = home.join(LOCK);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Err(LoginError::File { path, source })
        };
        let lock = loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)
                .map_err(failed(&path))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => break lock,
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => {}
                Err((_, errno)) => return Err(failed(&path)(errno.into())),
            }
            tokio::select! {
                biased;
                why = endings.wait() => return Err(Ok(why)),
                () = tokio::time::sleep(AGAIN) => {}
            }
        };
        let mut files = Vec::new();
        for name in names {
            let path = home.join(name);
            files.push(Carried { name, content: read(&path).map_err(failed(&path))? });
        }
        Ok(Some(Self { home: home.to_owned(), files, _lock: lock }))
    }

    /// Puts the files into the container's HOME.
    pub(super) async fn bring(&self, place: &mut Place, inside: &str) -> Result<(), LoginError> {
        for Carried { name, content } in &self.files {
            let path = format!("{inside}/{name}");
            place.put_file(PutFile { path: &path, mode: 0o600, dir_mode: 0o700, content }).await?;
        }
        Ok(())
    }

    /// Takes back what the CLI renewed. A file that is gone or empty inside never replaces one that works.
    pub(super) async fn take_back(&mut self, place: &mut Place, inside: &str) -> Result<bool, LoginError> {
        let mut renewed = false;
        for Carried { name, content } in &mut self.files {
            let Ok(now) = place.get_file(&format!("{inside}/{name}"), MOST).await else { continue };
            let sound = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&now).is_ok();
            if sound && now != *content {
                let path = self.home.join(*name);
                write(&path, &now).map_err(|source| LoginError::File { path, source })?;
                *content = now;
                renewed = true;
            }
        }
        Ok(renewed)
    }
}

/// A regular file, no link followed, at most [`MOST`] bytes.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = path.parent().unwrap_or_else(|| Path::new("/"));
    let mut fresh = tempfile::Builder::new().prefix(".laneyard-").tempfile_in(parent)?;
    fresh.write_all(bytes)?;
    fresh.as_file().sync_all()?;
    if nix::unistd::geteuid().is_root() {
        use std::os::unix::fs::MetadataExt as _;
        let meta = path.symlink_metadata()?;
        std::os::unix::fs::fchown(fresh.as_file(), Some(meta.uid()), Some(meta.gid()))?;
    }
    fresh.persist(path).map(drop).map_err(|error| error.error)
}
