//! A directory as a tree. The index is a copy, objects go into our own store, and the directory is only read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::index::{GITLINK, Index};
use super::oid::{ObjectFormat, Oid};
use super::program::{Output, Repo, write_git_dir};
use super::special::{emptied, is_special, specials};
use super::{SnapshotError, Sparse, TreePath, Unseen, blocking, io, list};
use crate::worktree::git::Git;

/// What is scanned, and with what.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) git: Git,
    pub(super) root: PathBuf,
    /// A private Git directory, made here.
    pub(super) scratch: PathBuf,
    pub(super) format: ObjectFormat,
    /// Where new objects go.
    pub(super) objects: PathBuf,
    /// Our own store, when that is elsewhere.
    pub(super) kept: Option<PathBuf>,
    /// No other scan wrote there before: what only an earlier try of this one read may be removed.
    pub(super) first: bool,
    pub(super) alternates: Vec<PathBuf>,
    pub(super) settings: Vec<(String, String)>,
    /// An index to start from: what it says about unchanged files is not asked again.
    pub(super) start: Option<PathBuf>,
    pub(super) excludes: String,
    pub(super) sparse: Option<Sparse>,
    /// Entries of `start` that are ignored by now are dropped: it was made by an earlier scan, not by a user.
    pub(super) forget_ignored: bool,
    pub(super) attempts: u32,
}

/// What was found. Nested repositories are only named.
pub(super) struct Scan {
    pub(super) tree: Oid,
    pub(super) index: Index,
    /// Directories that are repositories of their own.
    pub(super) nested: Vec<TreePath>,
    pub(super) empty: Vec<TreePath>,
    pub(super) unseen: Vec<Unseen>,
    pub(super) repo: Repo,
}

impl Ground {
    /// Git over this ground, with the index of the scan.
    pub(super) fn repo(&self) -> Repo {
        let mut settings = self.settings.clone();
        if let Some(sparse) = &self.sparse {
            settings.push(("core.sparseCheckout".to_owned(), "true".to_owned()));
            settings.push(("core.sparseCheckoutCone".to_owned(), sparse.cone.to_string()));
        }
        Repo {
            git: self.git.clone(),
            git_dir: self.scratch.clone(),
            work_tree: Some(self.root.clone()),
            index: Some(self.scratch.join("index")),
            objects: Some(self.objects.clone()),
            alternates: self.alternates.clone(),
            kept: self.kept.clone(),
            settings,
        }
    }

    pub(super) fn prepare(&self) -> Result<(), SnapshotError> {
        write_git_dir(&self.scratch, self.format, &self.excludes)?;
        if let Some(sparse) = &self.sparse {
            let path = self.scratch.join("info/sparse-checkout");
            std::fs::write(&path, &sparse.patterns).map_err(io(path))?;
        }
        Ok(())
    }

    /// Copies an index twice, with its time: Git tells by it which entries are too young to be trusted.
    fn copy_index(&self, start: &Path) -> Result<Index, SnapshotError> {
        let error = || io(start.to_owned());
        let modified = start.metadata().and_then(|meta| meta.modified()).map_err(error())?;
        let mut bytes = std::fs::read(start).map_err(error())?;
        let (index, hiding) = Index::parse(&bytes, self.format)?;
        // `assume-unchanged` hides changes from Git; a lane must see the files as they are. Git does not check the sum.
        hiding.into_iter().for_each(|at| bytes[at] &= 0x7f);
        if index.split {
            let parent = start.parent().unwrap_or(Path::new("/"));
            for entry in std::fs::read_dir(parent).map_err(io(parent))?.flatten() {
                if entry.file_name().to_string_lossy().starts_with("sharedindex.") {
                    std::fs::copy(entry.path(), self.scratch.join(entry.file_name())).map_err(io(entry.path()))?;
                }
            }
        }
        for name in ["index", "index.before"] {
            let path = self.scratch.join(name);
            std::fs::write(&path, &bytes).map_err(io(&path))?;
            let file = std::fs::File::options().write(true).open(&path).map_err(io(&path))?;
            file.set_modified(modified).map_err(io(&path))?;
        }
        Ok(index)
    }
}

/// What the user's index says, whole, in copies of ours.
async fn begin(ground: &Ground, repo: &Repo) -> Result<Index, SnapshotError> {
    let copied = ground.clone();
    let index = blocking(move || {
        copied.prepare()?;
        copied.start.as_deref().map_or_else(|| Ok(Index::default()), |start| copied.copy_index(start))
    });
    let index = index.await?;
    if !index.split {
        return Ok(index);
    }
    // Most entries are in another file, and with them what hides changes: Git puts both together, in our copy.
    repo.rewrite_index().await?;
    let (copied, path) = (ground.clone(), ground.scratch.join("index"));
    blocking(move || copied.copy_index(&path)).await
}

