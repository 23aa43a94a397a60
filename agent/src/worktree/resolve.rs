//! Kinds of working directories, and the Git metadata each needs.

use std::path::{Component, Path, PathBuf};

use crate::container::Finding;
use crate::container::spec::{Access, Mount};
use crate::worktree::git::Git;
use crate::worktree::{Kind, Pointer, WorktreeError};

/// Where a working directory is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) root: PathBuf,
    pub(super) kind: Kind,
    /// Real path of the common directory.
    pub(super) common: Option<PathBuf>,
    /// Real path of this worktree's own Git directory.
    pub(super) git_dir: Option<PathBuf>,
    /// The Git directory as the `.git` file spells it, made absolute: may lead through links.
    pub(super) spelled_git_dir: Option<PathBuf>,
    pub(super) submodules: Vec<PathBuf>,
    pub(super) findings: Vec<Finding>,
}

impl Place {
    pub(super) fn safe_directories(&self) -> Vec<PathBuf> {
        if self.common.is_none() {
            return Vec::new();
        }
        let mut all = vec![self.root.clone()];
        all.extend(self.git_dir.clone());
        all.extend(self.spelled_git_dir.clone());
        all.extend(self.common.clone());
        all.extend(self.submodules.iter().map(|path| self.root.join(path)));
        let mut seen = Vec::new();
        for path in all {
            if !seen.contains(&path) {
                seen.push(path);
            }
        }
        seen
    }
}

pub(super) async fn locate(git: &Git, cwd: &Path) -> Result<Place, WorktreeError> {
    let marked = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()).map(Path::to_owned);
    let located = match git.locate(cwd).await? {
        Ok(located) => located,
        Err(reason) => {
            return match marked {
                // There is a `.git`, and git cannot follow it: never run a lane that thinks it has no repository.
                Some(path) => Err(WorktreeError::Unresolvable { path, reason }),
                None => Ok(plain(cwd)),
            };
        }
    };
    let (true, Some(top)) = (located.inside_work_tree, located.top.as_ref()) else {
        return Err(WorktreeError::InsideGitDirectory { path: cwd.to_owned() });
    };
    let unresolvable = |path: &Path, reason: String| WorktreeError::Unresolvable { path: path.to_owned(), reason };
    let real = |path: &Path| path.canonicalize().map_err(|error| unresolvable(path, error.to_string()));
    let (root, git_dir, common) = (real(top)?, real(&located.git_dir)?, real(&located.common)?);
    // `core.worktree` of a repository can name any directory: only the one around cwd is ever mounted.
    if marked.as_ref() != Some(&root) {
        let reason = format!("its configuration claims `{}` as the work tree's top", root.display());
        return Err(unresolvable(cwd, reason));
    }
    let spelled = spelled_git_dir(&root);
    let kind = if git_dir == common {
        Kind::Repository { common: common.clone() }
    } else {
        let pointer = match &spelled {
            Some((_, pointer)) => *pointer,
            None => Pointer::Absolute,
        };
        Kind::Linked { common: common.clone(), git_dir: git_dir.clone(), pointer }
    };
    let has_submodules = root.join(".gitmodules").exists() || common.join("modules").exists();
    let submodules = if has_submodules { git.gitlinks(&root).await? } else { Vec::new() };
    Ok(Place {
        root,
        kind,
        common: Some(common),
        git_dir: Some(git_dir),
        spelled_git_dir: spelled.map(|(path, _)| path),
        submodules,
        findings: Vec::new(),
    })
}

fn plain(cwd: &Path) -> Place {
    Place {
        root: cwd.to_owned(),
        kind: Kind::Plain,
        common: None,
        git_dir: None,
        spelled_git_dir: None,
        submodules: Vec::new(),
        findings: Vec::new(),
    }
}

