//! Names inside a tree: bytes, relative, never through Git's own directory.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A path relative to a work tree's top, as bytes. Not empty, not absolute, no `.`, `..` or empty part, and no part that any
/// file system could take for `.git`. Written as text with `%XX` for what is no printable UTF-8, so that it has one spelling.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TreePath(Vec<u8>);

/// The bytes are no path inside a tree.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is no path inside a work tree: {why}")]
pub struct TreePathError {
    text: String,
    why: &'static str,
}

impl TreePath {
    /// Parses what Git printed.
    ///
    /// # Errors
    /// The path would lead outside, or through `.git`.
    pub fn parse(bytes: &[u8]) -> Result<Self, TreePathError> {
        let error = |why| Err(TreePathError { text: escape(bytes), why });
        if bytes.is_empty() || bytes.contains(&0) {
            return error("it is empty or has a zero byte");
        }
        for part in bytes.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." | b".." => return error("it is not relative to the top"),
                _ if is_dot_git(part) => return error("it leads through Git's own directory"),
                _ => {}
            }
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the file system takes it.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// `self` below `prefix`.
    #[must_use]
    pub fn below(&self, prefix: &Self) -> Self {
        Self([&prefix.0[..], b"/", &self.0[..]].concat())
    }

    /// Directories above it, nearest first.
    pub fn parents(&self) -> impl Iterator<Item = Self> + '_ {
        let slashes = self.0.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        slashes.map(|(at, _)| Self(self.0[..at].to_vec()))
    }

    /// Below `root`.
    #[must_use]
    pub fn under(&self, root: &Path) -> PathBuf {
        root.join(self.as_path())
    }

    /// What a file system that ignores case keeps of it.
    #[must_use]
    pub(super) fn folded(&self) -> Vec<u8> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => text.to_lowercase().into_bytes(),
            Err(_) => self.0.to_ascii_lowercase(),
        }
    }
}

/// `.git` in any case, with the trailing dots and blanks that NTFS drops, the code points that HFS+ ignores, or its short name.
pub(super) fn is_dot_git(part: &[u8]) -> bool {
    let text: String = String::from_utf8_lossy(part)
        .chars()
        .filter(
            |c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'),
        )
        .collect();
    let text = text.trim_end_matches(['.', ' ']).to_ascii_lowercase();
    text == ".git" || text == "git~1" || text.starts_with(".git:")
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '%' || c.is_control() {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer).bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(bytes)
}

impl TryFrom<String> for TreePath {
    type Error = TreePathError;
    fn try_from(text: String) -> Result<Self, TreePathError> {
        match unescape(&text) {
            Some(bytes) => Self::parse(&bytes),
            None => Err(TreePathError { text, why: "a `%` is not followed by two digits" }),
        }
    }
}

impl From<TreePath> for String {
    fn from(path: TreePath) -> Self {
        escape(&path.0)
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreePath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_as_text() {
        for bytes in [&b"a b"[..], b"new\nline", b"\xff\xfe", b"100%", "ünï".as_bytes(), b"q\"u'o"] {
            let path = TreePath::parse(bytes).unwrap();
            let text = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<TreePath>(&text).unwrap(), path);
        }
    }

    #[test]
    fn no_path_leads_outside_or_through_git() {
        for bytes in [&b""[..], b"/etc", b"a/../b", b"a//b", b".git", b"a/.GIT/x", b".git /config", b"git~1", b"."] {
            assert!(TreePath::parse(bytes).is_err(), "{}", escape(bytes));
        }
        assert!(TreePath::parse(b".gitignore").is_ok());
        assert!(serde_json::from_str::<TreePath>("\"%2Egit\"").is_err());
    }
}
