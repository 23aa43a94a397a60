//! A result onto the user's dedicated worktree: only when nothing moved since the snapshot, all of it or nothing.

use std::collections::BTreeSet;
use std::fs::TryLockError;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::empty::made_by_cli;
use super::stage::{Stage, recover};
use super::{Change, Entry, FileMode, Finding, ResultTree, compare};
use crate::snapshot::cache::Cache;
use crate::snapshot::program::Repo;
use crate::snapshot::source::Source;
use crate::snapshot::{Content, Oid, Options, Snapshot, SnapshotError, TreePath, blocking, io, take};

/// How it went. Except for `Applied`, no file was changed.
#[derive(Debug)]
pub enum Outcome {
    /// So many paths are as in the result now; 0 when they were already.
    Applied { paths: usize },
    /// These are not as they were when the snapshot was taken (`HEAD` for the commit). The result stays an artifact.
    Moved { which: Vec<String> },
    /// The result has things that are never applied. It stays an artifact.
    Refused { why: Vec<Finding> },
}

/// An application of the same project by another process is waited for so long.
const OTHERS: Duration = Duration::from_secs(600);
/// How often it is looked whether that one has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Applies `result` to the worktree around `dir`. Ends an interrupted application there first, and waits for one that goes on.
///
/// # Errors
/// The worktree cannot be read or written; then too every file is as before.
pub async fn apply(
    cache: &Cache,
    dir: &Path,
    snapshot: &Snapshot,
    result: &ResultTree,
) -> Result<Outcome, SnapshotError> {
    let why: Vec<Finding> = result.findings.iter().filter(|finding| finding.refuses()).cloned().collect();
    if !why.is_empty() {
        return Ok(Outcome::Refused { why });
    }
    let source = Source::locate(cache.git(), dir).await?;
    // The project is named by the repository, or by the place of a plain directory.
    if cache.project_at(&source.place)? != snapshot.project {
        return Err(SnapshotError::Elsewhere { path: source.root });
    }
    let root = source.root.clone();
    let lease = cache.lease(&snapshot.project, snapshot.format)?;
    let _alone = alone(lease.dir()).await?;
    let top = root.clone();
    blocking(move || recover(&top)).await?;
    let refs = snapshot.refs.iter().map(|carried| carried.name.clone()).collect();
    // What was left out of the snapshot is nothing that could have moved.
    let excludes = snapshot.excludes.clone();
    let options = Options { lfs: snapshot.lfs, refs, excludes, ..Options::default() };
    let taken = take::take(cache, &root, &options).await?;
    let mut now = taken.snapshot;
    // The caller's own CLI makes it too, whenever it likes.
    now.content.empty_directories.retain(|path| !made_by_cli(snapshot, path));
    if same(&now.content, &result.content) {
        return Ok(Outcome::Applied { paths: 0 });
    }
    let repo = taken.lease.repo();
    let mut which = Vec::new();
    if now.base != snapshot.base {
        which.push("HEAD".to_owned());
    }
    if !same(&now.content, &snapshot.content) {
        let (changes, _) = compare::changes(&repo, &snapshot.content, &now.content).await?;
        which.extend(changes.iter().map(|change| change.path.to_string()));
        let (old, new) = (&snapshot.content.empty_directories, &now.content.empty_directories);
        let differing =
            old.iter().filter(|path| !new.contains(path)).chain(new.iter().filter(|path| !old.contains(path)));
        which.extend(differing.map(|path| format!("{path}/")));
    }
    if !which.is_empty() {
        return Ok(Outcome::Moved { which });
    }
    let mut changes = result.changes.clone();
    if source.sparse.is_some() {
        let top = root.clone();
        let skipped = source.skipped(cache.git()).await?;
        changes = blocking(move || Ok(not_there(&top, &skipped, changes))).await?;
    }
    write(&repo, &root, snapshot, result, changes).await
}

/// One application of a project at a time: a command and the process that finishes what a killed client left may want the same.
async fn alone(dir: &Path) -> Result<std::fs::File, SnapshotError> {
    let path = dir.join("apply.lock");
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(&path).map_err(io(&path))?;
    let began = tokio::time::Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if began.elapsed() < OTHERS => tokio::time::sleep(LOOK).await,
            Err(error) => return Err(io(path)(error.into())),
        }
    }
}

