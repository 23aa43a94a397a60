//! The result as a patch that `git apply` takes.

use super::ResultTree;
use crate::snapshot::cache::Lease;
use crate::snapshot::{Oid, Snapshot, SnapshotError};

/// A binary patch of everything between the snapshot and the result, nested repositories with their path.
///
/// # Errors
/// Objects are missing.
pub async fn export(lease: &Lease, snapshot: &Snapshot, result: &ResultTree) -> Result<Vec<u8>, SnapshotError> {
    let repo = lease.repo();
    let none = Oid::answer(&repo.writing().ask(&["hash-object", "-t", "tree", "-w", "--stdin"], b"").await?)?;
    let (before, after) = (&snapshot.content, &result.content);
    let mut pairs = vec![(String::new(), before.tree.clone(), after.tree.clone())];
    let paths: std::collections::BTreeSet<_> =
        before.nested.iter().chain(&after.nested).map(|nested| &nested.path).collect();
    for path in paths {
        let find = |content: &crate::snapshot::Content| {
            content.nested.iter().find(|nested| nested.path == *path).map_or(none.clone(), |nested| nested.tree.clone())
        };
        let prefix = format!("{}/", String::from_utf8_lossy(path.as_bytes()));
        pairs.push((prefix, find(before), find(after)));
    }
    let mut patch = Vec::new();
    for (prefix, old, new) in pairs.iter().filter(|(_, old, new)| old != new) {
        let (src, dst) = (format!("--src-prefix=a/{prefix}"), format!("--dst-prefix=b/{prefix}"));
        let args = [
            "diff-tree",
            "-r",
            "-p",
            "--binary",
            "--full-index",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=all",
            &src,
            &dst,
            old.as_str(),
            new.as_str(),
        ];
        patch.extend(repo.ask(&args, b"").await?);
    }
    Ok(patch)
}
