//! Names of objects.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::SnapshotError;

/// An object's name: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn from_raw(raw: &[u8]) -> Self {
        Self(raw.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The single name in an answer of Git's.
    pub(super) fn answer(bytes: &[u8]) -> Result<Self, SnapshotError> {
        String::from_utf8_lossy(bytes).trim().parse()
    }
}

impl FromStr for Oid {
    type Err = SnapshotError;
    fn from_str(text: &str) -> Result<Self, SnapshotError> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if digits && (text.len() == 40 || text.len() == 64) {
            Ok(Self(text.to_owned()))
        } else {
            Err(SnapshotError::Damaged { what: "an object's name", detail: text.chars().take(80).collect() })
        }
    }
}

impl TryFrom<String> for Oid {
    type Error = SnapshotError;
    fn try_from(text: String) -> Result<Self, SnapshotError> {
        text.parse()
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a repository names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        match bytes {
            b"sha1" => Ok(Self::Sha1),
            b"sha256" => Ok(Self::Sha256),
            other => {
                let detail = String::from_utf8_lossy(other).into_owned();
                Err(SnapshotError::Damaged { what: "the repository's object format", detail })
            }
        }
    }

    /// Bytes of a name.
    pub(super) const fn raw_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The configuration of a Git directory of ours.
    pub(super) fn config(self, bare: bool) -> String {
        let (version, extension) = match self {
            Self::Sha1 => (0, ""),
            Self::Sha256 => (1, "[extensions]\n\tobjectFormat = sha256\n"),
        };
        format!("[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = {bare}\n{extension}")
    }
}

/// A project's name in every cache: 32 hexadecimal digits that say nothing about where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProjectId(String);

impl ProjectId {
    /// From a secret of this client and the place of the repository: nobody else can guess it.
    #[must_use]
    pub fn derive(secret: &[u8], place: &[u8]) -> Self {
        let digest = Sha256::new().chain_update(secret).chain_update([0]).chain_update(place).finalize();
        Self(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// As text: fit for a file name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ProjectId {
    type Error = SnapshotError;
    fn try_from(text: String) -> Result<Self, SnapshotError> {
        if text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
            Ok(Self(text))
        } else {
            Err(SnapshotError::Damaged { what: "a project's name", detail: text.chars().take(80).collect() })
        }
    }
}

impl From<ProjectId> for String {
    fn from(id: ProjectId) -> Self {
        id.0
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
