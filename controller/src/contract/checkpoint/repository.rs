//! The worktree of a checkpoint: its root, its HEAD, and every directory that holds Git metadata.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{CheckpointError, Result, refuse};

/// Variables that would point git at another repository than the one named.
const REDIRECTS: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_PREFIX",
];

/// A worktree whose root and metadata agree with what git says.
#[derive(Debug)]
pub(super) struct Repository {
    /// Real path.
    pub(super) root: PathBuf,
    /// Real paths: the git directory and, for a linked worktree, the common directory.
    pub(super) metadata: Vec<PathBuf>,
}

impl Repository {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let root = fs::canonicalize(path).map_err(io("find repository", path))?;
        let top = rev_parse(&root, "rev-parse --show-toplevel")?;
        if fs::canonicalize(&top).ok().as_deref() != Some(&root) {
            return refuse(format!("{} is not the root of its worktree, {top} is", root.display()));
        }
        let metadata = metadata_of(&root)?;
        for command in ["rev-parse --absolute-git-dir", "rev-parse --path-format=absolute --git-common-dir"] {
            let directory = rev_parse(&root, command)?;
            let real = fs::canonicalize(&directory).map_err(io("find git directory", Path::new(&directory)))?;
            if !metadata.contains(&real) {
                return refuse(format!("git uses {}, which the worktree's .git does not name", real.display()));
            }
        }
        Ok(Self { root, metadata })
    }

    pub(super) fn head(&self) -> Result<String> {
        rev_parse(&self.root, "rev-parse HEAD")
    }
}

/// The directories that `.git` names: itself or the target of the pointer file, and their `commondir`.
fn metadata_of(root: &Path) -> Result<Vec<PathBuf>> {
    let git = root.join(".git");
    let state = git.metadata().map_err(io("look at", &git))?;
    let directory = if state.is_dir() {
        git
    } else {
        let text = fs::read_to_string(&git).map_err(io("read", &git))?;
        match text.trim_end().strip_prefix("gitdir:").map(str::trim) {
            Some(target) if !target.is_empty() => root.join(target),
            _ => return refuse(format!("{} names no git directory", git.display())),
        }
    };
    let directory = fs::canonicalize(&directory).map_err(io("find git directory", &directory))?;
    let common = directory.join("commondir");
    let mut metadata = vec![directory];
    if let Ok(text) = fs::read_to_string(&common) {
        let target = metadata[0].join(text.trim_end());
        let target = fs::canonicalize(&target).map_err(io("find common git directory", &target))?;
        if !metadata.contains(&target) {
            metadata.push(target);
        }
    }
    Ok(metadata)
}

/// Output of a read-only git command, without its newline.
fn rev_parse(root: &Path, command: &'static str) -> Result<String> {
    let mut git = Command::new("git");
    git.args(command.split(' ')).current_dir(root).stdin(Stdio::null());
    REDIRECTS.iter().for_each(|name| {
        git.env_remove(name);
    });
    let output = git.output().map_err(io("run git in", root))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CheckpointError::Git { what: command, path: root.to_owned(), stderr });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError {
    let path = path.to_owned();
    move |source| CheckpointError::Io { doing, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(directory: &Path, words: &str) {
        let configured = "-c user.name=n -c user.email=e@example.invalid -c init.defaultBranch=main";
        let status = Command::new("git")
            .args(configured.split(' ').chain(words.split(' ')))
            .current_dir(directory)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .status()
            .unwrap();
        assert!(status.success(), "git {words}");
    }

    #[test]
    fn metadata_is_one_directory_for_a_plain_repository_and_two_for_a_linked_worktree() {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), "init -q plain");
        let plain = dir.path().join("plain");
        git(&plain, "commit -q --allow-empty -m base");
        git(&plain, "worktree add -q ../linked");
        assert_eq!(Repository::open(&plain).unwrap().metadata.len(), 1);
        let linked = Repository::open(&dir.path().join("linked")).unwrap();
        assert_eq!(linked.metadata.len(), 2);
        assert_eq!(linked.head().unwrap().len(), 40);
        git(dir.path(), "init -q --separate-git-dir metadata separate");
        assert_eq!(Repository::open(&dir.path().join("separate")).unwrap().metadata, [dir.path().join("metadata")]);
        assert!(Repository::open(dir.path()).is_err());
        assert!(matches!(Repository::open(&plain.join(".git")), Err(CheckpointError::Git { .. })));
    }
}
