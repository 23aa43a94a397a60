//! What a directory's repository says about itself: read with the user's git, nothing of it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::index::Index;
use super::oid::{ObjectFormat, Oid};
use super::scan::split;
use super::{CarriedRef, Options, SnapshotError, Sparse, TreePath, io};
use crate::worktree::git::Git;

/// Left by an interrupted [`super::result::apply()`]: never part of a tree.
pub(super) const STAGE_PATTERN: &str = "/.laneyard-apply-*\n";

/// A work tree or a plain directory.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) root: PathBuf,
    /// Its place for the project's name: worktrees of one repository share it.
    pub(super) place: PathBuf,
    pub(super) format: ObjectFormat,
    pub(super) repository: Option<Repository>,
    /// How file modes and names are to be taken here.
    pub(super) settings: Vec<(String, String)>,
    pub(super) sparse: Option<Sparse>,
    pub(super) excludes: String,
}

#[derive(Debug)]
pub(super) struct Repository {
    pub(super) git_dir: PathBuf,
    pub(super) common: PathBuf,
    pub(super) base: Option<Oid>,
    pub(super) branch: Option<String>,
}

impl Source {
    /// The repository around `dir`, or `dir` alone.
    pub(super) async fn locate(git: &Git, dir: &Path) -> Result<Self, SnapshotError> {
        let dir = dir.canonicalize().map_err(io(dir))?;
        let marked = dir.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
        let located = match (git.locate(&dir).await?, marked) {
            (Ok(located), _) => located,
            (Err(reason), Some(path)) => return Err(SnapshotError::Unresolvable { path: path.to_owned(), reason }),
            (Err(_), None) => return Self::plain(git, &dir).await,
        };
        let (true, Some(top)) = (located.inside_work_tree, located.top) else {
            return Err(SnapshotError::InsideGitDirectory { path: dir });
        };
        let root = top.canonicalize().map_err(io(&top))?;
        if marked.is_some_and(|marked| marked != root) || !dir.starts_with(&root) {
            let reason = format!("its configuration claims `{}` as the work tree's top", root.display());
            return Err(SnapshotError::Unresolvable { path: dir, reason });
        }
        let (format, base, branch, config, global) = tokio::join!(
            line(git, &root, &["rev-parse", "--show-object-format"]),
            line(git, &root, &["rev-parse", "--quiet", "--verify", "HEAD^{commit}"]),
            line(git, &root, &["symbolic-ref", "--quiet", "HEAD"]),
            settings(git, &root),
            global_excludes(git, &root),
        );
        let format = ObjectFormat::parse(format?.as_deref().unwrap_or("sha1").as_bytes())?;
        let base = base?.map(|text| text.parse()).transpose()?;
        let mut config = config?;
        let named = config.remove("core.excludesfile").map(PathBuf::from);
        let sparse = sparse(&mut config, &located.git_dir);
        let mut excludes = named.or(global).map(|path| read_text(&path)).unwrap_or_default();
        excludes.push_str(&read_text(&located.common.join("info/exclude")));
        excludes.push_str(STAGE_PATTERN);
        let repository = Repository { git_dir: located.git_dir, common: located.common.clone(), base, branch: branch? };
        let place = located.common;
        let settings = config.into_iter().collect();
        Ok(Self { root, place, format, repository: Some(repository), settings, sparse, excludes })
    }

    async fn plain(git: &Git, dir: &Path) -> Result<Self, SnapshotError> {
        let mut excludes = global_excludes(git, dir).await.map(|path| read_text(&path)).unwrap_or_default();
        excludes.push_str(STAGE_PATTERN);
        Ok(Self {
            root: dir.to_owned(),
            place: dir.to_owned(),
            format: ObjectFormat::Sha1,
            repository: None,
            settings: Vec::new(),
            sparse: None,
            excludes,
        })
    }