/// Files changed while they were read, and are read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// None when some that were listed have gone.
    pub paths: Vec<TreePath>,
}

impl std::fmt::Display for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.paths[..] {
            [] => f.write_str("files vanish while they are read; trying again"),
            paths => write!(f, "files change while they are read: {}; trying again", list(paths)),
        }
    }
}

/// Scans, again when files change meanwhile: `tell` hears of it.
pub(super) async fn scan(ground: &Ground, tell: &(dyn Fn(Again) + Send + Sync)) -> Result<Scan, SnapshotError> {
    let repo = ground.repo();
    let before = begin(ground, &repo).await?;
    if ground.forget_ignored && ground.start.is_some() {
        let ignored = repo.ask(&["ls-files", "-z", "-i", "-c", "--exclude-standard"], b"").await?;
        if !ignored.is_empty() {
            repo.ask(&["update-index", "--force-remove", "-z", "--stdin"], &ignored).await?;
        }
    }
    let before_repo = repo.with_index(&ground.scratch.join("index.before"));
    if ground.sparse.is_some() && ground.start.is_some() && !ground.alternates.is_empty() {
        repo.rewrite_index().await?;
        keep_rules(&repo, &before_repo, ground.format).await?;
    }
    let writer = repo.writing();
    let (mut attempt, mut stale) = (1, BTreeSet::new());
    let (mut index, mut unseen, mut nested, mut hollow) = loop {
        // The tree is walked once: known files are only looked at, and what the walk lists is added afterwards.
        let update = ["add", "--update", "--sparse", "--ignore-errors", "--", "."];
        let (updated, listed) = tokio::join!(
            writer.run(&update, b""),
            before_repo.ask(&["ls-files", "-z", "--others", "--directory", "--exclude-standard"], b""),
        );
        let (updated, mut listed) = (updated?, listed?);
        let (root, path, format) = (ground.root.clone(), ground.scratch.join("index"), ground.format);
        let old = before.entries.clone();
        listed.extend(blocking(move || replaced(&root, &path, format, &old)).await?);
        let added =
            if listed.is_empty() || updated.code > 1 { updated } else { add(&writer, &listed, updated).await? };
        if added.stderr.contains(VANISHED) && attempt < ground.attempts.max(1) {
            attempt += 1;
            tell(Again { paths: Vec::new() });
            continue;
        }
        let left = if added.code == 0 { Vec::new() } else { left_out(&repo).await? };
        let (root, path, format) = (ground.root.clone(), ground.scratch.join("index"), ground.format);
        let old = Index { entries: before.entries.clone(), split: false };
        let looked = blocking(move || look(&root, &path, format, &old, &left)).await?;
        if added.code > 1 && looked.changed.is_empty() && looked.unseen.is_empty() && looked.nested.is_empty() {
            return Err(SnapshotError::Unscannable { detail: added.stderr });
        }
        if looked.changed.is_empty() {
            break (looked.index, looked.unseen, looked.nested, listed);
        }
        if attempt >= ground.attempts.max(1) {
            return Err(SnapshotError::Changed { paths: looked.changed });
        }
        attempt += 1;
        let changed: BTreeSet<&[u8]> = looked.changed.iter().map(TreePath::as_bytes).collect();
        let read = looked.index.entries.iter().filter(|entry| changed.contains(&*entry.path));
        stale.extend(read.map(super::index::Entry::oid));
        tell(Again { paths: looked.changed });
    };
    if ground.first {
        remove_stale(&ground.objects, stale, &index);
    }
    forget_specials(&repo, &unseen).await?;
    let root = ground.root.clone();
    let (old, new) = (before.entries, std::mem::take(&mut index.entries));
    let (candidates, hollow, new) = blocking(move || {
        hollow.extend(emptied(&root, &old, &new));
        Ok((hollows(&root, &hollow), hollow, new))
    })
    .await?;
    index.entries = new;
    let (tree, empty, special) = tokio::join!(
        repo.write_tree(),
        not_ignored(&before_repo, candidates, b"/"),
        specials_of(ground, &before_repo, (&mut index, hollow)),
    );
    let tree = tree?;
    for special in special? {
        if !unseen.contains(&special) {
            unseen.push(special);
        }
    }
    if tree.code != 0 {
        return Err(repo.failed(&["write-tree"], tree.stderr));
    }
    let skipped = index.entries.iter().filter(|entry| entry.skip).count() as u64;
    if skipped > 0 {
        unseen.push(Unseen::OutsideSparse { files: skipped });
    }
    for (path, _) in index.gitlinks()? {
        let dir = path.under(&ground.root);
        let populated = dir.symlink_metadata().is_ok_and(|meta| meta.is_dir())
            && std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
        if populated {
            nested.push(path);
        } else {
            unseen.push(Unseen::Submodule { path });
        }
    }
    Ok(Scan { tree: Oid::answer(&tree.stdout)?, index, nested, empty: empty?, unseen, repo })
}

