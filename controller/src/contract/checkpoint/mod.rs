//! Is a handoff's checkpoint exactly what the parent expects, and what is its digest (policy-and-contract 10.3).

mod digest;
mod files;
mod repository;

pub use digest::{Entry, digest};

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use agent::descriptor::ParentOperation;
use agent::handoff::Request;
use serde::Serialize;

use repository::Repository;

/// What the parent assigned and allows.
#[derive(Clone, Debug)]
pub struct Assignment<'a> {
    pub repository: &'a OsStr,
    pub task: &'a str,
    pub checkpoint: &'a str,
    pub expected_head: &'a str,
    /// Exact paths that the worker may hand over.
    pub files: Vec<String>,
    /// Exact identifiers of checks that the worker may ask for.
    pub checks: Vec<String>,
}

/// A checkpoint that may be acted on, as long as digest and HEAD stay the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename = "validated")]
pub struct Validated {
    pub operation: ParentOperation,
    pub head: String,
    pub digest: String,
    pub files: Vec<String>,
    pub checks: Vec<String>,
}

/// The checkpoint is refused, or could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Rules that the checkpoint breaks.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    #[error("cannot {doing} {}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// Not a repository, or no commit yet.
    #[error("git {what} failed in {}: {stderr}", .path.display())]
    Git { what: &'static str, path: PathBuf, stderr: String },
}

type Result<T> = std::result::Result<T, CheckpointError>;

fn refuse<T>(issue: impl Into<String>) -> Result<T> {
    Err(CheckpointError::Refused(vec![issue.into()]))
}

/// Checks a request against the assignment and the worktree, in the documented order.
///
/// # Errors
/// The first rule that is broken; for paths that escape, all of them.
pub fn validate(request: &Request, assignment: &Assignment) -> Result<Validated> {
    let repository = Repository::open(Path::new(assignment.repository))?;
    let head = repository.head()?;
    if head != assignment.expected_head {
        return refuse(format!("HEAD is {head}, not the expected {}", assignment.expected_head));
    }
    scope(request, assignment)?;
    files::all_inside(&repository, &request.files)?;
    let entries = request.files.iter().map(|path| files::entry(&repository, path)).collect::<Result<Vec<Entry>>>()?;
    Ok(Validated {
        operation: request.operation,
        digest: digest(request, &head, &entries),
        head,
        files: request.files.clone(),
        checks: request.checks.clone(),
    })
}

fn scope(request: &Request, assignment: &Assignment) -> Result<()> {
    if request.task != assignment.task || request.checkpoint != assignment.checkpoint {
        return refuse(format!(
            "handoff is about task \"{}\", checkpoint \"{}\", which is not assigned",
            request.task, request.checkpoint
        ));
    }
    for (what, items, allowed) in
        [("file", &request.files, &assignment.files), ("check", &request.checks, &assignment.checks)]
    {
        if let Some(item) = items.iter().enumerate().find_map(|(at, item)| items[..at].contains(item).then_some(item)) {
            return refuse(format!("handoff repeats the {what} \"{item}\""));
        }
        let unlisted: Vec<String> = items
            .iter()
            .filter(|item| !allowed.contains(item))
            .map(|item| format!("the {what} \"{item}\" is not allowed"))
            .collect();
        if !unlisted.is_empty() {
            return Err(CheckpointError::Refused(unlisted));
        }
    }
    match request.operation {
        ParentOperation::CommitCheckpoint if request.files.is_empty() => refuse("commit-checkpoint names no file"),
        ParentOperation::RunChecks if request.checks.is_empty() => refuse("run-checks names no check"),
        ParentOperation::CommitCheckpoint | ParentOperation::RunChecks => Ok(()),
    }
}
