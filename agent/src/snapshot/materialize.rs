//! A snapshot as a worktree with a Git directory of its own: history from the cache, no remote, no hook, no credential.

use std::path::{Path, PathBuf};

use super::beneath::Root;
use super::cache::Lease;
use super::oid::Oid;
use super::program::{Repo, write_git_dir};
use super::transfer::shallow_of;
use super::{Snapshot, SnapshotError, TreePath, blocking, io};

/// Where the files go.
#[derive(Clone, Debug)]
pub struct Place {
    /// Does not exist yet, or is empty. Absolute.
    pub work_tree: PathBuf,
    /// What the lane must not reach: indexes to compare with afterwards. Absolute, not below `work_tree`.
    pub private: PathBuf,
    /// Who the files belong to; none: whoever runs this.
    pub owner: Option<Owner>,
}

/// User and group of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// A worktree made from a snapshot. Can be made again from the two paths after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    pub root: PathBuf,
    pub private: PathBuf,
}

impl Worktree {
    /// The index that the files of the top (0) or a nested repository (1 and on) were written with.
    pub(super) fn index(&self, number: usize) -> PathBuf {
        self.private.join(format!("index-{number}"))
    }
}

/// Writes the snapshot's files. The caller has pinned the project: the worktree borrows the cache's objects.
///
/// # Errors
/// The place is taken, the disk refuses, or the snapshot is not complete here.
pub async fn materialize(lease: &Lease, snapshot: &Snapshot, place: &Place) -> Result<Worktree, SnapshotError> {
    std::fs::create_dir_all(&place.work_tree).map_err(io(&place.work_tree))?;
    let root = place.work_tree.canonicalize().map_err(io(&place.work_tree))?;
    if std::fs::read_dir(&root).map_err(io(&root))?.next().is_some() {
        return Err(SnapshotError::NotFresh { path: root });
    }
    std::fs::create_dir_all(&place.private).map_err(io(&place.private))?;
    let worktree = Worktree { root: root.clone(), private: place.private.canonicalize().map_err(io(&place.private))? };
    let scratch = worktree.private.join("checkout.git");
    write_git_dir(&scratch, snapshot.format, "")?;
    let mut repo = Repo::bare(&lease.repo().git, &scratch);
    repo.objects = Some(lease.objects());
    let mut top = repo.clone();
    if let Some(sparse) = &snapshot.sparse {
        std::fs::write(scratch.join("info/sparse-checkout"), &sparse.patterns).map_err(io(&scratch))?;
        top.settings.push(("core.sparseCheckout".to_owned(), "true".to_owned()));
        top.settings.push(("core.sparseCheckoutCone".to_owned(), sparse.cone.to_string()));
    }
    check_out(&top, &root, &worktree.index(0), &snapshot.content.tree).await?;
    for (number, nested) in snapshot.content.nested.iter().enumerate() {
        make_directory(&root, &nested.path)?;
        check_out(&repo, &nested.path.under(&root), &worktree.index(number + 1), &nested.tree).await?;
    }
    for empty in &snapshot.content.empty_directories {
        make_directory(&root, empty)?;
    }
    if let Some(owner) = place.owner {
        let all = root.clone();
        blocking(move || give(&all, owner)).await?;
    }
    git_directory(lease, snapshot, &worktree).await?;
    if let Some(owner) = place.owner {
        let git_dir = root.join(".git");
        blocking(move || give(&git_dir, owner)).await?;
    }
    Ok(worktree)
}

async fn check_out(repo: &Repo, work_tree: &Path, index: &Path, tree: &Oid) -> Result<(), SnapshotError> {
    let mut repo = repo.with_index(index);
    repo.work_tree = Some(work_tree.to_owned());
    repo.ask(&["read-tree", "--reset", "-u", tree.as_str()], b"").await?;
    Ok(())
}

/// A snapshot comes from elsewhere: a link in it must not lead its directories out.
fn make_directory(root: &Path, path: &TreePath) -> Result<(), SnapshotError> {
    let made = Root::open(root).and_then(|root| root.directory(path, true));
    made.map(drop).map_err(|errno| io(path.under(root))(errno.into()))
}

