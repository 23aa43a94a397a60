//! What a writer left, on its way to the controller: collected once nobody can write any more, sent, and only then told.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Deps;
use super::journal::Entry;
use super::outcome::Judged;
use super::record::Record;
use super::snapshot::{Supply, open, worktree_of};
use super::stop::describe;
use super::transfer::told;
use crate::assignment::Assignment;
use crate::event::Phase;
use crate::ids::{AttemptId, Generation, WorkerId};
use crate::shuttle::{Route, Shuttle, ShuttleError, Tell};
use crate::snapshot::result::{Finding, ResultTree, collect};
use crate::snapshot::transfer::Parcel;
use crate::snapshot::{History, Lease, Oid, Snapshot, SnapshotError};
use crate::transport::Call;
use crate::wire::snapshot::{KeepResult, ResultView, SnapshotRef};

/// Without any progress for so long a delivered result stays on the worker, and the receipt says so.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);
/// The same for the result of a failed or cancelled writer: somebody waits for the end.
const SHORT_PATIENCE: Duration = Duration::from_secs(60);
/// Paths named in the receipt.
const NAMED: usize = 20;

/// A result as the journal and the receipt have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collected {
    /// Name of the result tree.
    pub tree: Oid,
    pub added: usize,
    pub changed: usize,
    pub deleted: usize,
    /// What must never be applied, in words.
    pub refused: Vec<String>,
    /// What could not be read or cannot travel.
    pub unreadable: Vec<String>,
    /// Repositories that the lane made: their files travel, they do not.
    #[serde(default)]
    pub repositories: Vec<String>,
    /// Some content is in the worktree only, which stays for it.
    #[serde(default)]
    pub leaves_some: bool,
    /// The first paths that Git ignores; they are no part of the result.
    #[serde(default)]
    pub ignored: Vec<String>,
    /// How many there are.
    #[serde(default)]
    pub ignored_in_all: usize,
}

impl Collected {
    fn of(result: &ResultTree) -> Self {
        let count = |wanted: fn(bool, bool) -> bool| {
            let matching =
                result.changes.iter().filter(|change| wanted(change.before.is_some(), change.after.is_some()));
            matching.count()
        };
        let made = |finding: &Finding| matches!(finding, Finding::Repository { .. });
        let words = |wanted: &dyn Fn(&Finding) -> bool| {
            let some = result.findings.iter().filter(|finding| wanted(finding));
            some.map(ToString::to_string).collect::<BTreeSet<_>>().into_iter().take(NAMED).collect()
        };
        Self {
            tree: result.id.clone(),
            added: count(|before, after| !before && after),
            changed: count(|before, after| before && after),
            deleted: count(|before, after| before && !after),
            refused: words(&Finding::refuses),
            unreadable: words(&|finding| !finding.refuses() && !made(finding)),
            repositories: words(&made),
            leaves_some: result.leaves_some(),
            ignored: result.ignored.paths.iter().take(NAMED).cloned().collect(),
            ignored_in_all: result.ignored.in_all,
        }
    }

    /// `place` is the worktree on this worker, if it stays.
    fn value(&self, keeper: &str, reason: Option<String>, place: Option<Value>) -> Value {
        let mut value = json!(self);
        if let Some(object) = value.as_object_mut() {
            object.remove("leavesSome");
            object.extend(place.map(|place| ("worktree".to_owned(), place)));
            object.insert("keptBy".to_owned(), json!(keeper));
            object.extend(reason.map(|reason| ("reason".to_owned(), json!(reason))));
        }
        value
    }
}