    /// Leaves out what is asked to be left out.
    pub(super) fn hide(&mut self, options: &Options) {
        self.excludes.push_str(&options.excludes);
        for path in &options.hidden {
            if let Some(below) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) {
                self.excludes.push_str(&exactly(below, ("", "")));
                // What is renamed over it is written beside it first.
                self.excludes.push_str(&exactly(below, (".", ".*.tmp")));
            }
        }
    }

    pub(super) fn objects(&self) -> Option<PathBuf> {
        self.repository.as_ref().map(|repository| repository.common.join("objects"))
    }

    pub(super) fn index(&self) -> Option<PathBuf> {
        self.repository.as_ref().map(|repository| repository.git_dir.join("index")).filter(|path| path.exists())
    }

    /// Entries that are not checked out; whole directories of a sparse index end in `/`.
    pub(super) async fn skipped(&self, git: &Git) -> Result<BTreeSet<Vec<u8>>, SnapshotError> {
        let Some(path) = self.index() else { return Ok(BTreeSet::new()) };
        let (index, _) = Index::parse(&std::fs::read(&path).map_err(io(&path))?, self.format)?;
        if index.split {
            // Most entries are in another file, and only Git knows which of them still count.
            let args = ["ls-files", "-t", "-z"].map(OsStr::new);
            let answer = git.run(&self.root, &args, &[]).await?;
            let skipped = split(&answer.stdout).filter_map(|line| line.strip_prefix(b"S "));
            return Ok(skipped.map(<[u8]>::to_vec).collect());
        }
        Ok(index.entries.into_iter().filter(|entry| entry.skip).map(|entry| entry.path).collect())
    }

    /// Where `dir` is below the top.
    pub(super) fn below_root(&self, dir: &Path) -> Result<Option<TreePath>, SnapshotError> {
        let dir = dir.canonicalize().map_err(io(dir))?;
        let below = dir.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(below.as_os_str());
        if bytes.is_empty() { Ok(None) } else { Ok(Some(TreePath::parse(bytes)?)) }
    }

    /// The base branch as remote and local refs name it, the current branch and its upstream, and what was asked for.
    pub(super) async fn refs(&self, git: &Git, options: &Options) -> Result<Vec<CarriedRef>, SnapshotError> {
        let missing = |name: &String| SnapshotError::NoRef { name: name.clone(), path: self.root.clone() };
        let Some(repository) = &self.repository else {
            return options.required.first().map_or_else(|| Ok(Vec::new()), |name| Err(missing(name)));
        };
        let format =
            "--format=%(refname)%00%(objectname)%00%(*objectname)%00%(objecttype)%00%(symref)%00%(upstream)%00";
        let mut args = vec!["for-each-ref", format, "refs/remotes/origin", "refs/heads/main", "refs/heads/master"];
        args.extend(repository.branch.as_deref());
        let asked = options.refs.iter().chain(&options.required);
        args.extend(asked.clone().map(String::as_str).filter(|name| name.starts_with("refs/")));
        let args: Vec<&OsStr> = args.into_iter().map(OsStr::new).collect();
        let answer = git.run(&self.root, &args, &[]).await?;
        let text = String::from_utf8_lossy(&answer.stdout);
        let mut all = BTreeMap::new();
        let (mut wanted, mut default): (Vec<String>, _) = (asked.cloned().collect(), None);
        for line in text.split('\n') {
            let fields: Vec<&str> = line.split('\0').collect();
            let [name, object, peeled, kind, symref, upstream, ..] = fields[..] else { continue };
            if name == "refs/remotes/origin/HEAD" {
                default = Some(symref.to_owned());
            }
            if repository.branch.as_deref() == Some(name) {
                wanted.extend([name.to_owned(), upstream.to_owned()]);
            }
            // Annotated tags travel as the commit they name.
            let commit = if kind == "commit" { object } else { peeled };
            if let Ok(commit) = commit.parse::<Oid>() {
                all.insert(name.to_owned(), commit);
            }
        }
        match &default {
            Some(name) => {
                let local = name.rsplit('/').next().unwrap_or_default();
                wanted.extend([name.clone(), format!("refs/heads/{local}")]);
            }
            None => wanted.extend(
                ["refs/heads/main", "refs/heads/master", "refs/remotes/origin/main", "refs/remotes/origin/master"]
                    .map(str::to_owned),
            ),
        }
        if let Some(name) = options.required.iter().find(|name| !all.contains_key(*name)) {
            return Err(missing(name));
        }
        Ok(all
            .into_iter()
            .filter(|(name, _)| wanted.contains(name))
            .map(|(name, commit)| CarriedRef { name, commit })
            .collect())
    }
}

