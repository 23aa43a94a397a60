//! A small disk: a file system of its own in a file, mounted where a program keeps its state.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted ext4 file system; dropping it unmounts and removes it.
pub struct SmallDisk {
    image: PathBuf,
    mounted: PathBuf,
}

impl SmallDisk {
    /// Makes one of so many megabytes at an existing, empty directory.
    ///
    /// # Panics
    /// The kernel or its tools refuse: these tests run as root.
    #[must_use]
    pub fn at(directory: &Path, megabytes: u64) -> Self {
        let image = directory.with_extension("img");
        File::create(&image).and_then(|file| file.set_len(megabytes << 20)).expect("an image");
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(directory));
        Self { image, mounted: directory.to_owned() }
    }

    /// Fills it to the last byte.
    ///
    /// # Panics
    /// It cannot be filled.
    pub fn fill(&self) {
        let mut file = File::create(self.ballast()).expect("a file");
        // Ever smaller pieces, so that nothing fits any more.
        for size in [1 << 20, 4096, 1] {
            let piece = vec![0; size];
            loop {
                match file.write_all(&piece).and_then(|()| file.sync_data()) {
                    Ok(()) if size > 1 => {}
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => panic!("the disk cannot be filled: {error}"),
                }
            }
        }
    }

    /// Makes room again.
    ///
    /// # Panics
    /// It was not filled.
    pub fn free(&self) {
        fs::remove_file(self.ballast()).expect("the ballast");
    }

    fn ballast(&self) -> PathBuf {
        self.mounted.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.mounted).status();
        let _ = fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
