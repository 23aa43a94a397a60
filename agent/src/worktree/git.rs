//! The user's own git program, asked with hooks, fsmonitor, filters, external diffs, pagers, credential helpers and the
//! user's and the system's configuration switched off. Never through a shell, always with a deadline.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use tokio::process::Command;

/// One question. Status of a large work tree on a cold disk is the slowest.
const DEADLINE: Duration = Duration::from_secs(120);

/// Git could not be asked, or refused.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git cannot be started (`{program}`): install git on this machine")]
    Start { program: PathBuf, source: std::io::Error },
    #[error("`git {command}` in `{dir}` did not end within {} s", DEADLINE.as_secs())]
    Deadline { command: String, dir: PathBuf },
    #[error("`git {command}` in `{dir}` failed: {message}")]
    Failed { command: String, dir: PathBuf, message: String },
}

/// What a run gave, whatever its exit code.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) success: bool,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// The git program.
#[derive(Clone, Debug)]
pub struct Git {
    program: PathBuf,
    path: OsString,
}

/// Where a directory is in a repository, as git says. All absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) inside_work_tree: bool,
    pub(crate) git_dir: PathBuf,
    pub(crate) common: PathBuf,
    pub(crate) top: Option<PathBuf>,
}

/// One changed path of a work tree, relative to its top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The two letters of `git status --porcelain`.
    pub code: String,
    pub path: PathBuf,
}

