//! The snapshot of a working directory.

use std::path::{Path, PathBuf};

use super::cache::{Cache, Lease, write_beside};
use super::oid::Oid;
use super::program::Repo;
use super::scan::{Again, Ground, Scan, scan};
use super::scratch::adopt;
use super::source::Source;
use super::{Content, Nested, Options, Snapshot, SnapshotError, Summary, TreePath, Unseen, blocking, io, lfs};

/// New objects until the snapshot is whole, in the private directory: of one that failed nothing stays.
const OBJECTS: &str = "objects";

/// A snapshot and the store that holds its objects.
#[derive(Debug)]
pub struct Taken {
    pub snapshot: Snapshot,
    pub lease: Lease,
}

/// Reads the working directory around `dir` as it is: tracked files and untracked ones that are not ignored. The repository's
/// index, objects, refs and configuration are only read; new objects go into `cache`.
///
/// # Errors
/// No repository that Git understands, files that keep changing, a disk that refuses.
pub async fn take(cache: &Cache, dir: &Path, options: &Options) -> Result<Taken, SnapshotError> {
    take_and_tell(cache, dir, options, &|_| {}).await
}

/// The same; `tell` hears of files that changed meanwhile and are read again.
///
/// # Errors
/// As [`take`].
pub async fn take_and_tell(
    cache: &Cache,
    dir: &Path,
    options: &Options,
    tell: &(dyn Fn(Again) + Send + Sync),
) -> Result<Taken, SnapshotError> {
    let git = cache.git();
    let mut source = Source::locate(git, dir).await?;
    source.hide(options);
    let mut lease = cache.lease(&cache.project_at(&source.place)?, source.format)?;
    let scratch = lease.scratch()?;
    let objects = scratch.path().join(OBJECTS);
    std::fs::create_dir(&objects).map_err(io(&objects))?;
    let (sources, index) = (Vec::new(), None);
    let mut walk = Walk { lease: &lease, options, scratch: scratch.path().to_owned(), sources, count: 0, index, tell };
    walk.sources.extend(source.objects());
    let staged = staged(&source, &lease, scratch.path());
    let refs = source.refs(git, options);
    let (top, staged, refs) = tokio::join!(walk.scan(&source, None), staged, refs);
    let (mut top, (index, conflicts)) = (top?, staged?);
    let mut summary = Summary { unseen: std::mem::take(&mut top.unseen), ..Summary::default() };
    (summary.files, summary.bytes) = top.sizes();
    if conflicts {
        summary.unseen.push(Unseen::Conflicts);
    }
    let mut content = Content { tree: top.tree, nested: Vec::new(), empty_directories: top.empty };
    for path in top.nested {
        Box::pin(walk.nested(path, &source.root, &mut content, &mut summary)).await?;
    }
    let repository = source.repository.as_ref();
    let mut snapshot = Snapshot {
        id: None,
        project: lease.project().clone(),
        format: source.format,
        base: repository.and_then(|repository| repository.base.clone()),
        branch: repository.and_then(|repository| repository.branch.clone()),
        cwd: source.below_root(dir)?,
        content,
        index,
        refs: refs?,
        sparse: source.sparse.clone(),
        lfs: options.lfs,
        excludes: source.excludes.clone(),
        summary,
    };
    let (sources, index, store) = (walk.sources, walk.index, lease.objects());
    blocking(move || {
        adopt(&objects, &store)?;
        // It names objects that are there now.
        index.map_or(Ok(()), |(from, to)| keep_index(&from, &to))
    })
    .await?;
    lease.lean_on(&sources)?;
    summary_of_pointers(&mut snapshot, top.pointers);
    let id = seal(&lease.repo(), &snapshot).await?;
    snapshot.id = Some(id);
    Ok(Taken { snapshot, lease })
}

fn summary_of_pointers(snapshot: &mut Snapshot, (count, unseen): (u64, Vec<Unseen>)) {
    snapshot.summary.lfs_pointers += count;
    snapshot.summary.unseen.extend(unseen);
}

/// One directory and what is nested in it.
struct Walk<'a> {
    lease: &'a Lease,
    options: &'a Options,
    scratch: PathBuf,
    sources: Vec<PathBuf>,
    count: u32,
    /// The index of a plain directory, and where it is kept.
    index: Option<(PathBuf, PathBuf)>,
    tell: &'a (dyn Fn(Again) + Send + Sync),
}