/// Collects and sends; the receipt's `result`. `None` for an attempt that has none: a reader, one that works on the caller's
/// own files, one whose workload never started. Failing is no reason to lose the receipt: then the worktree stays.
pub(super) async fn bring_home(
    deps: &Deps,
    generation: Generation,
    assignment: &Assignment,
    record: &mut Record,
    judged: &Judged,
) -> Option<Value> {
    let wanted = assignment.snapshot.as_ref()?;
    let standing = record.standing();
    if !assignment.mode.writes() || !standing.workload_intended || !standing.materialized {
        return None;
    }
    let place = json!({"worker": deps.worker, "path": worktree_of(record.dir()).root});
    let patience = if judged.status.delivered() { PATIENCE } else { SHORT_PATIENCE };
    let collected = match &standing.collected {
        Some(collected) => collected.clone(),
        None => match take(deps, record, wanted).await {
            Ok(collected) => collected,
            Err(reason) => return Some(json!({"tree": null, "keptBy": "worker", "reason": reason, "worktree": place})),
        },
    };
    // As `settle_worktree` does it.
    let stays = (!judged.status.delivered() || collected.leaves_some).then(|| place.clone());
    if record.standing().result_kept {
        return Some(collected.value("controller", None, stays));
    }
    match send(deps, generation, assignment, record, (wanted, &collected.tree), patience).await {
        Ok(()) => {
            while let Err(error) = record.enter(Entry::ResultKept) {
                tracing::error!(%error, "the journal could not be written; free space on the worker");
                tokio::time::sleep(super::WRITE_AGAIN).await;
            }
            Some(collected.value("controller", None, stays))
        }
        Err(error) => {
            let reason = describe(&error);
            tracing::error!(attempt = %assignment.attempt, reason, "the result stays on this worker");
            Some(collected.value("worker", Some(reason), Some(place)))
        }
    }
}

async fn take(deps: &Deps, record: &mut Record, wanted: &SnapshotRef) -> Result<Collected, String> {
    let opened = open(deps, record.dir(), wanted).await.map_err(|error| describe(&error))?;
    let (lease, snapshot) = opened.ok_or("this process cannot reach the worker's cache of snapshots")?;
    let result = collect(&lease, &worktree_of(record.dir()), &snapshot).await.map_err(|error| describe(&error))?;
    let collected = Collected::of(&result);
    record.enter(Entry::Collected { collected: Box::new(collected.clone()) }).map_err(|error| describe(&error))?;
    Ok(collected)
}

async fn send(
    deps: &Deps,
    generation: Generation,
    assignment: &Assignment,
    record: &mut Record,
    (wanted, tree): (&SnapshotRef, &Oid),
    patience: Duration,
) -> Result<(), ShuttleError> {
    let damaged = |detail: &str| SnapshotError::Damaged { what: "the worker's cache", detail: detail.to_owned() };
    let supply = deps.supply.as_ref().ok_or_else(|| damaged("this process has no way to the controller"))?;
    let (lease, snapshot) =
        open(deps, record.dir(), wanted).await?.ok_or_else(|| damaged("the attempt's snapshot is not there"))?;
    let result = ResultTree::load(&lease, &snapshot, tree).await?;
    let (under, tree) = ((assignment.attempt, generation), (&lease, &snapshot, &result));
    let sending = |tell| carry(supply, &deps.worker, under, tree, patience, tell);
    told(record, Phase::Settling, "sending the result", sending).await
}

/// Sends a result and has the controller keep it.
pub(super) async fn carry(
    supply: &Supply,
    worker: &WorkerId,
    (attempt, generation): (AttemptId, Generation),
    (lease, snapshot, result): (&Lease, &Snapshot, &ResultTree),
    patience: Duration,
    tell: Tell,
) -> Result<(), ShuttleError> {
    let route = Route::of_worker(worker, "result", attempt, generation);
    let shuttle = Shuttle { transport: supply.transport.clone(), route, patience };
    shuttle.send(lease, &Parcel::result(snapshot, result), History::Full, &tell).await?;
    let keep = KeepResult { result: result.id.clone() };
    shuttle.insist::<ResultView>(|| Call::post(&shuttle.route.at("keep", ""), &keep)).await?;
    Ok(())
}
