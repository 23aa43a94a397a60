//! The paths of a lane, taken exclusively before anything runs (runner 1.4). What was taken is given back whole: a
//! refused lane leaves the file system as it was.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use agent::assignment::CanonicalPaths;
use agent::progress::FileRef;

use super::options::{Options, UsageError};

/// One file that is ours: empty and private until the lane ends.
#[derive(Debug)]
pub struct Reserved {
    path: PathBuf,
    file: File,
    identity: FileRef,
}

impl Reserved {
    fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let identity = FileRef::of(&file)?;
        Ok(Self { path: path.to_owned(), file, identity })
    }

    /// Opens a file that a former process reserved, if it is still that very file.
    ///
    /// # Errors
    /// It is gone, or another file stands there.
    pub fn reopen(path: &Path, identity: FileRef) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
        if FileRef::of(&file)? != identity {
            return Err(io::Error::other("another file stands at the reserved path"));
        }
        Ok(Self { path: path.to_owned(), file, identity })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it is.
    #[must_use]
    pub const fn identity(&self) -> FileRef {
        self.identity
    }

    /// Starts over with an empty file.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Replaces the content in place: the file keeps its identity.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn rewrite(&mut self, text: &str) -> io::Result<()> {
        self.clear()?;
        self.append(text.as_bytes())?;
        self.sync()
    }

    /// Removes the file, if it still is the one that was reserved.
    pub fn remove(&self) {
        if FileRef::at(&self.path) == Some(self.identity) {
            let _ = std::fs::remove_file(&self.path); // gone already is as good
        }
    }
}

/// Everything a lane reserved.
#[derive(Debug)]
pub struct Reservation {
    pub output: Reserved,
    pub receipt: Reserved,
    pub progress: Option<Reserved>,
    /// Directories made for them, outermost first.
    made: Vec<PathBuf>,
}

impl Reservation {
    /// Takes output, receipt and progress, in this order.
    ///
    /// # Errors
    /// The first path that cannot be taken; nothing is left of the others.
    pub fn take(options: &Options) -> Result<Self, UsageError> {
        let mut made = Vec::new();
        let mut taken: Vec<Reserved> = Vec::new();
        let wanted = [
            ("output", Some(&options.output)),
            ("receipt", Some(&options.receipt)),
            ("progress", options.progress.as_ref()),
        ];
        for (name, path) in wanted {
            let Some(path) = path.map(Path::new) else { continue };
            match make_parents(path, &mut made).and_then(|()| Reserved::create(path)) {
                Ok(file) => taken.push(file),
                Err(error) => {
                    give_back(&taken, &made);
                    return Err(UsageError(refusal(name, path, &error)));
                }
            }
        }
        let mut taken = taken.into_iter();
        match (taken.next(), taken.next()) {
            (Some(output), Some(receipt)) => Ok(Self { output, receipt, progress: taken.next(), made }),
            _ => Err(UsageError("output and receipt are required".to_owned())),
        }
    }

    /// Gives everything back: the lane was refused after all.
    pub fn give_back(self) {
        if let Some(progress) = &self.progress
            && FileRef::at(progress.path()).is_some()
        {
            // Snapshots are renamed over the reservation, so it is another file by now, and still ours.
            let _ = std::fs::remove_file(progress.path());
        }
        give_back(&[self.output, self.receipt], &self.made);
    }
}

fn refusal(name: &str, path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("could not reserve {name}: `{shown}` exists already, every attempt needs fresh paths")
        }
        _ => format!("could not reserve {name} `{shown}`: {error}"),
    }
}

fn give_back(taken: &[Reserved], made: &[PathBuf]) {
    for file in taken {
        file.remove();
    }
    for directory in made.iter().rev() {
        let _ = std::fs::remove_dir(directory); // not empty: somebody else uses it now
    }
}

fn make_parents(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let missing: Vec<&Path> = parent.ancestors().take_while(|directory| !directory.exists()).collect();
    for directory in missing.into_iter().rev() {
        match std::fs::create_dir(directory) {
            Ok(()) => made.push(directory.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Real paths at start: of the working directory, and of the parents of output and receipt (runner 2.1).
///
/// # Errors
/// A directory that vanished, or a path that is not text: receipts are.
pub fn canonical(options: &Options) -> Result<CanonicalPaths, UsageError> {
    let real = |path: &Path| {
        let real = path
            .canonicalize()
            .map_err(|error| UsageError(format!("could not resolve `{}`: {error}", path.display())))?;
        real.into_os_string()
            .into_string()
            .map_err(|path| UsageError(format!("`{}` is not UTF-8, which a receipt cannot name", path.display())))
    };
    let beside = |text: &str| {
        let path = Path::new(text);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        real(path.parent().unwrap_or(Path::new("/"))).map(|parent| format!("{}/{name}", parent.trim_end_matches('/')))
    };
    Ok(CanonicalPaths {
        cwd: real(Path::new(&options.cwd))?,
        output: beside(&options.output)?,
        receipt: beside(&options.receipt)?,
    })
}
