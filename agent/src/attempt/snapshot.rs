//! The attempt's own worktree: its snapshot is fetched from the controller into this worker's cache, and its files written
//! into a directory of the attempt. Each step may be cut off at any moment; the next driver goes on from what is there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Deps;
use super::directory::AttemptDir;
use super::journal::Entry;
use super::record::Record;
use super::site::{SiteError, other};
use super::transfer::told;
use crate::assignment::Assignment;
use crate::descriptor::Mode;
use crate::event::Phase;
use crate::ids::Generation;
use crate::shuttle::{Route, Shuttle};
use crate::snapshot::{Cache, Lease, Place, ProjectId, Snapshot, SnapshotError, Worktree, materialize};
use crate::transport::Transport;
use crate::wire::snapshot::SnapshotRef;
use crate::worktree::{self, Elsewhere, WorktreePlan};

/// Without any progress for so long the snapshot is given up; a cancel or the deadline may come before.
const PATIENCE: Duration = Duration::from_secs(1800);
/// What is not in the snapshot is named in the receipt up to so many times.
const NAMED: usize = 20;
/// Writing so many files takes long enough to be told.
const MANY: u64 = 10_000;
/// The worktree and what was made for it, in the attempt's directory.
const WORKTREE: &str = "worktree";
const PRIVATE: &str = "worktree.private";
/// The pack that was being fetched.
const TICKET: &str = "worktree.ticket";
/// What is known of the worktree, for later drivers and for whoever removes it.
const NOTE: &str = "worktree.json";

/// How a worker gets snapshots and brings results.
#[derive(Debug)]
pub struct Supply {
    /// The controller.
    pub transport: Transport,
    /// What this worker has already.
    pub cache: Cache,
}

/// What was made of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Note {
    /// Its project in this worker's cache.
    pub(super) project: ProjectId,
    /// Bytes that had to be fetched for it.
    fetched: u64,
}

impl Note {
    pub(super) fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join(NOTE)).ok()?).ok()
    }
}

/// The worktree of an attempt, wherever it is in its life.
pub(super) fn worktree_of(dir: &AttemptDir) -> Worktree {
    Worktree { root: dir.file(WORKTREE), private: dir.file(PRIVATE) }
}

/// Everything of a worktree in an attempt's directory.
pub(super) fn parts(dir: &Path) -> [PathBuf; 4] {
    [WORKTREE, PRIVATE, TICKET, NOTE].map(|name| dir.join(name))
}

/// The cache's project of a snapshot that was fetched, and its record.
pub(super) async fn open(
    deps: &Deps,
    dir: &AttemptDir,
    wanted: &SnapshotRef,
) -> Result<Option<(Lease, Snapshot)>, SnapshotError> {
    let (Some(supply), Some(note)) = (&deps.supply, Note::read(dir.path())) else { return Ok(None) };
    let lease = supply.cache.lease(&note.project, wanted.format)?;
    let snapshot = Snapshot::load(&lease, &wanted.id).await?;
    Ok(Some((lease, snapshot)))
}

/// Makes the worktree, or finds the one that was made, and plans its mounts. The facts are the receipt's `worktree`.
pub(super) async fn plan(
    deps: &Deps,
    generation: Generation,
    assignment: &Assignment,
    record: &mut Record,
    wanted: &SnapshotRef,
) -> Result<(WorktreePlan, Map<String, Value>), SiteError> {
    let (root, cwd) = (PathBuf::from(&wanted.root), assignment.paths.real_cwd());
    worktree::usable_inside(&root).map_err(|error| other(&error))?;
    if !record.standing().materialized {
        let (lease, fetched) = fetch(deps, generation, assignment, record, wanted).await?;
        let snapshot = Snapshot::load(&lease, &wanted.id).await.map_err(|error| other(&error))?;
        record.enter(Entry::Materializing)?;
        if snapshot.summary.files > MANY {
            record.note(Phase::Preparing, format!("writing the worktree, {} files", snapshot.summary.files));
        }
        write(&lease, &snapshot, record.dir()).await?;
        let note = Note { project: lease.project().clone(), fetched };
        // The written worktree outlives a power cut, and so must this.
        record.dir().write_durably(NOTE, json!(note).to_string().as_bytes())?;
        record.enter(Entry::Materialized)?;
    }
    let gone =
        || SiteError::Other { message: "the attempt's snapshot is not in this worker's cache".to_owned(), code: None };
    let (lease, snapshot) = open(deps, record.dir(), wanted).await.map_err(|error| other(&error))?.ok_or_else(gone)?;
    let place = Elsewhere { source: &record.dir().file(WORKTREE), objects: &lease.objects(), root: &root, cwd: &cwd };
    let plan = worktree::plan_elsewhere(&place, assignment.mode).map_err(|error| other(&error))?;
    let fetched = Note::read(record.dir().path()).map_or(0, |note| note.fetched);
    Ok((plan, facts(assignment, wanted, &snapshot, fetched)))
}

