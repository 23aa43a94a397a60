//! The lane's files as a tree. The lane's own Git directory is never asked: it could say anything.

use std::path::Path;

use super::empty::made_by_cli;
use super::{Ignored, Record, ResultTree, compare, inner};
use crate::snapshot::cache::Lease;
use crate::snapshot::materialize::Worktree;
use crate::snapshot::scan::{Ground, not_ignored, scan, split};
use crate::snapshot::{Content, Nested, Snapshot, SnapshotError, TreePath, Unseen, blocking, take};

/// Ignored paths that are kept by name.
const NAMED: usize = 100;

/// Reads what the writer left, links as links. Nothing may write there any more: its container is gone. On an error the
/// worktree must be kept, for the work is only there.
///
/// # Errors
/// The files cannot be read, or keep changing.
pub async fn collect(lease: &Lease, worktree: &Worktree, snapshot: &Snapshot) -> Result<ResultTree, SnapshotError> {
    let scratch = lease.scratch()?;
    let mut walk =
        Walk { lease, worktree, snapshot, scratch: scratch.path(), count: 0, ignored: Vec::new(), made: Vec::new() };
    let (tree, inner, empty_directories, mut unseen) = walk.scan(None).await?;
    let mut content = Content { tree, nested: Vec::new(), empty_directories };
    content.empty_directories.retain(|path| !made_by_cli(snapshot, path));
    let mut open: Vec<TreePath> = inner.into_iter().rev().collect();
    while let Some(path) = open.pop() {
        let (tree, inner, empty, more) = walk.scan(Some(&path)).await?;
        content.empty_directories.extend(empty.iter().map(|empty| empty.below(&path)));
        unseen.extend(more.into_iter().map(|unseen| unseen.below(&path)));
        open.extend(inner.into_iter().rev().map(|inner| inner.below(&path)));
        content.nested.push(Nested { path, tree });
    }
    let (mut ignored, mut repositories) = (walk.ignored, walk.made);
    repositories.sort();
    ignored.sort();
    let in_all = ignored.len();
    ignored.truncate(NAMED);
    let mut record = Record {
        snapshot: snapshot.id()?.clone(),
        content,
        unreadable: Vec::new(),
        refused_names: Vec::new(),
        special: Vec::new(),
        repositories,
        ignored: Ignored { paths: ignored, in_all },
    };
    for unseen in unseen {
        match unseen {
            Unseen::Unreadable { path } => record.unreadable.push(path),
            Unseen::Special { path } => record.special.push(path),
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
    let (snapshot, content, ignored) = (record.snapshot, record.content, record.ignored);
    Ok(ResultTree { id, snapshot, content, changes, findings, ignored })
}

struct Walk<'a> {
    lease: &'a Lease,
    worktree: &'a Worktree,
    snapshot: &'a Snapshot,
    scratch: &'a Path,
    count: u32,
    ignored: Vec<String>,
    /// Repositories of the lane's own.
    made: Vec<TreePath>,
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
            kept: None,
            first: false,
            alternates: Vec::new(),
            settings: Vec::new(),
            start: number.map(|number| self.worktree.index(number)).filter(|path| path.exists()),
            excludes: self.snapshot.excludes.clone(),
            sparse: self.snapshot.sparse.clone().filter(|_| path.is_none()),
            forget_ignored: false,
            attempts: 3,
        };
        let found = scan(&ground, &|_| {}).await?;
        // No snapshot has any of these, so the lane made them.
        let args =
            ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory"];
        let listed = found.repo.ask(&args, b"").await?;
        self.ignored.extend(split(&listed).map(|name| shown(path, name)));
        let (root, known) = (ground.root.clone(), found.nested.clone());
        let inside =
            blocking(move || Ok((inner::with_git(&root, &known), root.join(".git").symlink_metadata().is_ok())));
        let (inside, whole) = inside.await?;
        self.made.extend(path.filter(|_| whole).cloned());
        // Git may refuse to judge a path in what it takes for a submodule: then it is named.
        let made = not_ignored(&found.repo, inside.clone(), b"/").await.unwrap_or(inside);
        self.made.extend(made.into_iter().map(|made| path.map_or_else(|| made.clone(), |path| made.below(path))));
        Ok((found.tree, found.nested, found.empty, found.unseen))
    }
}

/// A path for people, from the top.
fn shown(prefix: Option<&TreePath>, name: &[u8]) -> String {
    let (bare, slash) = name.strip_suffix(b"/").map_or((name, ""), |bare| (bare, "/"));
    match TreePath::parse(bare) {
        Ok(path) => format!("{}{slash}", prefix.map_or_else(|| path.clone(), |prefix| path.below(prefix))),
        Err(_) => String::from_utf8_lossy(name).escape_debug().to_string(),
    }
}
