//! What a writer left: collected as a tree, judged, and applied to the files of the dedicated worktree, all or nothing.

mod apply; // onto the user's files
mod collect; // from the lane's files
mod compare; // what differs, and what must not be applied
mod empty; // directories without files
mod export; // as a patch for people
mod inner; // repositories that the lane made
mod stage; // the journal that makes it all or nothing

use serde::{Deserialize, Serialize};

use super::cache::Lease;
use super::{Content, Oid, Snapshot, SnapshotError, TreePath, take};
pub use apply::{Outcome, apply};
pub use collect::collect;
pub use empty::DirectoryChange;
pub use export::export;
pub use stage::{Recovered, recover};

/// A lane's files after the run. Its name is the commit that carries the record, on top of the snapshot's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultTree {
    pub id: Oid,
    pub snapshot: Oid,
    pub content: Content,
    /// Sorted by path.
    pub changes: Vec<Change>,
    pub findings: Vec<Finding>,
    pub ignored: Ignored,
}

/// What the lane wrote and Git ignores: it is no part of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ignored {
    /// The first of them, written as [`TreePath`]s are; a directory as a whole ends with a slash.
    pub paths: Vec<String>,
    /// How many there are; an ignored directory is one.
    pub in_all: usize,
}

/// One path that differs from the snapshot; a rename is a deletion and a new file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub path: TreePath,
    pub before: Option<Entry>,
    pub after: Option<Entry>,
}

/// A file in a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub mode: FileMode,
    pub blob: Oid,
}

/// What Git keeps of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileMode {
    Regular,
    Executable,
    Link,
}

/// Something a person has to know before taking the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Finding {
    #[error("`{path}` is a link to `{target}`, outside the work tree")]
    EscapingLink { path: TreePath, target: String },
    #[error("`{name}` leads through Git's own directory")]
    GitPath { name: String },
    #[error("`{path}` and `{other}` are one name where case does not count")]
    CaseCollision { path: TreePath, other: TreePath },
    #[error("`{path}` could not be read and is not in the result")]
    Unreadable { path: TreePath },
    #[error("`{path}` is a FIFO, a socket or a device and is not in the result")]
    Special { path: TreePath },
    #[error("`{path}/.git` is a repository that the lane made: its files are in the result, the repository is not")]
    Repository { path: TreePath },
}

impl Finding {
    /// True when the result must not be applied as it is.
    #[must_use]
    pub const fn refuses(&self) -> bool {
        !matches!(self, Self::Unreadable { .. } | Self::Special { .. } | Self::Repository { .. })
    }

    /// True when it is about content that no result carries: only the lane's worktree has it.
    #[must_use]
    pub const fn is_left(&self) -> bool {
        matches!(self, Self::GitPath { .. } | Self::Unreadable { .. } | Self::Repository { .. })
    }
}

/// What the carrier's message says; everything else is derived from the trees on either side.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    snapshot: Oid,
    content: Content,
    unreadable: Vec<TreePath>,
    refused_names: Vec<String>,
    #[serde(default)]
    special: Vec<TreePath>,
    #[serde(default)]
    repositories: Vec<TreePath>,
    #[serde(default)]
    ignored: Ignored,
}

impl ResultTree {
    /// True when the lane's worktree has content that this result does not carry: it stays until somebody lets it go.
    #[must_use]
    pub fn leaves_some(&self) -> bool {
        self.findings.iter().any(Finding::is_left)
    }

    /// Reads a result that was received. Changes and findings are derived here: the sender is not believed.
    ///
    /// # Errors
    /// It is not there, is none, or belongs to another snapshot.
    pub async fn load(lease: &Lease, snapshot: &Snapshot, id: &Oid) -> Result<Self, SnapshotError> {
        let repo = lease.repo();
        let text = take::record(&repo, id).await?;
        let none = || SnapshotError::NoSnapshot { id: id.clone() };
        let record: Record = serde_json::from_str(&text).map_err(|_| none())?;
        if record.snapshot != *snapshot.id()? {
            return Err(none());
        }
        let (changes, findings) = compare::compare(&repo, snapshot, &record).await?;
        let (snapshot, content, ignored) = (record.snapshot, record.content, record.ignored);
        Ok(Self { id: id.clone(), snapshot, content, changes, findings, ignored })
    }
}
