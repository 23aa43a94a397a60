//! Files that hold secrets: mode 0600, replaced as a whole, on the disk before anybody relies on them.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Creates a directory (mode 0700) with its parents.
///
/// # Errors
/// It cannot be created.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file of mode 0600: afterwards either the old content is there or the new, never a part of it.
///
/// # Errors
/// It cannot be written or synced.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut fresh = tempfile::NamedTempFile::new_in(parent)?;
    fresh.as_file().set_permissions(std::fs::Permissions::from_mode(0o600))?;
    fresh.write_all(content.as_ref())?;
    fresh.as_file().sync_all()?;
    fresh.persist(path).map_err(|error| error.error)?;
    File::open(parent)?.sync_all()
}

/// The permission bits of a file that others than its owner may read; `None` for a private one.
///
/// # Errors
/// There is no such file.
pub fn open_mode(path: &Path) -> io::Result<Option<u32>> {
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
    Ok((mode & 0o077 != 0).then_some(mode))
}
