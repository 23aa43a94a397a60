//! The working directory on its way to the controller, before anything is submitted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::assignment::{Assignment, CallerPaths};
use agent::config::Config;
use agent::ids::AttemptId;
use agent::shuttle::{Route, Shuttle, ShuttleError};
use agent::snapshot::transfer::Parcel;
use agent::snapshot::{Cache, Options, Snapshot, SnapshotError, Unseen, take_and_tell};
use agent::wire::error::code::STORAGE_FULL;
use agent::wire::snapshot::SnapshotRef;
use agent::worktree::git::Git;
use agent::worktree::{WorktreeError, usable_inside};

use crate::cli::output::{Meter, Talk};
use crate::client::Client;

/// Without any progress for so long the upload is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// The working directory cannot travel.
#[derive(Debug, thiserror::Error)]
pub enum TravelError {
    #[error(transparent)]
    Place(#[from] WorktreeError),
    #[error("the working directory cannot travel: {0}")]
    Snapshot(#[from] SnapshotError),
    #[error("the working directory did not get to the controller, nothing was started: {0}")]
    Send(#[from] ShuttleError),
    #[error(
        "laneyard's own state `{}` is private and would travel with `{}`: give the lane a directory of its own, or keep the \
         state elsewhere with --state-dir",
        state.display(), root.display()
    )]
    State { root: PathBuf, state: PathBuf },
    #[error("`{}` is not UTF-8: a lane elsewhere cannot stand at this path", path.display())]
    Name { path: PathBuf },
}

impl TravelError {
    /// The controller has no room for it now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Send(error) if error.code() == Some(STORAGE_FULL))
    }
}

/// The client's own store of objects, beside its other state.
///
/// # Errors
/// It cannot be made.
pub fn cache(config: &Config) -> Result<Cache, SnapshotError> {
    Cache::open(&config.state_dir.join("snapshots"), config.snapshot.cache, &Git::new())
}

/// Our own state must not be in what travels: its keys would leave this machine, and it changes while it is read.
///
/// # Errors
/// It is in there.
pub fn check_state(config: &Config, cwd: &Path) -> Result<(), TravelError> {
    let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    let root = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()).unwrap_or(&cwd);
    // It need not be there yet.
    let state = config.state_dir.ancestors().find_map(|above| {
        let below = config.state_dir.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(below))
    });
    let state = state.unwrap_or_else(|| config.state_dir.clone());
    if state.starts_with(root) || root.starts_with(&state) {
        return Err(TravelError::State { root: root.to_owned(), state });
    }
    Ok(())
}

/// Takes the snapshot, with the `required` refs, and sends what the controller lacks of it. A writer's stays pinned here until its result is settled.
///
/// # Errors
/// See [`TravelError`]; nothing is left but what makes a later try shorter.
pub async fn send(
    config: &Config,
    client: &Client,
    assignment: &Assignment,
    required: &[String],
    talk: Talk,
) -> Result<SnapshotRef, TravelError> {
    let cwd = assignment.paths.real_cwd();
    usable_inside(&cwd)?;
    let cache = cache(config)?;
    let options = Options {
        refs: config.snapshot.refs.clone(),
        required: required.to_vec(),
        lfs: config.snapshot.lfs,
        hidden: hidden(&assignment.paths),
        ..Options::default()
    };
    let taken = take_and_tell(&cache, &cwd, &options, &|again| talk.insist(&again.to_string())).await?;
    let snapshot = &taken.snapshot;
    let root = top(&cwd, snapshot);
    usable_inside(&root)?;
    let name = root.into_os_string().into_string().map_err(|path| TravelError::Name { path: path.into() })?;
    let reference = SnapshotRef {
        project: snapshot.project.clone(),
        format: snapshot.format,
        id: snapshot.id()?.clone(),
        root: name,
    };
    for unseen in snapshot.summary.unseen.iter().take(5) {
        talk.say(&words(unseen));
    }
    let shuttle = Shuttle { transport: client.transport().clone(), route: Route::snapshots(), patience: PATIENCE };
    let meter = Meter::new("sending the working directory", talk);
    let line = meter.clone();
    let tell = Arc::new(move |far| line.show(far));
    let parcel = Parcel::snapshot(snapshot)?;
    let sent = shuttle.send(&taken.lease, &parcel, config.snapshot.history, &(tell as _)).await;
    meter.clear();
    let bytes = sent?;
    if assignment.mode.writes() {
        taken.lease.pin(&assignment.attempt.to_string())?;
    }
    talk.say(&format!("snapshot {} sent: {}", reference.id, bytesize::ByteSize(bytes)));
    Ok(reference)
}

/// The attempt needs nothing of this machine's store any more.
pub fn let_go(config: &Config, attempt: AttemptId, snapshot: &SnapshotRef) {
    let freed = cache(config).and_then(|cache| {
        cache.unpin(&snapshot.project, &attempt.to_string())?;
        cache.evict()
    });
    if let Err(error) = freed {
        tracing::warn!(%error, "the store of snapshots could not be cut to its size");
    }
}

fn top(cwd: &Path, snapshot: &Snapshot) -> PathBuf {
    let below = snapshot.cwd.as_ref().map_or(0, |below| below.as_path().components().count());
    cwd.ancestors().nth(below).unwrap_or(cwd).to_owned()
}

/// The lane's own files: reserved by now, and no part of the directory even when they are in it.
fn hidden(paths: &CallerPaths) -> Vec<PathBuf> {
    let progress = paths.progress.iter().filter_map(|path| {
        let path = Path::new(path);
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    });
    let fixed = [&paths.canonical.output, &paths.canonical.receipt].map(PathBuf::from);
    fixed.into_iter().chain(progress).collect()
}

fn words(unseen: &Unseen) -> String {
    match unseen {
        Unseen::Unreadable { path } => format!("`{path}` cannot be read and does not travel"),
        Unseen::Special { path } => format!("`{path}` is a FIFO, a socket or a device and does not travel"),
        Unseen::Name { name } => format!("`{name}` leads through Git's own directory and does not travel"),
        Unseen::Submodule { path } => format!("submodule `{path}` is not checked out and does not travel"),
        Unseen::LfsContent { path } => format!("the content of `{path}` is not here: its pointer travels"),
        Unseen::OutsideSparse { files } => format!("{files} files outside the sparse checkout do not travel"),
        Unseen::Conflicts => "the index has conflicts: the lane sees the files, and nothing as staged".to_owned(),
    }
}
