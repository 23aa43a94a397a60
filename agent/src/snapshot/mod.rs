//! The working directory as a Git tree that travels, and a lane's result on the way back.
//!
//! Knows nothing of the network: what is sent is bytes with a digest, what is negotiated is data. Nothing here ever writes into
//! the user's repository; the user's files are written by [`result::apply`] alone.
//!
//! Order of calls. Client: [`Cache::open`], [`take`], [`transfer::offer`], then with the other side's answer
//! [`transfer::pack`]. Worker: [`transfer::answer`], [`transfer::receive`], [`materialize()`]; after the run
//! [`result::collect`], [`transfer::pack`]. Client again: [`transfer::receive`], [`result::apply()`].

mod path; // names as bytes
mod oid; // names of objects and projects
mod index; // Git's index file
mod program; // git with a private Git directory
mod scratch; // private directories of the store
mod source; // what the user's repository says about itself
mod scan; // a directory as a tree
mod special; // what is no file, link or directory
mod take; // the snapshot
mod lfs; // pointers to large files
pub mod cache; // a bare repository per project
pub mod transfer; // offer, answer, pack, receive
mod packing; // the making of a pack
pub mod pending; // transfers between requests
mod history; // where it is cut
mod beneath; // directories reached without following links
mod materialize; // a worktree of its own on the worker
pub mod result; // what a writer left

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::worktree::git::GitError;
pub use cache::{Cache, Lease};
pub use materialize::{Owner, Place, Worktree, materialize};
pub use oid::{ObjectFormat, Oid, ProjectId};
pub use path::{TreePath, TreePathError};
pub use scan::Again;
pub use take::{Taken, take, take_and_tell};

/// What a snapshot carries beyond the files.
#[derive(Clone, Debug)]
pub struct Options {
    /// Full names of refs that travel besides the base branch (`refs/heads/release`).
    pub refs: Vec<String>,
    /// Such as must be there.
    pub required: Vec<String>,
    pub lfs: LfsPolicy,
    /// How often a directory is read again when files changed meanwhile.
    pub attempts: u32,
    /// Files that are no part of the directory (a lane's own output), by absolute path.
    pub hidden: Vec<PathBuf>,
    /// Patterns of ignored files besides the repository's, one a line.
    pub excludes: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            refs: Vec::new(),
            required: Vec::new(),
            lfs: LfsPolicy::Pointers,
            attempts: 3,
            hidden: Vec::new(),
            excludes: String::new(),
        }
    }
}

/// What becomes of pointer files in the working directory. Content that is there already travels in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LfsPolicy {
    /// They stay pointers, and are declared as unseen.
    Pointers,
    /// Replaced by the content where this machine has it; nothing is downloaded.
    FetchIfLocal,
}

impl std::str::FromStr for LfsPolicy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pointers" => Ok(Self::Pointers),
            "fetch-if-local" => Ok(Self::FetchIfLocal),
            _ => Err(format!("lfs must be pointers or fetch-if-local, not `{text}`")),
        }
    }
}

/// How much history travels. As text: a number of generations, or `full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum History {
    Full,
    /// So many generations, and always the way from the base to where it left each carried ref.
    Depth(u32),
}

impl Default for History {
    fn default() -> Self {
        Self::Depth(100)
    }
}

impl std::str::FromStr for History {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().parse() {
            _ if text == "full" => Ok(Self::Full),
            Ok(depth) if depth > 0 => Ok(Self::Depth(depth)),
            _ => Err(format!("history must be a number of generations from 1 on, or full, not `{text}`")),
        }
    }
}

impl TryFrom<String> for History {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A working directory at one moment. Its name is the commit that carries this record as its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Commit of the carrier: everything else can be read from it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    id: Option<Oid>,
    pub project: ProjectId,
    pub format: ObjectFormat,
    /// Commit that is checked out; none before the first one and without a repository.
    pub base: Option<Oid>,
    /// Full name of the ref that is checked out; none for a detached HEAD.
    pub branch: Option<String>,
    /// The working directory below the top.
    pub cwd: Option<TreePath>,
    pub content: Content,
    /// What is staged; none when the index cannot be written as a tree (conflicts).
    pub index: Option<Oid>,
    pub refs: Vec<CarriedRef>,
    pub sparse: Option<Sparse>,
    pub lfs: LfsPolicy,
    /// Patterns of ignored files outside the tree, one a line.
    pub excludes: String,
    pub summary: Summary,
}