/// Removes what was read of files that changed then. All else that was written stays: the index names it.
fn remove_stale(objects: &Path, mut stale: BTreeSet<Oid>, index: &Index) {
    if !stale.is_empty() {
        let named: BTreeSet<Oid> = index.entries.iter().map(super::index::Entry::oid).collect();
        stale.retain(|oid| !named.contains(oid));
    }
    for oid in stale {
        let (start, rest) = oid.as_str().split_at(2);
        // Absent when the store had it, or when it is in a pack.
        let _ = std::fs::remove_file(objects.join(start).join(rest));
    }
}

/// Rules of what is ignored that are not on disk are read from objects, even while writing.
async fn keep_rules(repo: &Repo, before: &Repo, format: ObjectFormat) -> Result<(), SnapshotError> {
    let Some(path) = repo.index.clone() else { return Ok(()) };
    let index = blocking(move || Ok(Index::parse(&std::fs::read(&path).map_err(io(&path))?, format)?.0)).await?;
    let rules = |entry: &&super::index::Entry| {
        entry.skip && entry.path.rsplit(|byte| *byte == b'/').next() == Some(b".gitignore")
    };
    let blobs: BTreeSet<Oid> = index.entries.iter().filter(rules).map(super::index::Entry::oid).collect();
    for blob in blobs {
        // A partial clone may not have it: Git would not read it either.
        let text = before.run(&["cat-file", "blob", blob.as_str()], b"").await?;
        if text.code == 0 {
            repo.writing().ask(&["hash-object", "-w", "--stdin"], &text.stdout).await?;
        }
    }
    Ok(())
}

/// What Git says of a path that was listed and is gone.
const VANISHED: &str = "did not match any files";

/// Adds what was listed as untracked, directories as a whole. Gives the worse of two ends.
async fn add(repo: &Repo, listed: &[u8], updated: Output) -> Result<Output, SnapshotError> {
    let paths: Vec<&[u8]> = split(listed).map(|path| path.strip_suffix(b"/").unwrap_or(path)).collect();
    let stdin = [paths.join(&0), vec![0]].concat();
    let args = [
        "--literal-pathspecs",
        "add",
        "--all",
        "--sparse",
        "--ignore-errors",
        "--pathspec-from-file=-",
        "--pathspec-file-nul",
    ];
    let added = repo.run(&args, &stdin).await?;
    Ok(if added.code == 0 { updated } else { added })
}

/// Known files that are directories now: no list of untracked paths names those.
fn replaced(
    root: &Path,
    index: &Path,
    format: ObjectFormat,
    before: &[super::index::Entry],
) -> Result<Vec<u8>, SnapshotError> {
    if before.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = std::fs::read(index).map_err(io(index))?;
    let (now, _) = Index::parse(&bytes, format)?;
    let mut now = now.entries.iter().map(|entry| &entry.path).peekable();
    let mut listed = Vec::new();
    for entry in before.iter().filter(|entry| entry.mode() != GITLINK) {
        while now.next_if(|path| **path < entry.path).is_some() {}
        let gone = now.peek().is_none_or(|path| **path != entry.path);
        // A sparse index names whole directories; those are none of them.
        let path = gone.then(|| TreePath::parse(&entry.path).ok()).flatten();
        if path.is_some_and(|path| path.under(root).symlink_metadata().is_ok_and(|meta| meta.is_dir())) {
            listed.extend([&entry.path, &b"/\0"[..]].concat());
        }
    }
    Ok(listed)
}

/// What Git did not take.
async fn left_out(repo: &Repo) -> Result<Vec<Vec<u8>>, SnapshotError> {
    let text = repo.ask(&["ls-files", "-z", "--others", "--modified", "--exclude-standard"], b"").await?;
    Ok(split(&text).map(<[u8]>::to_vec).collect())
}

pub(super) fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == 0).filter(|part| !part.is_empty())
}

struct Looked {
    index: Index,
    changed: Vec<TreePath>,
    unseen: Vec<Unseen>,
    nested: Vec<TreePath>,
}