struct Found {
    tree: Oid,
    nested: Vec<TreePath>,
    empty: Vec<TreePath>,
    unseen: Vec<Unseen>,
    pointers: (u64, Vec<Unseen>),
    sizes: (u64, u64),
}

impl Found {
    const fn sizes(&self) -> (u64, u64) {
        self.sizes
    }
}

impl Walk<'_> {
    /// The top, or what is nested at `path`.
    async fn scan(&mut self, source: &Source, path: Option<&TreePath>) -> Result<Found, SnapshotError> {
        self.count += 1;
        let plain = source.repository.is_none();
        // A plain directory has no index of its own: ours saves reading every file again.
        let kept = self.lease.dir().join("plain.index");
        let start =
            if plain { Some(kept.clone()).filter(|path| self.count == 1 && path.exists()) } else { source.index() };
        let ground = Ground {
            git: self.lease.repo().git,
            root: source.root.clone(),
            scratch: self.scratch.join(format!("scan-{}", self.count)),
            format: source.format,
            objects: self.scratch.join(OBJECTS),
            kept: Some(self.lease.objects()),
            first: self.count == 1,
            alternates: self.sources.clone(),
            settings: source.settings.clone(),
            start,
            excludes: source.excludes.clone(),
            sparse: source.sparse.clone(),
            forget_ignored: plain,
            attempts: self.options.attempts,
        };
        let named = |paths: Vec<TreePath>| match path {
            Some(above) => paths.into_iter().map(|path| path.below(above)).collect(),
            None => paths,
        };
        let tell = |again: Again| (self.tell)(Again { paths: named(again.paths) });
        let mut scan = scan(&ground, &tell).await.map_err(|error| match error {
            SnapshotError::Changed { paths } => SnapshotError::Changed { paths: named(paths) },
            error => error,
        })?;
        if plain && self.count == 1 {
            self.index = Some((ground.scratch.join("index"), kept));
        }
        let pointers = lfs::settle(source, &mut scan, self.options.lfs).await?;
        let sizes = scan.sizes();
        let Scan { tree, nested, empty, unseen, .. } = scan;
        Ok(Found { tree, nested, empty, unseen, pointers, sizes })
    }

    async fn nested(
        &mut self,
        path: TreePath,
        above: &Path,
        content: &mut Content,
        summary: &mut Summary,
    ) -> Result<(), SnapshotError> {
        let dir = path.under(above);
        let git = self.lease.repo().git;
        let mut source = Source::locate(&git, &dir).await?;
        if source.root != dir.canonicalize().map_err(io(&dir))? {
            // Files in a submodule's place that is no repository (any more): taken as they are.
            source = Source { root: dir.clone(), repository: None, settings: Vec::new(), sparse: None, ..source };
        }
        if source.format != self.lease.format() {
            summary.unseen.push(Unseen::Submodule { path });
            return Ok(());
        }
        source.hide(self.options);
        self.sources.extend(source.objects());
        let found = self.scan(&source, Some(&path)).await?;
        summary.submodules += 1;
        summary.files += found.sizes.0;
        summary.bytes += found.sizes.1;
        summary.lfs_pointers += found.pointers.0;
        let unseen = found.unseen.into_iter().chain(found.pointers.1);
        summary.unseen.extend(unseen.map(|unseen| unseen.below(&path)));
        content.nested.push(Nested { path: path.clone(), tree: found.tree });
        content.empty_directories.extend(found.empty.iter().map(|empty| empty.below(&path)));
        for inner in found.nested {
            let inner = inner.below(&path);
            Box::pin(self.nested(inner, above, content, summary)).await?;
        }
        Ok(())
    }
}

impl Unseen {
    pub(super) fn below(self, prefix: &TreePath) -> Self {
        match self {
            Self::Unreadable { path } => Self::Unreadable { path: path.below(prefix) },
            Self::Special { path } => Self::Special { path: path.below(prefix) },
            Self::Submodule { path } => Self::Submodule { path: path.below(prefix) },
            Self::LfsContent { path } => Self::LfsContent { path: path.below(prefix) },
            Self::Name { name } => Self::Name { name: format!("{prefix}/{name}") },
            other @ (Self::OutsideSparse { .. } | Self::Conflicts) => other,
        }
    }
}

