//! Git directories inside a lane's worktree. A snapshot brings none but the one at the top, so the lane made them.

use std::path::Path;

use crate::snapshot::TreePath;

/// Directories below `root` with a `.git` of their own. Those of `known` are named without being entered.
pub(super) fn with_git(root: &Path, known: &[TreePath]) -> Vec<TreePath> {
    let mut found = Vec::new();
    let mut open: Vec<Option<TreePath>> = vec![None];
    while let Some(dir) = open.pop() {
        let absolute = dir.as_ref().map_or_else(|| root.to_owned(), |dir| dir.under(root));
        for entry in std::fs::read_dir(absolute).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name == ".git" {
                found.extend(dir.clone()); // the one at the top is the lane's own
                continue;
            }
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let Ok(name) = TreePath::parse(std::os::unix::ffi::OsStrExt::as_bytes(&*name)) else { continue };
            let path = dir.as_ref().map_or_else(|| name.clone(), |dir| name.below(dir));
            if !known.contains(&path) {
                open.push(Some(path));
            }
        }
    }
    found
}