/// What a `.git` file says, made absolute by text alone, as Git inside will do it.
fn spelled_git_dir(root: &Path) -> Option<(PathBuf, Pointer)> {
    let text = std::fs::read_to_string(root.join(".git")).ok()?;
    let path = Path::new(text.strip_prefix("gitdir:")?.trim());
    if path.is_absolute() {
        Some((lexical(path), Pointer::Absolute))
    } else {
        Some((lexical(&root.join(path)), Pointer::Relative))
    }
}

/// Removes `.` and `..` without looking at the disk.
pub(super) fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Read-only mounts of Git's metadata: on top of a writable tree, and beside it.
pub(super) fn metadata_mounts(place: &Place, findings: &mut Vec<Finding>) -> Vec<Mount> {
    let (Some(common), Some(git_dir)) = (&place.common, &place.git_dir) else { return Vec::new() };
    let read_only = |path: &Path| Mount::same(path, Access::ReadOnly);
    // The directory or the pointer file itself: it can then be neither written, replaced nor renamed.
    let marker = place.root.join(".git");
    let mut mounts = Vec::new();
    if marker.symlink_metadata().is_ok_and(|meta| meta.file_type().is_symlink()) {
        // A link cannot be a mount point. Inside it is an ordinary link of the work tree, which a writer could replace.
        findings.push(Finding::new(
            "git-marker-is-a-link",
            format!("`{}` is a symbolic link and not protected", marker.display()),
        ));
    } else {
        mounts.push(read_only(&marker));
    }
    mounts.push(read_only(common));
    if !git_dir.starts_with(common) {
        mounts.push(read_only(git_dir));
    }
    mounts.extend(spelled_mount(place, common, git_dir));
    mounts.extend(alternates(common, findings));
    for submodule in place.submodules.iter().take(256) {
        let marker = place.root.join(submodule).join(".git");
        if marker.symlink_metadata().is_ok_and(|meta| meta.is_file() || meta.is_dir()) {
            mounts.push(read_only(&marker));
        }
    }
    if place.submodules.len() > 256 {
        findings.push(Finding::new("many-submodules", "only the first 256 submodules' `.git` files are protected"));
    }
    mounts
}

/// The common directory once more at the spelling that the `.git` file leads to, when links make the two differ.
fn spelled_mount(place: &Place, common: &Path, git_dir: &Path) -> Option<Mount> {
    let spelled = place.spelled_git_dir.as_ref()?;
    if spelled == git_dir {
        return None;
    }
    let target = match git_dir.strip_prefix(common) {
        Ok(tail) if tail.as_os_str().is_empty() => spelled.clone(),
        Ok(tail) if spelled.ends_with(tail) => {
            let depth = tail.components().count();
            spelled.ancestors().nth(depth)?.to_owned()
        }
        _ => return Some(Mount { source: git_dir.to_owned(), target: spelled.clone(), access: Access::ReadOnly }),
    };
    Some(Mount { source: common.to_owned(), target, access: Access::ReadOnly })
}

/// Object directories outside, which this repository borrows from. Only what looks like one is mounted.
fn alternates(common: &Path, findings: &mut Vec<Finding>) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    let mut open = vec![common.join("objects")];
    let mut depth = 0;
    while let Some(objects) = open.pop() {
        depth += 1;
        if depth > 16 {
            findings
                .push(Finding::new("many-alternates", "only the first 16 alternate object directories are mounted"));
            break;
        }
        let listed = std::fs::read_to_string(objects.join("info/alternates")).unwrap_or_default();
        for line in listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let spelled = lexical(&objects.join(line));
            let usable = spelled.canonicalize().ok().filter(|real| {
                real.file_name().is_some_and(|name| name == "objects")
                    && (real.join("pack").is_dir() || real.join("info").is_dir())
            });
            let Some(real) = usable else {
                let detail = format!(
                    "`{}` is no object directory and is not mounted: objects may be missing",
                    spelled.display()
                );
                findings.push(Finding::new("alternate-not-mounted", detail));
                continue;
            };
            if mounts.iter().any(|mount| mount.target == spelled) {
                continue;
            }
            open.push(real.clone());
            mounts.push(Mount { source: real, target: spelled, access: Access::ReadOnly });
        }
    }
    mounts
}