/// What is staged, as a tree; and whether there are conflicts.
async fn staged(source: &Source, lease: &Lease, scratch: &Path) -> Result<(Option<Oid>, bool), SnapshotError> {
    let Some(index) = source.index() else { return Ok((None, false)) };
    let dir = scratch.join("staged");
    let (format, from) = (source.format, dir.clone());
    blocking(move || {
        super::program::write_git_dir(&from, format, "")?;
        std::fs::copy(&index, from.join("index")).map_err(io(&index))?;
        let parent = index.parent().unwrap_or(Path::new("/"));
        for entry in std::fs::read_dir(parent).map_err(io(parent))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("sharedindex.") {
                std::fs::copy(entry.path(), from.join(entry.file_name())).map_err(io(entry.path()))?;
            }
        }
        Ok(())
    })
    .await?;
    let repo = Repo {
        index: Some(dir.join("index")),
        objects: Some(scratch.join(OBJECTS)),
        kept: Some(lease.objects()),
        git_dir: dir,
        ..lease.repo().reading(&source.objects().into_iter().collect::<Vec<_>>())
    };
    if source.sparse.is_some() {
        repo.rewrite_index().await?;
    }
    let written = repo.write_tree().await?;
    if written.code == 0 {
        return Ok((Some(Oid::answer(&written.stdout)?), false));
    }
    let unmerged = repo.ask(&["ls-files", "-z", "--unmerged"], b"").await?;
    if unmerged.is_empty() { Err(repo.failed(&["write-tree"], written.stderr)) } else { Ok((None, true)) }
}

/// Keeps the index of a plain directory, with its time.
fn keep_index(from: &Path, to: &Path) -> Result<(), SnapshotError> {
    let Ok(modified) = from.metadata().and_then(|meta| meta.modified()) else { return Ok(()) };
    let bytes = std::fs::read(from).map_err(io(from))?;
    // Older than it is would make Git look twice; younger would make it trust what it should not.
    write_beside(to, &bytes)?;
    let file = std::fs::File::options().write(true).open(to).map_err(io(to))?;
    file.set_modified(modified).map_err(io(to))
}

/// Writes the carrier: a commit on top of the base, whose tree has everything and whose message is the record.
async fn seal(repo: &Repo, snapshot: &Snapshot) -> Result<Oid, SnapshotError> {
    let record = serde_json::to_string(snapshot)
        .map_err(|error| SnapshotError::Damaged { what: "the snapshot", detail: error.to_string() })?;
    let mut parts = vec![("files".to_owned(), &snapshot.content.tree)];
    parts.extend(snapshot.index.iter().map(|index| ("index".to_owned(), index)));
    let nested = snapshot.content.nested.iter().enumerate();
    parts.extend(nested.map(|(at, nested)| (format!("nested-{at}"), &nested.tree)));
    carrier(repo, &parts, snapshot.base.as_ref(), &record).await
}

/// A commit that says the same on every machine.
pub(super) async fn carrier(
    repo: &Repo,
    parts: &[(String, &Oid)],
    parent: Option<&Oid>,
    record: &str,
) -> Result<Oid, SnapshotError> {
    // The user's objects may have parts of it, and are not to be touched.
    let repo = repo.writing();
    let listing: String = parts.iter().map(|(name, tree)| format!("040000 tree {tree}\t{name}\0")).collect();
    let tree = Oid::answer(&repo.ask(&["mktree", "-z", "--missing"], listing.as_bytes()).await?)?;
    let parent = parent.map(|parent| format!("parent {parent}\n")).unwrap_or_default();
    let who = "laneyard <laneyard@localhost> 0 +0000";
    let text = format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\n{record}\n");
    Oid::answer(&repo.ask(&["hash-object", "-t", "commit", "-w", "--stdin"], text.as_bytes()).await?)
}

/// The record in a carrier.
pub(super) async fn record(repo: &Repo, id: &Oid) -> Result<String, SnapshotError> {
    let text = repo.ask(&["cat-file", "commit", id.as_str()], b"").await?;
    let text = String::from_utf8(text).map_err(|_| SnapshotError::NoSnapshot { id: id.clone() })?;
    match text.split_once("\n\n") {
        Some((_, record)) => Ok(record.to_owned()),
        None => Err(SnapshotError::NoSnapshot { id: id.clone() }),
    }
}

impl Snapshot {
    /// Reads a snapshot that was received: its record is covered by its name.
    ///
    /// # Errors
    /// It is not there, or is none.
    pub async fn load(lease: &Lease, id: &Oid) -> Result<Self, SnapshotError> {
        let record = record(&lease.repo(), id).await?;
        let read: Self = serde_json::from_str(&record).map_err(|_| SnapshotError::NoSnapshot { id: id.clone() })?;
        Ok(Self { id: Some(id.clone()), ..read })
    }
}