impl Git {
    /// `git` as found on `PATH`. Relative directories do not count: they would lead into whatever directory is asked about.
    #[must_use]
    pub fn new() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let dirs: Vec<PathBuf> = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
        let runs = |program: &PathBuf| program.is_file() && access(program, AccessFlags::X_OK).is_ok();
        // By its whole path it is spawned without a copy of this process. Where there is none, the error names `git`.
        let program = dirs.iter().map(|dir| dir.join("git")).find(runs).unwrap_or_else(|| PathBuf::from("git"));
        Self { program, path: std::env::join_paths(dirs).unwrap_or_default() }
    }

    /// Its version, as it says.
    ///
    /// # Errors
    /// There is no git.
    pub async fn version(&self) -> Result<String, GitError> {
        let text = self.ask(Path::new("/"), &["version"]).await?;
        Ok(String::from_utf8_lossy(&text).trim().trim_start_matches("git version ").to_owned())
    }

    /// Git in `dir` with everything surprising off and `extra` settings on top; ends with its handle.
    pub(crate) fn command(&self, dir: &Path, args: &[&OsStr], extra: &[(String, String)]) -> Command {
        let mut settings: Vec<(String, String)> =
            QUIET.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        // Exactly the directories this question can be about; the setting counts only from the command's own scope.
        for ancestor in dir.ancestors() {
            settings.push(("safe.directory".to_owned(), ancestor.display().to_string()));
        }
        settings.extend_from_slice(extra);
        let mut command = Command::new(&self.program);
        command.args(["--no-pager", "--no-replace-objects"]).args(args).current_dir(dir);
        command.env_clear().env("PATH", &self.path).envs(ENVIRONMENT.iter().copied());
        command.env("GIT_CONFIG_COUNT", settings.len().to_string());
        for (index, (key, value)) in settings.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{index}"), key).env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        command.kill_on_drop(true);
        command
    }

    /// Runs git in `dir`; a failing exit code is an answer.
    pub(crate) async fn run(
        &self,
        dir: &Path,
        args: &[&OsStr],
        extra: &[(String, String)],
    ) -> Result<Answer, GitError> {
        let mut command = self.command(dir, args, extra);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|source| GitError::Start { program: self.program.clone(), source })?;
        let ended = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
        let output = ended
            .map_err(|_| GitError::Deadline { command: words(args), dir: dir.to_owned() })?
            .map_err(|source| GitError::Start { program: self.program.clone(), source })?;
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok(Answer { success: output.status.success(), stdout: output.stdout, stderr })
    }

    async fn ask(&self, dir: &Path, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.ask_with(dir, args, &[]).await
    }

    async fn ask_with(&self, dir: &Path, args: &[&str], extra: &[(String, String)]) -> Result<Vec<u8>, GitError> {
        let args: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
        let answer = self.run(dir, &args, extra).await?;
        if answer.success {
            Ok(answer.stdout)
        } else {
            Err(GitError::Failed { command: words(&args), dir: dir.to_owned(), message: answer.stderr })
        }
    }

    /// Where `dir` is. `Err` text when git does not see a repository there.
    pub(crate) async fn locate(&self, dir: &Path) -> Result<Result<Located, String>, GitError> {
        let args = [
            "rev-parse",
            "--path-format=absolute",
            "--is-inside-work-tree",
            "--git-dir",
            "--git-common-dir",
            "--show-toplevel",
        ];
        let args: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
        let answer = self.run(dir, &args, &[]).await?;
        // Without a work tree the last question fails after the others were answered.
        let mut lines = answer.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let (Some(inside), Some(git_dir), Some(common)) = (lines.next(), lines.next(), lines.next()) else {
            return Ok(Err(answer.stderr));
        };
        let top = lines.next().filter(|_| answer.success).map(path);
        Ok(Ok(Located { inside_work_tree: inside == b"true", git_dir: path(git_dir), common: path(common), top }))
    }

    /// Changed and untracked paths, each once, links not followed, submodules only by their commit.
    ///
    /// # Errors
    /// `top` is no work tree.
    pub async fn status(&self, top: &Path) -> Result<Vec<Changed>, GitError> {
        let off = self.filters_off(top).await?;
        let args =
            ["status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=dirty", "--no-renames"];
        let text = self.ask_with(top, &args, &off).await?;
        let entries = text.split(|byte| *byte == 0).filter(|entry| entry.len() > 3);
        Ok(entries
            .map(|entry| Changed {
                code: String::from_utf8_lossy(&entry[..2]).into_owned(),
                path: PathBuf::from(OsStr::from_bytes(&entry[3..])),
            })
            .collect())
    }

    /// Clean and smudge filters are programs that the repository names: replaced by nothing.
    async fn filters_off(&self, dir: &Path) -> Result<Vec<(String, String)>, GitError> {
        let args = ["config", "--name-only", "-z", "--get-regexp", r"^filter\..*\.(clean|smudge|process|required)$"];
        let args: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
        let answer = self.run(dir, &args, &[]).await?;
        let keys = answer.stdout.split(|byte| *byte == 0).filter(|key| !key.is_empty());
        Ok(keys
            .map(|key| {
                let key = String::from_utf8_lossy(key).into_owned();
                let value = if key.ends_with(".required") { "false" } else { "" };
                (key, value.to_owned())
            })
            .collect())
    }

    /// Keys and values of one configuration file, in order, includes not followed.
    pub(crate) async fn config_file(&self, file: &Path) -> Result<Vec<(String, Option<String>)>, GitError> {
        let [config, includes, list, nul, from] = ["config", "--no-includes", "--list", "-z", "--file"].map(OsStr::new);
        let args = [config, includes, list, nul, from, file.as_os_str()];
        let answer = self.run(Path::new("/"), &args, &[]).await?;
        if !answer.success {
            return Err(GitError::Failed { command: words(&args), dir: PathBuf::from("/"), message: answer.stderr });
        }
        let entries = answer.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        Ok(entries
            .map(|entry| {
                let text = String::from_utf8_lossy(entry).into_owned();
                match text.split_once('\n') {
                    Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                    None => (text, None),
                }
            })
            .collect())
    }

    /// Paths of submodules (gitlinks) in the index, relative to the top.
    pub(crate) async fn gitlinks(&self, top: &Path) -> Result<Vec<PathBuf>, GitError> {
        let text = self.ask(top, &["ls-files", "--stage", "-z"]).await?;
        let entries = text.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
        Ok(entries
            .filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1))
            .map(|path| PathBuf::from(OsStr::from_bytes(path)))
            .collect())
    }
}

impl Default for Git {
    fn default() -> Self {
        Self::new()
    }
}

fn words(args: &[&OsStr]) -> String {
    args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Settings that outrank the repository's own, so that nothing of it runs on this machine.
const QUIET: &[(&str, &str)] = &[
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "keep"),
    ("core.hooksPath", "/dev/null"),
    ("core.sshCommand", "false"),
    ("core.askPass", ""),
    ("core.editor", "false"),
    ("core.pager", "cat"),
    ("core.alternateRefsCommand", "false"),
    ("credential.helper", ""),
    ("diff.external", ""),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("log.showSignature", "false"),
    ("gpg.program", "false"),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("LC_ALL", "C"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_PAGER", "cat"),
    ("GIT_EXTERNAL_DIFF", ""),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
];
