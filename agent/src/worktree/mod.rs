//! The working directory of a lane: what it is, what is mounted for it, and what Git is told inside.
//!
//! Order of calls: [`plan`] before the container; [`nonce::Nonce::write`] just before it starts, checked and removed inside
//! preflight; [`ownership`] around a writer's run.

pub mod git; // the user's own git, with every surprise off
mod inside; // what Git is told in the container
pub mod nonce; // is the mount really the user's directory?
pub mod ownership; // does what was written belong to the owner?
mod redact; // secrets in Git's configuration
mod resolve; // kinds of directories

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::container::Finding;
use crate::container::identity::Owner;
use crate::container::spec::{Access, Mount};
use crate::descriptor::Mode;
use git::{Git, GitError};

/// What the working directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Kind {
    /// No repository around it.
    Plain,
    /// The main work tree of a repository, a submodule, or one with a separate Git directory.
    Repository { common: PathBuf },
    /// Made by `git worktree add`.
    Linked { common: PathBuf, git_dir: PathBuf, pointer: Pointer },
}

/// How a linked worktree's `.git` file names its Git directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pointer {
    Absolute,
    Relative,
}

/// Everything the container needs to know about the working directory. All paths are real paths.
#[derive(Clone, Debug)]
pub struct WorktreePlan {
    /// Working directory inside, the same as outside.
    pub cwd: PathBuf,
    /// Where it stands inside: the work tree's top, or the plain directory itself.
    pub root: PathBuf,
    /// What is mounted there: the same path, or the worktree that was made from a snapshot.
    pub source: PathBuf,
    pub kind: Kind,
    pub mode: Mode,
    pub owner: Owner,
    pub mounts: Vec<Mount>,
    /// Variables for every process inside: Git's configuration by environment.
    pub environment: BTreeMap<String, String>,
    pub findings: Vec<Finding>,
}

impl WorktreePlan {
    /// True for a writer.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(self.mode, Mode::IsolatedWrite)
    }

    /// True when the working directory is below the work tree's top.
    #[must_use]
    pub fn is_subdirectory(&self) -> bool {
        self.cwd != self.root
    }
}

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    #[error("working directory `{path}` cannot be opened: name an existing directory with --cwd")]
    Missing { path: PathBuf, source: std::io::Error },
    #[error("working directory `{path}` is not a directory: name one with --cwd")]
    NotDirectory { path: PathBuf },
    #[error("working directory `{path}` cannot be a lane's: {reason}")]
    Refused { path: PathBuf, reason: String },
    #[error("`{path}` is inside Git's own metadata: name the work tree instead")]
    InsideGitDirectory { path: PathBuf },
    #[error("the Git work tree around `{path}` cannot be resolved: {reason} (try `git -C {path} status`, then `git worktree repair`)", path = path.display())]
    Unresolvable { path: PathBuf, reason: String },
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot write `{path}`")]
    Write { path: PathBuf, source: std::io::Error },
}

/// Resolves `cwd` with the user's git and plans its mounts. `private_dir`: a directory of the attempt (0700), for the copies
/// without secrets; `forbidden`: directories that must never be seen by a lane (our state, the engine's storage).
///
/// # Errors
/// The directory cannot be used; nothing was changed outside `private_dir`.
pub async fn plan(
    git: &Git,
    cwd: &Path,
    mode: Mode,
    private_dir: &Path,
    forbidden: &[PathBuf],
) -> Result<WorktreePlan, WorktreeError> {
    let cwd = cwd.canonicalize().map_err(|source| WorktreeError::Missing { path: cwd.to_owned(), source })?;
    if !cwd.is_dir() {
        return Err(WorktreeError::NotDirectory { path: cwd });
    }
    let (place, ahead) = tokio::join!(resolve::locate(git, &cwd), redact::Ahead::read(git, &cwd));
    let place = place?;
    refuse(&cwd, &place.root, forbidden)?;
    let owner = Owner::of(&place.root).map_err(|source| WorktreeError::Missing { path: place.root.clone(), source })?;
    let access = if mode == Mode::IsolatedWrite { Access::ReadWrite } else { Access::ReadOnly };
    let mut findings = place.findings.clone();
    let mut mounts = vec![Mount::same(&place.root, access)];
    mounts.extend(resolve::metadata_mounts(&place, &mut findings));
    if let Some(common) = &place.common {
        mounts.extend(redact::overlays((git, ahead), common, &place, private_dir, &mut findings).await?);
    }
    for mount in &mounts {
        refuse(&mount.source, &mount.source, &exclude_private(forbidden, private_dir, &mount.source))?;
    }
    order(&mut mounts);
    let environment = inside::environment(&place.safe_directories(), &[]);
    let source = place.root.clone();
    Ok(WorktreePlan { cwd, root: place.root, source, kind: place.kind, mode, owner, mounts, environment, findings })
}

/// Where a worktree that was made from a snapshot is seen inside.
#[derive(Clone, Debug)]
pub struct Elsewhere<'a> {
    /// The worktree on this machine, with its own `.git`.
    pub source: &'a Path,
    /// Objects that its `.git` borrows: seen at the same path.
    pub objects: &'a Path,
    /// The work tree's top on the caller's machine.
    pub root: &'a Path,
    /// The working directory there.
    pub cwd: &'a Path,
}

