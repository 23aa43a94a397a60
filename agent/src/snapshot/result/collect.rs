//! The lane's files as a tree. The lane's own Git directory is never asked: it could say anything.

use std::path::Path;

use super::{Record, ResultTree, compare};
use crate::snapshot::cache::Lease;
use crate::snapshot::materialize::Worktree;
use crate::snapshot::scan::{Ground, scan};
use crate::snapshot::{Content, Nested, Snapshot, SnapshotError, TreePath, Unseen, take};

/// Reads what the writer left, links as links. Nothing may write there any more: its container is gone. On an error the
/// worktree must be kept, for the work is only there.
///
/// # Errors
/// The files cannot be read, or keep changing.
pub async fn collect(lease: &Lease, worktree: &Worktree, snapshot: &Snapshot) -> Result<ResultTree, SnapshotError> {
    let scratch = lease.scratch()?;
    let mut walk = Walk { lease, worktree, snapshot, scratch: scratch.path(), count: 0 };
    let (tree, inner, empty_directories, mut unseen) = walk.scan(None).await?;
    let mut content = Content { tree, nested: Vec::new(), empty_directories };
    let mut open: Vec<TreePath> = inner.into_iter().rev().collect();
    while let Some(path) = open.pop() {
        let (tree, inner, empty, more) = walk.scan(Some(&path)).await?;
        content.empty_directories.extend(empty.iter().map(|empty| empty.below(&path)));
        unseen.extend(more.into_iter().map(|unseen| unseen.below(&path)));
        open.extend(inner.into_iter().rev().map(|inner| inner.below(&path)));
        content.nested.push(Nested { path, tree });
    }
    let mut record =
        Record { snapshot: snapshot.id()?.clone(), content, unreadable: Vec::new(), refused_names: Vec::new() };
    for unseen in unseen {
        match unseen {
            Unseen::Unreadable { path } => record.unreadable.push(path),
            Unseen::Name { name } => record.refused_names.push(name),
            // As in the snapshot.
            Unseen::Submodule { .. } | Unseen::LfsContent { .. } | Unseen::OutsideSparse { .. } | Unseen::Conflicts => {
            }
        }
    }
    let repo = lease.repo();
    let text = serde_json::to_string(&record)
        .map_err(|error| SnapshotError::Damaged { what: "the result", detail: error.to_string() })?;
    let mut parts = vec![("files".to_owned(), &record.content.tree)];
    let nested = record.content.nested.iter().enumerate();
    parts.extend(nested.map(|(at, nested)| (format!("nested-{at}"), &nested.tree)));
    let id = take::carrier(&repo, &parts, Some(&record.snapshot), &text).await?;
    let (changes, findings) = compare::compare(&repo, snapshot, &record).await?;
    Ok(ResultTree { id, snapshot: record.snapshot, content: record.content, changes, findings })
}

struct Walk<'a> {
    lease: &'a Lease,
    worktree: &'a Worktree,
    snapshot: &'a Snapshot,
    scratch: &'a Path,
    count: u32,
}

type Found = (crate::snapshot::Oid, Vec<TreePath>, Vec<TreePath>, Vec<Unseen>);

impl Walk<'_> {
    /// The top, or the nested directory at `path`.
    async fn scan(&mut self, path: Option<&TreePath>) -> Result<Found, SnapshotError> {
        self.count += 1;
        let known = &self.snapshot.content.nested;
        let number = match path {
            None => Some(0),
            Some(path) => known.iter().position(|nested| nested.path == *path).map(|at| at + 1),
        };
        let ground = Ground {
            git: self.lease.repo().git,
            root: path.map_or_else(|| self.worktree.root.clone(), |path| path.under(&self.worktree.root)),
            scratch: self.scratch.join(format!("scan-{}", self.count)),
            format: self.snapshot.format,
            objects: self.lease.objects(),
            alternates: Vec::new(),
            settings: Vec::new(),
            start: number.map(|number| self.worktree.index(number)).filter(|path| path.exists()),
            excludes: self.snapshot.excludes.clone(),
            sparse: self.snapshot.sparse.clone().filter(|_| path.is_none()),
            forget_ignored: false,
            attempts: 3,
        };
        let found = scan(&ground).await?;
        Ok((found.tree, found.nested, found.empty, found.unseen))
    }
}
