//! Space that is set aside while the disk has some, and given back when it is full: what admitted attempts still have to
//! tell finds room then.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{info, warn};

const NAME: &str = "reserve";

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    held: AtomicBool,
    /// One at a time fills it.
    filling: Mutex<()>,
}

impl Reserve {
    /// Finds what a former process set aside. Nothing is written yet.
    pub(super) fn find(dir: &Path, bytes: u64) -> Self {
        let path = dir.join(NAME);
        let held = path.metadata().is_ok_and(|meta| meta.len() >= bytes);
        Self { path, bytes, held: AtomicBool::new(held), filling: Mutex::new(()) }
    }

    /// How much it is.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True while the space is set aside, or none was asked for.
    pub(super) fn is_held(&self) -> bool {
        self.bytes == 0 || self.held.load(Ordering::Acquire)
    }

    /// Gives the space back; false if there was none.
    pub(super) fn release(&self) -> bool {
        let was = self.held.swap(false, Ordering::AcqRel);
        match std::fs::remove_file(&self.path) {
            Ok(()) => {
                warn!(bytes = self.bytes, "the disk is full: the reserve is released, nothing new is admitted");
                true
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                warn!(path = %self.path.display(), %error, "the disk is full and the reserve cannot be released");
                self.held.store(was, Ordering::Release);
                false
            }
        }
    }

    /// Sets the space aside again if that leaves as much again free.
    pub(super) fn fill(&self, free: u64) {
        if self.is_held() || free < self.bytes.saturating_mul(2) {
            return;
        }
        let Ok(_filling) = self.filling.try_lock() else { return };
        match allocate(&self.path, self.bytes) {
            Ok(()) => {
                self.held.store(true, Ordering::Release);
                info!(bytes = self.bytes, "space is set aside for the ends of admitted attempts");
            }
            Err(error) => {
                let _ = std::fs::remove_file(&self.path); // half of it promises nothing
                warn!(path = %self.path.display(), %error, "no space can be set aside; nothing new is admitted");
            }
        }
    }
}

/// Blocks, not a hole.
fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    #[cfg(target_os = "linux")]
    match nix::fcntl::posix_fallocate(&file, 0, i64::try_from(bytes).unwrap_or(i64::MAX)) {
        Ok(()) => return file.sync_all(),
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EINVAL) => {}
        Err(errno) => return Err(errno.into()),
    }
    zeros(&mut file, bytes)
}

/// Where a file system cannot allocate, the bytes are really written.
fn zeros(file: &mut File, bytes: u64) -> io::Result<()> {
    let piece = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        file.write_all(&piece[..length])?;
        left -= length as u64;
    }
    file.sync_all()
}