/// Plans the mounts of a worktree that stands at the caller's path inside and elsewhere on this machine. Git's metadata is
/// readable and never writable.
///
/// # Errors
/// The caller's path cannot be used inside.
pub fn plan_elsewhere(place: &Elsewhere<'_>, mode: Mode) -> Result<WorktreePlan, WorktreeError> {
    let Elsewhere { source, objects, root, cwd } = *place;
    usable_inside(root)?;
    if objects.starts_with(root) || root.starts_with(objects) {
        let reason = format!("the worker keeps its objects at `{}`: choose another path for either", objects.display());
        return Err(WorktreeError::Refused { path: root.to_owned(), reason });
    }
    let owner = Owner::of(source).map_err(|error| WorktreeError::Missing { path: source.to_owned(), source: error })?;
    let access = if mode == Mode::IsolatedWrite { Access::ReadWrite } else { Access::ReadOnly };
    let mut mounts = vec![
        Mount { source: source.to_owned(), target: root.to_owned(), access },
        Mount { source: source.join(".git"), target: root.join(".git"), access: Access::ReadOnly },
        Mount::same(objects, Access::ReadOnly),
    ];
    order(&mut mounts);
    // Device, inode and owner of the files are the worker's business and differ from what its index says.
    let environment = inside::environment(&[root.to_owned(), root.join(".git")], &[("core.checkStat", "minimal")]);
    Ok(WorktreePlan {
        cwd: cwd.to_owned(),
        root: root.to_owned(),
        source: source.to_owned(),
        kind: Kind::Repository { common: root.join(".git") },
        mode,
        owner,
        mounts,
        environment,
        findings: Vec::new(),
    })
}

/// Trees whose files are the image's: a directory of the caller's over one of them would hide what the lane needs.
const IMAGE_TREES: &[&str] = &["/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr"];
/// Places below those trees where people do keep files.
const PEOPLE_TREES: &[&str] = &["/usr/src", "/usr/local/src"];

/// Checks that a directory of the caller's can stand at its own path inside a container of another machine.
///
/// # Errors
/// It cannot; the error says why and what to do.
pub fn usable_inside(root: &Path) -> Result<(), WorktreeError> {
    refuse(root, root, &[])?;
    let of_people = PEOPLE_TREES.iter().any(|tree| root.starts_with(tree));
    match IMAGE_TREES.iter().find(|tree| root.starts_with(tree)) {
        Some(tree) if !of_people => {
            let reason = format!("{tree} is the image's own inside the container: move the directory elsewhere");
            Err(WorktreeError::Refused { path: root.to_owned(), reason })
        }
        _ => Ok(()),
    }
}

/// Could `cwd` be a lane's working directory at all? What [`plan`] refuses for its place alone, without asking git.
///
/// # Errors
/// It does not exist, is no directory, is one of the system's, or holds (or is in) a `forbidden` one.
pub fn check_place(cwd: &Path, forbidden: &[PathBuf]) -> Result<(), WorktreeError> {
    let cwd = cwd.canonicalize().map_err(|source| WorktreeError::Missing { path: cwd.to_owned(), source })?;
    if !cwd.is_dir() {
        return Err(WorktreeError::NotDirectory { path: cwd });
    }
    let marked = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
    refuse(&cwd, marked.unwrap_or(&cwd), forbidden)
}

/// Our own copies are in the attempt's private directory, which is in our state: those may be mounted.
fn exclude_private(forbidden: &[PathBuf], private_dir: &Path, source: &Path) -> Vec<PathBuf> {
    let private = private_dir.canonicalize().unwrap_or_else(|_| private_dir.to_owned());
    if source.starts_with(&private) || source.starts_with(private_dir) { Vec::new() } else { forbidden.to_vec() }
}

/// Outer targets first, one mount for one target; what is read-only below a read-only mount of the same tree is not repeated.
fn order(mounts: &mut Vec<Mount>) {
    mounts.sort_by(|left, right| left.target.cmp(&right.target));
    mounts.dedup_by(|later, earlier| later.target == earlier.target);
    let all = mounts.clone();
    mounts.retain(|mount| {
        let parent = all.iter().rfind(|other| other.target != mount.target && mount.target.starts_with(&other.target));
        let Some(parent) = parent else { return true };
        let seen_through = mount.target.strip_prefix(&parent.target).map(|tail| parent.source.join(tail));
        !(parent.access == mount.access && seen_through.is_ok_and(|path| path == mount.source))
    });
}

/// Directories whose mount would hide what the image needs, or that are no directory of a user.
const SYSTEM: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/root/.ssh",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/var",
    "/var/run",
    "/home",
    "/Users",
    "/private",
    "/System",
    "/Library",
    "/lane",
];
/// Whole trees of this kind.
const SYSTEM_TREES: &[&str] = &["/proc", "/sys", "/dev", "/run/laneyard", "/lane"];

fn refuse(path: &Path, root: &Path, forbidden: &[PathBuf]) -> Result<(), WorktreeError> {
    let refused = |reason: String| Err(WorktreeError::Refused { path: path.to_owned(), reason });
    if SYSTEM.iter().any(|system| root == Path::new(system)) {
        return refused("it is a directory of the system: give the lane a directory of its own".to_owned());
    }
    if let Some(tree) = SYSTEM_TREES.iter().find(|tree| root.starts_with(tree)) {
        return refused(format!("{tree} is no place for files: give the lane a directory elsewhere"));
    }
    for private in forbidden {
        let private = private.canonicalize().unwrap_or_else(|_| private.clone());
        if root.starts_with(&private) || private.starts_with(root) {
            return refused(format!("`{}` is private and would be seen by the lane", private.display()));
        }
    }
    Ok(())
}