impl Snapshot {
    /// Its name: the same content in the same place always has the same.
    ///
    /// # Errors
    /// The record was made by hand.
    pub fn id(&self) -> Result<&Oid, SnapshotError> {
        self.id.as_ref().ok_or(SnapshotError::Damaged { what: "the snapshot", detail: "it has no name".to_owned() })
    }
}

/// Files, those of nested repositories, and directories without any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    pub tree: Oid,
    /// Outer ones first.
    pub nested: Vec<Nested>,
    pub empty_directories: Vec<TreePath>,
}

/// A submodule or a repository inside the work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nested {
    pub path: TreePath,
    pub tree: Oid,
}

/// A ref that travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedRef {
    pub name: String,
    pub commit: Oid,
}

/// The patterns of a sparse checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sparse {
    pub cone: bool,
    pub patterns: String,
}

/// For admission and for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Files that a lane will have on disk, links included.
    pub files: u64,
    /// Their bytes, estimated from what Git knows.
    pub bytes: u64,
    pub submodules: u64,
    pub lfs_pointers: u64,
    /// What a lane will not see.
    pub unseen: Vec<Unseen>,
}

/// Something of the working directory that does not travel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Unseen {
    /// It cannot be read.
    Unreadable { path: TreePath },
    /// A FIFO, a socket or a device.
    Special { path: TreePath },
    /// A path that leads through what some file system takes for `.git`.
    Name { name: String },
    /// A submodule that was never checked out.
    Submodule { path: TreePath },
    /// The content of a large file: its pointer travels.
    LfsContent { path: TreePath },
    /// Files outside the sparse checkout: in the base tree, not on disk.
    OutsideSparse { files: u64 },
    /// The index has conflicts; the lane sees the files, and nothing as staged.
    Conflicts,
}

/// A snapshot could not be taken, moved or used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("`git {command}` did not end within {seconds} s")]
    Deadline { command: String, seconds: u64 },
    #[error("cannot use `{path}`")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("`{path}` is inside Git's own metadata: name the work tree instead")]
    InsideGitDirectory { path: PathBuf },
    #[error(
        "`{path}` does not belong to the lane's repository, as the state directory of the lane's client knows it: apply in a \
         worktree of that repository on that machine; for a clone or another machine write a patch with `laneyard result export`, \
         and apply it there with `git apply`"
    )]
    Elsewhere { path: PathBuf },
    #[error("the Git work tree around `{path}` cannot be resolved: {reason}")]
    Unresolvable { path: PathBuf, reason: String },
    #[error("files changed while they were read, try again when nothing writes to them: {}", list(.paths))]
    Changed { paths: Vec<TreePath> },
    #[error("`{name}` names no commit of the repository around `{path}`: `git -C {path} for-each-ref` shows what does", path = path.display())]
    NoRef { name: String, path: PathBuf },
    #[error("the directory cannot be read: {detail}")]
    Unscannable { detail: String },
    #[error("{what} is damaged: {detail}")]
    Damaged { what: &'static str, detail: String },
    #[error("the transfer has {found} instead of {expected}: it was discarded, send it again from the start")]
    Digest { expected: String, found: String },
    #[error("the transfer ended after {have} of {want} bytes: resume it there")]
    Incomplete { have: u64, want: u64 },
    #[error("`{name}` cannot be the name of a holder: use letters, digits, `-`, `_` and `.`")]
    Holder { name: String },
    #[error("`{path}` exists already: materialize into a fresh directory")]
    NotFresh { path: PathBuf },
    #[error("commit `{id}` is no snapshot")]
    NoSnapshot { id: Oid },
}

pub(crate) fn list(paths: &[TreePath]) -> String {
    let mut text = paths.iter().take(5).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    if paths.len() > 5 {
        text.push_str(&format!(" and {} more", paths.len() - 5));
    }
    text
}

impl From<TreePathError> for SnapshotError {
    fn from(error: TreePathError) -> Self {
        Self::Damaged { what: "a path", detail: error.to_string() }
    }
}

pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> SnapshotError {
    let path = path.into();
    move |source| SnapshotError::Io { path, source }
}

/// Runs `work`, which waits for the disk, away from the tasks that must not.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SnapshotError> + Send + 'static,
) -> Result<T, SnapshotError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(SnapshotError::Unscannable { detail: error.to_string() }))
}