/// What a sparse checkout leaves away is not there to be replaced: the lane's file is a new one for the disk.
fn not_there(root: &Path, skipped: &BTreeSet<Vec<u8>>, mut changes: Vec<Change>) -> Vec<Change> {
    for change in changes.iter_mut().filter(|change| change.after.is_some()) {
        let above = change.path.parents().map(|parent| [parent.as_bytes(), b"/"].concat());
        let outside = std::iter::once(change.path.as_bytes().to_vec()).chain(above).any(|path| skipped.contains(&path));
        let there = change.path.under(root).symlink_metadata().is_ok();
        if outside && !there {
            change.before = None;
        }
    }
    changes
}

/// Nested repositories are listed in the order they were found.
fn same(left: &Content, right: &Content) -> bool {
    let sorted = |content: &Content| {
        let nested: BTreeSet<(TreePath, Oid)> =
            content.nested.iter().map(|nested| (nested.path.clone(), nested.tree.clone())).collect();
        (nested, content.empty_directories.iter().cloned().collect::<BTreeSet<_>>())
    };
    left.tree == right.tree && sorted(left) == sorted(right)
}

async fn write(
    repo: &Repo,
    root: &Path,
    snapshot: &Snapshot,
    result: &ResultTree,
    changes: Vec<Change>,
) -> Result<Outcome, SnapshotError> {
    let top = root.to_owned();
    let mut stage = blocking(move || Stage::make(&top)).await?;
    if let Err(error) = write_new(repo, root, &stage, &changes).await {
        // Nothing has moved yet.
        blocking(move || stage.finish()).await?;
        return Err(error);
    }
    let (removed, empty) = directories(root, snapshot, result);
    let cleared = {
        let changes = changes.clone();
        blocking(move || {
            let cleared = stage.arm(&changes, removed, empty).and_then(|()| stage.clear());
            Ok((stage, cleared))
        })
        .await?
    };
    let (stage, cleared) = cleared;
    let checked = match cleared {
        Ok(()) => check_old(repo, &stage, &changes).await,
        Err(error) => Err(error),
    };
    let ended = blocking(move || match checked.and_then(|()| stage.fill()) {
        Ok(()) => stage.finish(),
        Err(error) => {
            stage.undo()?;
            Err(error)
        }
    });
    match ended.await {
        Ok(()) => Ok(Outcome::Applied { paths: changes.len() }),
        Err(SnapshotError::Changed { paths }) => {
            Ok(Outcome::Moved { which: paths.iter().map(ToString::to_string).collect() })
        }
        Err(error) => Err(error),
    }
}

/// Directories that may go (inner first) and that must be there empty.
fn directories(root: &Path, snapshot: &Snapshot, result: &ResultTree) -> (Vec<TreePath>, Vec<TreePath>) {
    let empty = &result.content.empty_directories;
    let kept: BTreeSet<TreePath> =
        empty.iter().flat_map(|path| std::iter::once(path.clone()).chain(path.parents())).collect();
    let gone = result.changes.iter().filter(|change| change.after.is_none()).flat_map(|change| change.path.parents());
    let hollow = snapshot.content.empty_directories.iter().filter(|path| !empty.contains(path));
    let hollow = hollow.flat_map(|path| std::iter::once(path.clone()).chain(path.parents()));
    let removed: BTreeSet<TreePath> = gone.chain(hollow).filter(|path| !kept.contains(path)).collect();
    let there = |path: &TreePath| path.under(root).symlink_metadata().is_ok_and(|meta| meta.is_dir());
    (removed.into_iter().rev().filter(there).collect(), empty.clone())
}

