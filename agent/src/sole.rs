//! One agent a state directory: two would take each other's registration away for ever.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The right to be the agent of a state directory, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Sole {
    _lock: Flock<File>,
}

/// The right could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SoleError {
    #[error("another agent serves from the state directory `{}`: stop it first, or name another with --state-dir", path.display())]
    InUse { path: PathBuf },
    #[error("cannot lock `{}`", path.display())]
    Lock { path: PathBuf, source: io::Error },
}

const LOCK: &str = "agent.lock";

impl Sole {
    /// True if an agent serves from this directory, or ever did.
    #[must_use]
    pub fn was_claimed(state_dir: &Path) -> bool {
        state_dir.join(LOCK).exists()
    }

    /// Takes it, if nobody has it.
    ///
    /// # Errors
    /// Another process has it, or the directory cannot be written.
    pub fn claim(state_dir: &Path) -> Result<Self, SoleError> {
        let path = state_dir.join(LOCK);
        let failed = |source| SoleError::Lock { path: path.clone(), source };
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(SoleError::InUse { path: state_dir.to_owned() }),
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let first = Sole::claim(dir.path()).unwrap();
        let message = Sole::claim(dir.path()).unwrap_err().to_string();
        assert!(message.contains("another agent serves from the state directory"), "{message}");
        drop(first);
        Sole::claim(dir.path()).unwrap();
    }
}