/// Brings what this worker lacks. The project is pinned for the attempt before anything arrives.
async fn fetch(
    deps: &Deps,
    generation: Generation,
    assignment: &Assignment,
    record: &mut Record,
    wanted: &SnapshotRef,
) -> Result<(Lease, u64), SiteError> {
    let Some(supply) = &deps.supply else {
        let message = "this process has no way to the controller that keeps the attempt's snapshot: let `laneyard-agent \
                       run` finish it";
        return Err(SiteError::Other { message: message.to_owned(), code: None });
    };
    let route = Route::of_worker(&deps.worker, "snapshot", assignment.attempt, generation);
    let shuttle = Shuttle { transport: supply.transport.clone(), route, patience: PATIENCE };
    let failed = |error: &dyn std::error::Error| match other(error) {
        SiteError::Other { message, code } => {
            SiteError::Other { message: format!("the snapshot could not be fetched: {message}"), code }
        }
        none => none,
    };
    let offer = shuttle.offered().await.map_err(|error| failed(&error))?;
    if !offer.want.contains(&wanted.id) || offer.format != wanted.format {
        let message = "the controller offers another snapshot than the assignment names".to_owned();
        return Err(SiteError::Other { message, code: None });
    }
    record.enter(Entry::Fetching { project: offer.project.clone() })?;
    let (cache, project, format) = (supply.cache.clone(), offer.project.clone(), offer.format);
    let holder = assignment.attempt.to_string();
    let lease = crate::snapshot::blocking(move || {
        let lease = cache.lease(&project, format)?;
        lease.pin(&holder)?;
        Ok(lease)
    });
    let lease = lease.await.map_err(|error| failed(&error))?;
    let ticket = record.dir().file(TICKET);
    let bringing = |tell| async move {
        let fetched = shuttle.bring(&lease, &offer, Some(&ticket), &tell).await;
        fetched.map(|fetched| (lease, fetched))
    };
    let brought = told(record, Phase::Preparing, "fetching the snapshot", bringing).await;
    let (lease, fetched) = brought.map_err(|error| failed(&error))?;
    evict(supply);
    Ok((lease, fetched))
}

/// Cuts the cache to its size; nobody waits for it.
fn evict(supply: &Supply) {
    let cache = supply.cache.clone();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = cache.evict() {
            tracing::warn!(%error, "the cache of snapshots could not be cut to its size");
        }
    });
}

/// Writes the files, after what a killed driver may have left.
async fn write(lease: &Lease, snapshot: &Snapshot, dir: &AttemptDir) -> Result<(), SiteError> {
    let (work_tree, private) = (dir.file(WORKTREE), dir.file(PRIVATE));
    for left in [&work_tree, &private] {
        super::kept::remove_tree(left)?;
    }
    let place = Place { work_tree, private, owner: None };
    materialize(lease, snapshot, &place).await.map_err(|error| other(&error))?;
    Ok(())
}

fn facts(assignment: &Assignment, wanted: &SnapshotRef, snapshot: &Snapshot, fetched: u64) -> Map<String, Value> {
    let access = if assignment.mode == Mode::IsolatedWrite { "read-write" } else { "read-only" };
    let summary = &snapshot.summary;
    let worktree = json!({
        "kind": "snapshot",
        "snapshot": wanted.id,
        "path": wanted.root,
        "base": snapshot.base,
        "access": access,
        "gitMetadata": "read-only",
        "files": summary.files,
        "bytes": summary.bytes,
        "fetchedBytes": fetched,
        "lfs": snapshot.lfs,
        "unseen": summary.unseen.iter().take(NAMED).collect::<Vec<_>>(),
        "unseenInAll": summary.unseen.len(),
    });
    Map::from_iter([("worktree".to_owned(), worktree)])
}