/// Compares every file that was just read with the disk, and sorts what was left out.
fn look(
    root: &Path,
    index: &Path,
    format: ObjectFormat,
    before: &Index,
    left: &[Vec<u8>],
) -> Result<Looked, SnapshotError> {
    let index = match std::fs::read(index) {
        Ok(bytes) => Index::parse(&bytes, format)?.0,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Index::default(),
        Err(source) => return Err(SnapshotError::Io { path: index.to_owned(), source }),
    };
    let mut looked = Looked { index: Index::default(), changed: Vec::new(), unseen: Vec::new(), nested: Vec::new() };
    for entry in index.read_since(before) {
        let path = TreePath::parse(&entry.path)?;
        if !path.under(root).symlink_metadata().is_ok_and(|now| entry.is_still(&now)) {
            looked.changed.push(path);
        }
    }
    for bytes in left {
        let directory = bytes.ends_with(b"/");
        let Ok(path) = TreePath::parse(bytes.strip_suffix(b"/").unwrap_or(bytes)) else {
            // A name that some file system takes for `.git`: there is no way to carry it.
            looked.unseen.push(Unseen::Name { name: String::from_utf8_lossy(bytes).into_owned() });
            continue;
        };
        if directory {
            // A repository without a commit: Git cannot even name it.
            looked.nested.push(path);
        } else if is_special(&path.under(root)) {
            // A known file that is none any more. It is not opened: a FIFO would wait for its other end.
            looked.unseen.push(Unseen::Special { path });
        } else if std::fs::File::open(path.under(root)).is_err() {
            looked.unseen.push(Unseen::Unreadable { path });
        } else if !looked.changed.contains(&path) {
            looked.changed.push(path);
        }
    }
    looked.index = index;
    Ok(looked)
}

/// Directories without any file or link below what Git lists as untracked; nested repositories are not entered.
fn hollows(root: &Path, listed: &[u8]) -> Vec<TreePath> {
    let mut found = Vec::new();
    let mut open: Vec<TreePath> = split(listed)
        .filter_map(|path| path.strip_suffix(b"/"))
        .filter_map(|path| TreePath::parse(path).ok())
        .collect();
    while let Some(dir) = open.pop() {
        let absolute = dir.under(root);
        let Ok(entries) = std::fs::read_dir(&absolute) else { continue };
        let entries: Vec<_> = entries.flatten().collect();
        if entries.is_empty() {
            found.push(dir);
            continue;
        }
        if entries.iter().any(|entry| entry.file_name() == ".git") {
            continue;
        }
        for entry in entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name();
            if let Ok(name) = TreePath::parse(std::os::unix::ffi::OsStrExt::as_bytes(&*name)) {
                open.push(name.below(&dir));
            }
        }
    }
    found.sort();
    found
}

/// A known file whose place has a FIFO now is gone; Git would keep the old content.
async fn forget_specials(repo: &Repo, unseen: &[Unseen]) -> Result<(), SnapshotError> {
    let special = unseen.iter().filter_map(|unseen| match unseen {
        Unseen::Special { path } => Some([path.as_bytes(), b"\0"].concat()),
        _ => None,
    });
    let stdin: Vec<u8> = special.flatten().collect();
    if !stdin.is_empty() {
        repo.ask(&["update-index", "--force-remove", "-z", "--stdin"], &stdin).await?;
    }
    Ok(())
}

/// FIFOs and the like that Git does not ignore. The index is only lent to the walk.
async fn specials_of(
    ground: &Ground,
    repo: &Repo,
    (index, listed): (&mut Index, Vec<u8>),
) -> Result<Vec<Unseen>, SnapshotError> {
    let (root, entries) = (ground.root.clone(), std::mem::take(&mut index.entries));
    let walked = blocking(move || Ok((specials(&root, &entries, &listed), entries))).await?;
    let found = walked.0;
    index.entries = walked.1;
    Ok(not_ignored(repo, found, b"").await?.into_iter().map(|path| Unseen::Special { path }).collect())
}

/// `end` is what a path of this kind ends with for Git.
pub(super) async fn not_ignored(
    repo: &Repo,
    candidates: Vec<TreePath>,
    end: &[u8],
) -> Result<Vec<TreePath>, SnapshotError> {
    if candidates.is_empty() {
        return Ok(candidates);
    }
    // Git would take a colon at the beginning for more than a letter, and here cannot be told not to.
    let asked = |path: &TreePath| [b"./", path.as_bytes(), end].concat();
    let stdin: Vec<u8> = candidates.iter().flat_map(|path| [&asked(path)[..], b"\0"].concat()).collect();
    let args = ["check-ignore", "-z", "--stdin", "--no-index"];
    let output = repo.run(&args, &stdin).await?;
    if output.code > 1 {
        return Err(repo.failed(&args, output.stderr));
    }
    let ignored: BTreeSet<&[u8]> = split(&output.stdout).collect();
    Ok(candidates.into_iter().filter(|path| !ignored.contains(&*asked(path))).collect())
}

impl Scan {
    /// Files a lane has on disk, and their bytes as Git knows them.
    pub(super) fn sizes(&self) -> (u64, u64) {
        let files =
            self.index.entries.iter().filter(|entry| !entry.skip && entry.mode() != GITLINK && entry.stage == 0);
        files.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.size()))
    }
}