/// The pattern of one path below the top, its name between two pieces of a pattern; none when no pattern can say it.
fn exactly(below: &str, (before, after): (&str, &str)) -> String {
    if below.is_empty() || below.contains(['\n', '\r']) {
        return String::new();
    }
    let (parent, name) = below.rsplit_once('/').map_or(("", below), |(parent, name)| (parent, name));
    let quoted = |text: &str| {
        let letters = text.chars().flat_map(|letter| {
            let special = "\\*?[]! #".contains(letter);
            special.then_some('\\').into_iter().chain(std::iter::once(letter))
        });
        letters.collect::<String>()
    };
    let joint = if parent.is_empty() { "" } else { "/" };
    format!("/{}{joint}{before}{}{after}\n", quoted(parent), quoted(name))
}

/// One line that git prints, none when it says no.
async fn line(git: &Git, dir: &Path, args: &[&str]) -> Result<Option<String>, SnapshotError> {
    let args: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
    let answer = git.run(dir, &args, &[]).await?;
    let text = String::from_utf8_lossy(&answer.stdout).trim_end_matches('\n').to_owned();
    Ok(Some(text).filter(|text| answer.success && !text.is_empty()))
}

const READ: &str =
    r"^core\.(filemode|symlinks|ignorecase|precomposeunicode|sparsecheckout|sparsecheckoutcone|excludesfile)$";

async fn settings(git: &Git, dir: &Path) -> Result<BTreeMap<String, String>, SnapshotError> {
    let args = ["config", "-z", "--get-regexp", READ].map(OsStr::new);
    let answer = git.run(dir, &args, &[]).await?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    Ok(text
        .split('\0')
        .filter_map(|entry| entry.split_once('\n'))
        .map(|(key, value)| (key.to_lowercase(), value.to_owned()))
        .collect())
}

/// The file of patterns that this user ignores everywhere.
async fn global_excludes(git: &Git, dir: &Path) -> Option<PathBuf> {
    let home = std::env::var_os("HOME")?;
    let args = ["config", "--global", "--includes", "--type=path", "--get", "core.excludesFile"].map(OsStr::new);
    let mut command = git.command(dir, &args, &[]);
    command.env_remove("GIT_CONFIG_GLOBAL").env("HOME", &home);
    let default = match std::env::var_os("XDG_CONFIG_HOME") {
        Some(base) => {
            command.env("XDG_CONFIG_HOME", &base);
            PathBuf::from(base)
        }
        None => PathBuf::from(home).join(".config"),
    };
    command.stdin(std::process::Stdio::null());
    let output = tokio::time::timeout(std::time::Duration::from_secs(20), command.output()).await.ok()?.ok()?;
    let named = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    if output.status.success() && !named.is_empty() {
        return Some(PathBuf::from(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(named)));
    }
    Some(default.join("git/ignore"))
}

fn sparse(config: &mut BTreeMap<String, String>, git_dir: &Path) -> Option<Sparse> {
    let on = |value: Option<String>| value.is_some_and(|value| matches!(&*value, "true" | "yes" | "on" | "1"));
    let (used, cone) = (on(config.remove("core.sparsecheckout")), on(config.remove("core.sparsecheckoutcone")));
    let patterns = read_text(&git_dir.join("info/sparse-checkout"));
    used.then_some(Sparse { cone, patterns })
}

/// A file of patterns, ending with a line feed; empty when there is none.
fn read_text(path: &Path) -> String {
    let mut text = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
