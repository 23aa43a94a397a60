//! The end of an attempt's surroundings: nothing of it keeps running, and the receipt says so because we looked.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Deps;
use super::kept;
use super::place::Place;
use super::record::Record;
use super::site::Written;
use super::stop::describe;
use crate::assignment::Assignment;
use crate::container::cgroup::Cgroup;
use crate::container::teardown::{Teardown, remove_proven};
use crate::container::{ContainerId, Engine, prepare};
use crate::egress;
use crate::supervisor::TreeEnd;

/// What is left of a lane gets so long between TERM and KILL.
const GRACE: Duration = Duration::from_millis(500);

/// What a driven attempt leaves to be ended and looked at.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) place: Option<Place>,
    pub(super) written: Option<Written>,
}

/// Ends the egress proxy and the container, takes the output of an answered lane away (that of a failed one is kept until
/// retention takes it), and gives the receipt's facts about it: `egress` and `teardown`.
pub(super) async fn tear_down(deps: &Deps, assignment: &Assignment, record: &Record, left: Left) -> Map<String, Value> {
    let Left { place, written } = left;
    let (proof, (), ()) =
        tokio::join!(end_container(deps, assignment, record, place), end_proxy(record), remove_spool(record));
    let mut facts = Map::new();
    if let Some(written) = written {
        // Nobody writes any more: what is there now is what the lane left.
        let finding = written.finding().await;
        facts.insert("ownership".to_owned(), finding.map_or_else(|| json!("as the worktree"), |found| json!(found)));
    } else if assignment.mode.writes() && assignment.snapshot.is_none() && record.standing().workload_intended {
        facts.insert("ownership".to_owned(), json!("not checked: taken over after the start"));
    }
    facts.insert("egress".to_owned(), egress_facts(record));
    facts.insert("teardown".to_owned(), proof);
    facts
}

/// Removes the files that only a running attempt needs.
pub(super) fn remove_private(deps: &Deps, assignment: &Assignment, record: &Record) {
    let dir = record.dir();
    if assignment.snapshot.is_some()
        && let Err(error) = settle_worktree(deps, assignment, record)
    {
        tracing::warn!(attempt = %dir.attempt(), %error, "the worktree could not be removed");
    }
    prepare::sweep_mounts(dir.path());
    if let Err(error) = dir.remove_run() {
        tracing::warn!(attempt = %dir.attempt(), %error, "the socket directory could not be removed");
    }
    let _ = std::fs::remove_file(dir.file("token"));
}

/// A delivered answer stands in its own file: nobody reads the output again. It goes while the engine is busy.
async fn remove_spool(record: &Record) {
    if !record.standing().judged.as_ref().is_some_and(|judged| judged.status.delivered()) {
        return;
    }
    let spool = record.dir().file("spool");
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(spool)).await;
    if let Err(error) = removed.map_err(std::io::Error::other).and_then(|removed| removed)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(attempt = %record.dir().attempt(), %error, "the spools could not be removed");
    }
}

/// A reader's worktree goes, as does a writer's whose result is at the controller. What a failed writer left stays, and so
/// does what nobody else has, such as content that no result carries.
fn settle_worktree(deps: &Deps, assignment: &Assignment, record: &Record) -> std::io::Result<()> {
    let (dir, standing) = (record.dir(), record.standing());
    let delivered = standing.judged.as_ref().is_some_and(|judged| judged.status.delivered());
    let worked = assignment.mode.writes() && standing.workload_intended && standing.materialized;
    let whole = standing.collected.as_ref().is_some_and(|collected| !collected.leaves_some);
    if worked && !(delivered && standing.result_kept && whole) {
        return kept::keep(dir.path(), standing.result_kept);
    }
    kept::remove(dir.path(), deps.supply.as_ref().map(|supply| &supply.cache), dir.attempt())
}

async fn end_container(deps: &Deps, assignment: &Assignment, record: &Record, place: Option<Place>) -> Value {
    let mut tree = None;
    let mut health = None;
    let found: Option<(Engine, ContainerId, Option<Cgroup>)> = match place {
        Some(mut place) => {
            tree = place.kill_tree(GRACE).await;
            health = Some(place.health());
            place.shut_down().await;
            place.engine().let_end(place.container(), GRACE).await;
            Some((place.engine().clone(), place.container().clone(), place.cgroup().cloned()))
        }
        None => match find_left(deps, assignment, record).await {
            Ok(found) => found,
            // Nobody looked, so nothing is proven.
            Err(error) => {
                return json!({"container": record.standing().container_name, "removed": false, "error": describe(&*error)});
            }
        },
    };
    match found {
        None if record.standing().container_name.is_some() => json!({"container": "absent", "removed": true}),
        None => json!({"container": null, "removed": true}),
        Some((engine, id, cgroup)) => {
            let proof = remove_proven(&engine, &id, cgroup.as_ref()).await;
            let mut value = proof_value(&proof, tree);
            if let (Some(health), Some(object)) = (health, value.as_object_mut()) {
                object.insert("orphansReaped".to_owned(), json!(health.orphans_reaped));
                object.insert("zombies".to_owned(), json!(health.zombies));
            }
            value
        }
    }
}

fn proof_value(proof: &Teardown, tree: Option<TreeEnd>) -> Value {
    let mut value = json!(proof);
    if let (Some(tree), Some(object)) = (tree, value.as_object_mut()) {
        let killed = json!({"found": tree.found, "killed": tree.killed, "left": tree.left});
        object.insert("descendants".to_owned(), killed);
    }
    value
}

/// A container of the attempt that an earlier driver made and this one never opened.
///
/// # Errors
/// The engine cannot be asked.
async fn find_left(
    deps: &Deps,
    assignment: &Assignment,
    record: &Record,
) -> Result<Option<(Engine, ContainerId, Option<Cgroup>)>, Box<dyn std::error::Error + Send + Sync>> {
    if record.standing().container_name.is_none() {
        return Ok(None);
    }
    let engine = deps.engine.of(record.standing().engine.as_ref()).await?;
    let owner = deps.state.owner()?;
    let found = engine.list(&owner).await?;
    let Some(ours) = found.into_iter().find(|found| found.labels.attempt == assignment.attempt) else {
        return Ok(None);
    };
    // The kernel's list of its processes can only be found while its first one lives.
    let first = engine.inspect(&ours.id).await.ok().and_then(|inspection| inspection.state.pid());
    let cgroup = first.and_then(|pid| Cgroup::of(pid, &ours.id));
    Ok(Some((engine, ours.id, cgroup)))
}

async fn end_proxy(record: &Record) {
    if let Some(proxy) = egress::find(record.dir().run())
        && let Err(error) = proxy.stop(GRACE).await
    {
        tracing::warn!(attempt = %record.dir().attempt(), %error, "the egress proxy did not end");
    }
}

fn egress_facts(record: &Record) -> Value {
    let path = record.dir().file("egress.jsonl");
    if !path.exists() {
        return Value::Null;
    }
    match egress::summary(&path) {
        Ok(summary) => json!(summary),
        Err(error) => json!({"unreadable": error.to_string()}),
    }
}
