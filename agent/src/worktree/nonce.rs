//! Is what the container sees at the working directory really the user's directory? Some engines mount an empty directory
//! without a word (a virtual machine that does not share the path). A file with a random value is written on the host, read
//! back inside, and removed before the provider starts.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::worktree::WorktreePlan;

/// Bytes of a witness at most.
/// The most that has to be read inside, in bytes.
pub const READ_MOST: u64 = WITNESS_MOST;
const WITNESS_MOST: u64 = 1 << 20;
/// Name of the record in the attempt's directory.
const RECORD: &str = "nonce";

/// The mount is not what it should be, or the proof could not be laid out.
#[derive(Debug, thiserror::Error)]
pub enum NonceError {
    #[error(
        "the working directory `{directory}` is not the same inside the container: {what} (does the engine's virtual machine share this path?)"
    )]
    Different { directory: PathBuf, what: String },
    #[error("`{path}` cannot be written to prove the mount")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("the mount of `{directory}` cannot be proven: we may not write there and it holds no readable file")]
    NoWitness { directory: PathBuf },
}

/// What must be read inside.
#[derive(Debug)]
enum Proof {
    /// A file of ours, with this content.
    Written(String),
    /// An existing file, where we may not write: weaker, it could be another copy of the same tree.
    Existing { sha256: [u8; 32], len: u64 },
}

/// One proof of one mount. Dropping it removes the file.
#[derive(Debug)]
pub struct Nonce {
    directory: PathBuf,
    path: PathBuf,
    inside: PathBuf,
    proof: Proof,
    record: PathBuf,
    armed: bool,
}

impl Nonce {
    /// Lays the file out, hidden, at the top of the tree. Its path is recorded in `attempt_dir` first, so that a crash
    /// leaves nothing: see [`remove_stale`].
    ///
    /// # Errors
    /// Neither our own file nor an existing one can serve.
    pub fn write(plan: &WorktreePlan, attempt_dir: &Path) -> Result<Self, NonceError> {
        let directory = plan.source.clone();
        let record = attempt_dir.join(RECORD);
        let value = Uuid::new_v4().simple().to_string();
        let path = directory.join(format!(".laneyard-nonce-{}", &value[..8]));
        std::fs::write(&record, path.as_os_str().as_encoded_bytes())
            .map_err(|source| NonceError::Write { path: record.clone(), source })?;
        let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
        match written.and_then(|mut file| file.write_all(value.as_bytes())) {
            Ok(()) => {
                hand_over(&path, plan);
                let inside = seen_at(plan, &path);
                Ok(Self { directory, path, inside, proof: Proof::Written(value), record, armed: true })
            }
            Err(_) => {
                let _ = std::fs::remove_file(&path);
                let _ = std::fs::remove_file(&record);
                Self::witness(plan, directory, record)
            }
        }
    }

    fn witness(plan: &WorktreePlan, directory: PathBuf, record: PathBuf) -> Result<Self, NonceError> {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        for path in entries {
            let small = path.symlink_metadata().is_ok_and(|meta| meta.len() > 0 && meta.len() <= WITNESS_MOST);
            if let (true, Ok(bytes)) = (small, std::fs::read(&path)) {
                let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let proof = Proof::Existing { sha256: Sha256::digest(&bytes).into(), len };
                let inside = seen_at(plan, &path);
                return Ok(Self { directory, path, inside, proof, record, armed: false });
            }
        }
        Err(NonceError::NoWitness { directory })
    }

    /// The file on this machine.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file to read inside the container.
    #[must_use]
    pub fn inside(&self) -> &Path {
        &self.inside
    }

    /// Compares what was read inside; `None` when it could not be read there.
    ///
    /// # Errors
    /// It is another directory.
    pub fn check(&self, inside: Option<&[u8]>) -> Result<(), NonceError> {
        let different = |what: &str| NonceError::Different { directory: self.directory.clone(), what: what.to_owned() };
        let Some(bytes) = inside else {
            return Err(different(&format!("`{}` is not there", self.path.display())));
        };
        let same = match &self.proof {
            Proof::Written(value) => bytes == value.as_bytes(),
            Proof::Existing { sha256, len } => {
                u64::try_from(bytes.len()).is_ok_and(|have| have == *len) && Sha256::digest(bytes).as_slice() == sha256
            }
        };
        if same { Ok(()) } else { Err(different(&format!("`{}` has other content", self.path.display()))) }
    }

    /// Removes the file; the ordinary way. Do it before the provider starts.
    pub fn remove(mut self) {
        self.clean();
    }

    fn clean(&mut self) {
        if self.armed {
            self.armed = false;
            let _ = std::fs::remove_file(&self.path);
            let _ = std::fs::remove_file(&self.record);
        }
    }
}

impl Drop for Nonce {
    fn drop(&mut self) {
        self.clean();
    }
}

fn seen_at(plan: &WorktreePlan, path: &Path) -> PathBuf {
    path.strip_prefix(&plan.source).map_or_else(|_| path.to_owned(), |tail| plan.root.join(tail))
}

/// The lane's user must be able to read it whatever our umask says.
fn hand_over(path: &Path, plan: &WorktreePlan) {
    if nix::unistd::geteuid().is_root() && plan.owner.uid != 0 {
        let _ = std::os::unix::fs::lchown(path, Some(plan.owner.uid), Some(plan.owner.gid));
    }
}

/// Removes what a killed agent left: only the one recorded file, and only if it is a nonce of ours.
pub fn remove_stale(attempt_dir: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let record = attempt_dir.join(RECORD);
    let Ok(bytes) = std::fs::read(&record) else { return };
    let path = Path::new(std::ffi::OsStr::from_bytes(&bytes));
    let ours = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".laneyard-nonce-"));
    if ours && path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= 64) {
        let _ = std::fs::remove_file(path);
    }
    let _ = std::fs::remove_file(&record);
}