/// Writes every new file beside, with the mode it will have.
async fn write_new(repo: &Repo, root: &Path, stage: &Stage, changes: &[Change]) -> Result<(), SnapshotError> {
    let wanted: Vec<(usize, &Entry, Option<u32>)> = changes
        .iter()
        .enumerate()
        .filter_map(|(number, change)| {
            let after = change.after.as_ref()?;
            let meta = change.path.under(root).symlink_metadata().ok().filter(std::fs::Metadata::is_file);
            Some((number, after, meta.map(|meta| meta.permissions().mode() & 0o777)))
        })
        .collect();
    let args = ["cat-file", "--batch"].map(std::ffi::OsStr::new);
    let mut command = repo.command(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(io("git"))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let listing: String = wanted.iter().map(|(_, entry, _)| format!("{}\n", entry.blob)).collect();
    let feed = async {
        if let Some(mut input) = input {
            let _ = input.write_all(listing.as_bytes()).await;
        }
    };
    let read = async {
        let Some(output) = output else { return Ok(()) };
        let mut output = BufReader::new(output);
        for (number, entry, old_mode) in &wanted {
            let mut header = String::new();
            output.read_line(&mut header).await.map_err(io("git"))?;
            let size = header.trim_end().split_once(" blob ").and_then(|(_, size)| size.parse().ok());
            let Some(size) = size else { return Err(SnapshotError::Damaged { what: "the result", detail: header }) };
            write_one(&mut output, size, &stage.new_file(*number), entry.mode, *old_mode).await?;
            let mut end = [0];
            output.read_exact(&mut end).await.map_err(io("git"))?;
        }
        Ok(())
    };
    let ((), written) = tokio::join!(feed, read);
    written
}

async fn write_one(
    from: &mut (impl AsyncReadExt + Unpin),
    size: u64,
    to: &Path,
    mode: FileMode,
    old_mode: Option<u32>,
) -> Result<(), SnapshotError> {
    if mode == FileMode::Link {
        let mut target = Vec::new();
        from.take(size).read_to_end(&mut target).await.map_err(io("git"))?;
        return std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&target), to).map_err(io(to));
    }
    let executable = mode == FileMode::Executable;
    let fresh = if executable { 0o777 } else { 0o666 };
    let file = std::fs::File::options().write(true).create_new(true).mode(fresh).open(to).map_err(io(to))?;
    if let Some(old) = old_mode {
        // What the user allows others stays; whoever may read may execute.
        let mode = (old & !0o111) | if executable { (old & 0o444) >> 2 } else { 0 };
        file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(io(to))?;
    }
    let mut file = tokio::fs::File::from_std(file);
    let copied = tokio::io::copy(&mut from.take(size), &mut file).await.map_err(io(to))?;
    file.sync_data().await.map_err(io(to))?;
    if copied == size { Ok(()) } else { Err(io(to)(std::io::ErrorKind::UnexpectedEof.into())) }
}

/// What moved aside must be what the snapshot had: nobody wrote between the check and the move.
async fn check_old(repo: &Repo, stage: &Stage, changes: &[Change]) -> Result<(), SnapshotError> {
    let moved = |change: &Change| SnapshotError::Changed { paths: vec![change.path.clone()] };
    let mut files: Vec<(&Change, &Oid, PathBuf)> = Vec::new();
    for (number, change) in changes.iter().enumerate() {
        let Some(before) = &change.before else { continue };
        let path = stage.old_file(number);
        let meta = path.symlink_metadata().map_err(io(&path))?;
        if before.mode == FileMode::Link {
            let target = std::fs::read_link(&path).map_err(|_| moved(change))?;
            let blob = repo.ask(&["hash-object", "--stdin"], target.as_os_str().as_bytes()).await?;
            if Oid::answer(&blob)? != before.blob {
                return Err(moved(change));
            }
        } else if meta.is_file() {
            files.push((change, &before.blob, path));
        } else {
            return Err(moved(change));
        }
    }
    // Our own names: no line feed, and the root was resolved.
    let stdin: Vec<u8> = files.iter().flat_map(|(_, _, path)| [path.as_os_str().as_bytes(), b"\n"].concat()).collect();
    let text = repo.ask(&["hash-object", "--no-filters", "--stdin-paths"], &stdin).await?;
    let text = String::from_utf8_lossy(&text);
    let mut found = text.lines();
    for (change, blob, _) in files {
        if found.next() != Some(blob.as_str()) {
            return Err(moved(change));
        }
    }
    Ok(())
}