/// Changes the owner of everything in a directory that nobody else writes yet; links themselves, not what they name.
fn give(dir: &Path, owner: Owner) -> Result<(), SnapshotError> {
    let own = |path: &Path| std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid)).map_err(io(path));
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        own(&dir)?;
        for entry in std::fs::read_dir(&dir).map_err(io(&dir))? {
            let entry = entry.map_err(io(&dir))?;
            if entry.file_type().map_err(io(entry.path()))?.is_dir() {
                open.push(entry.path());
            } else {
                own(&entry.path())?;
            }
        }
    }
    Ok(())
}

/// The lane's own `.git`.
async fn git_directory(lease: &Lease, snapshot: &Snapshot, worktree: &Worktree) -> Result<(), SnapshotError> {
    let dir = worktree.root.join(".git");
    for part in ["refs/heads", "info", "objects/pack", "objects/info"] {
        let part = dir.join(part);
        std::fs::create_dir_all(&part).map_err(io(part))?;
    }
    let mut config = snapshot.format.config(false);
    config.push_str("[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n");
    if let Some(sparse) = &snapshot.sparse {
        config.push_str(&format!("[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = {}\n", sparse.cone));
        std::fs::write(dir.join("info/sparse-checkout"), &sparse.patterns).map_err(io(&dir))?;
    }
    let alternates = [std::os::unix::ffi::OsStrExt::as_bytes(lease.objects().as_os_str()), b"\n"].concat();
    let files: [(&str, Vec<u8>); 4] = [
        ("HEAD", b"ref: refs/heads/laneyard-none\n".to_vec()),
        ("config", config.into_bytes()),
        ("info/exclude", snapshot.excludes.clone().into_bytes()),
        ("objects/info/alternates", alternates),
    ];
    for (name, bytes) in files {
        std::fs::write(dir.join(name), bytes).map_err(io(dir.join(name)))?;
    }
    let shallow: String = shallow_of(&lease.git_dir()).iter().map(|oid| format!("{oid}\n")).collect();
    if !shallow.is_empty() {
        std::fs::write(dir.join("shallow"), shallow).map_err(io(&dir))?;
    }
    std::fs::copy(worktree.index(0), dir.join("index")).map_err(io(&dir))?;
    let mut repo = Repo::bare(&lease.repo().git, &dir);
    repo.work_tree = Some(worktree.root.clone());
    heads(&repo, snapshot).await?;
    // Keeps what the checkout knows of every file that is as staged; then Git looks at the others.
    match snapshot.index.as_ref().or(snapshot.base.as_ref()) {
        Some(staged) => repo.ask(&["read-tree", "-m", staged.as_str()], b"").await?,
        None => repo.ask(&["read-tree", "--empty"], b"").await?,
    };
    repo.settings.push(("index.skipHash".to_owned(), "false".to_owned()));
    let args = ["update-index", "-q", "--refresh", "--force-write-index"];
    let refreshed = repo.run(&args, b"").await?;
    // 1: something differs from what is staged, as it does for the user.
    if refreshed.code > 1 { Err(repo.failed(&args, refreshed.stderr)) } else { Ok(()) }
}

async fn heads(repo: &Repo, snapshot: &Snapshot) -> Result<(), SnapshotError> {
    // The record comes from elsewhere, and these become lines of a command.
    let good = |name: &str| name.starts_with("refs/") && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    let names = snapshot.refs.iter().map(|carried| &carried.name).chain(&snapshot.branch);
    if let Some(name) = names.into_iter().find(|name| !good(name)) {
        return Err(SnapshotError::Damaged { what: "a ref's name", detail: name.escape_debug().to_string() });
    }
    let mut updates: String =
        snapshot.refs.iter().map(|carried| format!("update {} {}\n", carried.name, carried.commit)).collect();
    match (&snapshot.branch, &snapshot.base) {
        (Some(branch), base) => {
            repo.ask(&["symbolic-ref", "HEAD", branch], b"").await?;
            if let Some(base) = base.as_ref().filter(|_| !snapshot.refs.iter().any(|carried| carried.name == *branch)) {
                updates.push_str(&format!("update {branch} {base}\n"));
            }
        }
        (None, Some(base)) => updates.push_str(&format!("option no-deref\nupdate HEAD {base}\n")),
        (None, None) => {}
    }
    repo.ask(&["update-ref", "--stdin"], updates.as_bytes()).await?;
    Ok(())
}
