//! Git with a Git directory of our own: no configuration, attribute or hook of the user's repository counts, bytes stay exact.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::oid::ObjectFormat;
use super::{SnapshotError, io};
use crate::worktree::git::{Git, GitError};

/// A scan, a checkout or a pack of a very large tree on a slow disk.
const DEADLINE: Duration = Duration::from_secs(3600);

/// What a run gave.
pub(super) struct Output {
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

/// Where git works. Every path is absolute.
#[derive(Clone, Debug)]
pub(super) struct Repo {
    pub(super) git: Git,
    pub(super) git_dir: PathBuf,
    pub(super) work_tree: Option<PathBuf>,
    pub(super) index: Option<PathBuf>,
    /// Where new objects go, when not into the Git directory's own.
    pub(super) objects: Option<PathBuf>,
    /// Read besides.
    pub(super) alternates: Vec<PathBuf>,
    /// Our own store when new objects go elsewhere: what it has is not written again.
    pub(super) kept: Option<PathBuf>,
    pub(super) settings: Vec<(String, String)>,
}

impl Repo {
    /// A bare repository of ours.
    pub(super) fn bare(git: &Git, git_dir: &Path) -> Self {
        Self {
            git: git.clone(),
            git_dir: git_dir.to_owned(),
            work_tree: None,
            index: None,
            objects: None,
            alternates: Vec::new(),
            kept: None,
            settings: Vec::new(),
        }
    }

    pub(super) fn reading(mut self, alternates: &[PathBuf]) -> Self {
        self.alternates = alternates.to_vec();
        self
    }

    /// For commands that write objects: Git renews the time of an object that it would write and finds in an alternate, and the
    /// user's repository is not to be touched. What is missing here is written into our own store once.
    pub(super) fn writing(&self) -> Self {
        Self { alternates: Vec::new(), ..self.clone() }
    }

    /// The index as a tree.
    pub(super) async fn write_tree(&self) -> Result<Output, SnapshotError> {
        // What the user's repository has is not seen while writing.
        let missing = if self.alternates.is_empty() { &["write-tree"][..] } else { &["write-tree", "--missing-ok"] };
        self.writing().run(missing, b"").await
    }

    /// Makes one file of a split index, and replaces directories of a sparse index by their files, while the objects that
    /// this needs can be read.
    pub(super) async fn rewrite_index(&self) -> Result<(), SnapshotError> {
        self.ask(&["update-index", "--force-write-index"], b"").await.map(drop)
    }

    pub(super) fn with_index(&self, index: &Path) -> Self {
        Self { index: Some(index.to_owned()), ..self.clone() }
    }

    pub(super) fn command(&self, args: &[&OsStr]) -> Command {
        let dir = self.work_tree.as_deref().unwrap_or(&self.git_dir);
        let mut settings: Vec<(String, String)> =
            EXACT.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        settings.extend_from_slice(&self.settings);
        let mut command = self.git.command(dir, args, &settings);
        command.env("GIT_DIR", &self.git_dir);
        if let Some(work_tree) = &self.work_tree {
            command.env("GIT_WORK_TREE", work_tree);
        }
        if let Some(index) = &self.index {
            command.env("GIT_INDEX_FILE", index);
        }
        if let Some(objects) = &self.objects {
            command.env("GIT_OBJECT_DIRECTORY", objects);
        }
        let besides: Vec<&Path> = self.kept.iter().chain(&self.alternates).map(PathBuf::as_path).collect();
        if !besides.is_empty() {
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", joined(&besides));
        }
        command
    }

    /// Runs to the end; a failing exit code is an answer.
    pub(super) async fn run(&self, args: &[&str], stdin: &[u8]) -> Result<Output, SnapshotError> {
        let args: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
        let mut command = self.command(&args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = |source| GitError::Start { program: PathBuf::from("git"), source };
        let mut child = command.spawn().map_err(start)?;
        let pipe = child.stdin.take();
        let feed = async move {
            if let Some(mut pipe) = pipe {
                // A program that has heard enough closes its end; its exit code says whether that was right.
                let _ = pipe.write_all(stdin).await;
                let _ = pipe.shutdown().await;
            }
        };
        let both = async { tokio::join!(feed, child.wait_with_output()).1 };
        let ended = tokio::time::timeout(DEADLINE, both).await;
        let output = ended
            .map_err(|_| SnapshotError::Deadline { command: words(&args), seconds: DEADLINE.as_secs() })?
            .map_err(start)?;
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok(Output { code: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr })
    }

    /// Runs to a successful end and gives what it printed.
    pub(super) async fn ask(&self, args: &[&str], stdin: &[u8]) -> Result<Vec<u8>, SnapshotError> {
        let output = self.run(args, stdin).await?;
        if output.code == 0 { Ok(output.stdout) } else { Err(self.failed(args, output.stderr)) }
    }

    pub(super) fn failed(&self, args: &[&str], message: String) -> SnapshotError {
        let dir = self.work_tree.as_deref().unwrap_or(&self.git_dir).to_owned();
        GitError::Failed { command: args.join(" "), dir, message }.into()
    }
}

/// Writes a Git directory: no hooks, no remotes, no templates, and every conversion of file content off.
pub(super) fn write_git_dir(dir: &Path, format: ObjectFormat, excludes: &str) -> Result<(), SnapshotError> {
    for part in ["refs", "info", "objects/pack", "objects/info"] {
        std::fs::create_dir_all(dir.join(part)).map_err(io(dir))?;
    }
    let files = [
        ("HEAD", "ref: refs/heads/laneyard-scratch\n".to_owned()),
        ("config", format.config(false)),
        ("info/attributes", "* -text -filter -ident -working-tree-encoding -diff -merge\n".to_owned()),
        ("info/exclude", excludes.to_owned()),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text).map_err(io(dir.join(name)))?;
    }
    Ok(())
}

fn words(args: &[&OsStr]) -> String {
    args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A list of paths as the variable wants it: every one quoted, for a path may hold a colon.
fn joined(paths: &[&Path]) -> OsString {
    let mut text = Vec::new();
    for path in paths {
        if !text.is_empty() {
            text.push(b':');
        }
        text.push(b'"');
        for byte in path.as_os_str().as_bytes() {
            match byte {
                b'"' | b'\\' => text.extend([b'\\', *byte]),
                b'\n' => text.extend(b"\\n"),
                other => text.push(*other),
            }
        }
        text.push(b'"');
    }
    OsString::from_vec(text)
}

/// Outranks even our own files: what is hashed is what is on disk, and temporary files are written fast.
const EXACT: &[(&str, &str)] = &[
    ("core.autocrlf", "false"),
    ("core.safecrlf", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.splitIndex", "false"),
    ("core.quotePath", "false"),
    ("core.looseCompression", "1"),
    ("index.skipHash", "true"),
    ("index.sparse", "false"),
    ("advice.addEmbeddedRepo", "false"),
    ("add.ignoreErrors", "true"),
];
