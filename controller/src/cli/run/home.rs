//! A writer's result on its way into the caller's worktree, before the receipt is delivered.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::config::Config;
use agent::ids::AttemptId;
use agent::receipt::{FailurePhase, ProviderReport, Receipt, ReceiptError, Status, status_of};
use agent::shuttle::{Route, Shuttle, ShuttleError};
use agent::snapshot::result::{Outcome, ResultTree, apply};
use agent::snapshot::{Cache, Lease, Oid, Snapshot, SnapshotError};
use agent::transport::CallError;
use agent::wire::snapshot::SnapshotRef;
use serde_json::{Value, json};

use super::deliver::{Shut, is_not_for_us};
use super::drive::Ended;
use super::travel::{cache, let_go};
use crate::cli::output::{Meter, Talk, chain};
use crate::cli::record::WorktreeRecord;
use crate::client::Client;

/// Without any progress for so long the result is left at the controller.
const PATIENCE: Duration = Duration::from_secs(120);
/// Paths named in the receipt.
const NAMED: usize = 20;

/// A result cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error(transparent)]
    Send(#[from] ShuttleError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the controller names result {found}, the receipt {expected}")]
    Other { found: String, expected: Oid },
}

impl HomeError {
    /// True if another credential could do what this one could not.
    fn is_of_credential(&self) -> bool {
        match self {
            Self::Send(ShuttleError::Call(error)) | Self::Call(error) => is_not_for_us(error),
            Self::Send(error) => error.is_of_credential(),
            Self::Snapshot(_) | Self::Other { .. } => false,
        }
    }
}

/// A result that is here, with what it started from.
#[derive(Debug)]
pub struct Brought {
    pub cache: Cache,
    pub lease: Lease,
    pub snapshot: Snapshot,
    pub result: ResultTree,
}

/// Brings an attempt's result into this machine's store.
///
/// # Errors
/// See [`HomeError`].
pub async fn bring(
    config: &Config,
    client: &Client,
    attempt: AttemptId,
    wanted: &SnapshotRef,
    tree: &Oid,
    talk: Talk,
) -> Result<Brought, HomeError> {
    let cache = cache(config)?;
    let lease = cache.lease(&wanted.project, wanted.format)?;
    let route = Route::result(attempt);
    let shuttle = Shuttle { transport: client.transport().clone(), route, patience: PATIENCE };
    let offer = shuttle.offered().await?;
    if !offer.want.contains(tree) {
        let found = offer.want.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(HomeError::Other { found, expected: tree.clone() });
    }
    let meter = Meter::new("fetching the result", talk);
    let line = meter.clone();
    let brought = shuttle.bring(&lease, &offer, None, &(Arc::new(move |far| line.show(far)) as _)).await;
    meter.clear();
    brought?;
    let snapshot = Snapshot::load(&lease, &wanted.id).await?;
    let result = ResultTree::load(&lease, &snapshot, tree).await?;
    Ok(Brought { cache, lease, snapshot, result })
}

/// Where the rest of a result is that does not carry everything.
#[must_use]
pub fn rest(attempt: AttemptId) -> String {
    format!(
        "what does not travel stays in the worktree on the worker, `<state-dir>/attempts/{attempt}/worktree` there, until \
         `laneyard result release {attempt}`"
    )
}

/// What can be done with a result that is refused as it is: applying it again changes nothing.
#[must_use]
pub fn not_by_apply(attempt: AttemptId) -> String {
    format!(
        "take what you want by hand from `laneyard result export {attempt}`, or let it go: `laneyard result release \
         {attempt}`"
    )
}

/// How many paths a result changed, for people.
#[must_use]
pub fn changed(paths: usize) -> String {
    if paths == 1 { "1 path changed".to_owned() } else { format!("{paths} paths changed") }
}

/// Applies a result, and says at the controller that it was taken.
///
/// # Errors
/// See [`HomeError`]; then no file was changed.
pub async fn take_in(
    config: &Config,
    client: &Client,
    attempt: AttemptId,
    brought: &Brought,
    dir: &Path,
    wanted: &SnapshotRef,
) -> Result<Outcome, HomeError> {
    let outcome = apply(&brought.cache, dir, &brought.snapshot, &brought.result).await?;
    // What only the worker's worktree has is let go by people.
    if matches!(outcome, Outcome::Applied { .. }) && !brought.result.leaves_some() {
        // Not heard is no harm: it is kept a while longer.
        if let Err(error) = client.review(attempt).await {
            tracing::warn!(%attempt, %error, "the controller does not know yet that the result was taken");
        }
        let_go(config, attempt, wanted);
    }
    Ok(outcome)
}

/// What became of the result, for the receipt.
enum Settled {
    Applied { paths: usize },
    Conflict { which: Vec<String> },
    Refused { why: Vec<String> },
    Failed { reason: String },
}

/// Brings and applies what a delivered writer left. What could not be applied makes the lane a failed one: who reads
/// `complete` must find the files.
///
/// # Errors
/// The controller shows the result to no credential of ours any more.
pub async fn settle(
    config: &Config,
    client: &Client,
    attempt: AttemptId,
    worktree: &WorktreeRecord,
    mut ended: Ended,
    talk: Talk,
) -> Result<Ended, Shut> {
    let delivered = status_of(&ended.receipt).is_some_and(Status::delivered);
    if let Some(text) = ignored(&ended.receipt["result"], delivered) {
        talk.say(&text);
    }
    let made: Vec<&str> = ended.receipt["result"]["repositories"]
        .as_array()
        .map_or_else(Vec::new, |named| named.iter().filter_map(Value::as_str).collect());
    if !made.is_empty() {
        talk.say(&format!("{}; {}", made.join("; "), rest(attempt)));
    }
    let tree: Option<Oid> = ended.receipt["result"]["tree"].as_str().and_then(|text| text.parse().ok());
    if !delivered {
        if tree.is_some() {
            note(&mut ended.receipt, json!({"outcome": "not-applied"}));
            talk.say(&format!("what the lane left is kept: laneyard result show {attempt}"));
        } else {
            let_go(config, attempt, &worktree.snapshot);
        }
        return Ok(ended);
    }
    let tree = match tree {
        Some(tree) if ended.receipt["result"]["keptBy"] == "controller" => Some(tree),
        // It may have come since the worker wrote that.
        _ => match client.result(attempt).await {
            Ok(view) => Some(view.result),
            Err(error) if is_not_for_us(&error) => return Err(Shut { attempt, reason: chain(&error) }),
            Err(_) => None,
        },
    };
    let settled = match &tree {
        Some(tree) => match attempt_to(config, client, attempt, worktree, tree, talk).await {
            Ok(settled) => settled,
            Err(error) if error.is_of_credential() => return Err(Shut { attempt, reason: chain(&error) }),
            Err(error) => Settled::Failed { reason: chain(&error) },
        },
        _ => {
            let reason = ended.receipt["result"]["reason"].as_str().unwrap_or("the worker sent no result");
            Settled::Failed { reason: format!("they are still on the worker, which offers them again: {reason}") }
        }
    };
    let hint = format!(
        "see `laneyard result show {attempt}`, then `laneyard result apply {attempt}` or `laneyard result export {attempt}`"
    );
    let (message, noted) = match settled {
        Settled::Applied { paths } => {
            talk.say(&changed(paths));
            note(&mut ended.receipt, json!({"outcome": "applied", "paths": paths}));
            return Ok(ended);
        }
        Settled::Conflict { which } => {
            let noted = json!({"outcome": "conflict", "conflicts": which.iter().take(NAMED).collect::<Vec<_>>()});
            (format!("the lane's changes were not applied, since {} moved meanwhile; {hint}", list(&which)), noted)
        }
        Settled::Refused { why } => (
            format!("the lane's changes were not applied; {}; refused: {}", not_by_apply(attempt), list(&why)),
            json!({"outcome": "refused"}),
        ),
        Settled::Failed { reason } => {
            let noted = json!({"outcome": "failed", "reason": reason});
            (format!("the lane's changes could not be applied: {reason}; {hint}"), noted)
        }
    };
    talk.say(&message);
    note(&mut ended.receipt, noted);
    match Receipt::from_value(&ended.receipt) {
        Ok(receipt) => ended.receipt = not_applied(receipt, message).to_value(),
        // Of a worker that knows more than we do: what it says stays, but for the success.
        Err(_) => ended.receipt["status"] = json!(Status::ChildFailed.as_str()),
    }
    Ok(ended)
}

async fn attempt_to(
    config: &Config,
    client: &Client,
    attempt: AttemptId,
    worktree: &WorktreeRecord,
    tree: &Oid,
    talk: Talk,
) -> Result<Settled, HomeError> {
    let brought = bring(config, client, attempt, &worktree.snapshot, tree, talk).await?;
    let paths = brought.result.changes.len();
    Ok(match take_in(config, client, attempt, &brought, &worktree.dir, &worktree.snapshot).await? {
        Outcome::Applied { .. } => Settled::Applied { paths },
        Outcome::Moved { which } => Settled::Conflict { which },
        Outcome::Refused { why } => Settled::Refused { why: why.iter().map(ToString::to_string).collect() },
    })
}

/// What the lane wrote and Git ignores, in words.
fn ignored(result: &Value, delivered: bool) -> Option<String> {
    let in_all = result["ignoredInAll"].as_u64().filter(|count| *count > 0)?;
    let named: Vec<&str> = result["ignored"].as_array()?.iter().filter_map(Value::as_str).collect();
    let mut names = named.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = in_all.saturating_sub(named.len().min(5) as u64);
    if more > 0 {
        names.push_str(&format!(" and {more} more"));
    }
    let fate = if delivered { "went with the worker's worktree" } else { "stay in the worker's worktree" };
    Some(format!("Git ignores {names}: no part of what the lane left, they {fate}"))
}

fn note(receipt: &mut Value, more: Value) {
    if let (Some(result), Value::Object(more)) = (receipt["result"].as_object_mut(), more) {
        result.extend(more);
    }
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > 5 { format!("{shown} and {} more", names.len() - 5) } else { shown }
}

/// The model did its work and the files are not where the caller looks: no success.
fn not_applied(mut receipt: Receipt, message: String) -> Receipt {
    receipt.status = Status::ChildFailed;
    let message = agent::receipt::cap(&message, 500).to_owned();
    receipt.error = Some(ReceiptError { message, evidence: String::new() });
    receipt.failure_phase = Some(FailurePhase::Postprocess);
    receipt.process_started = true;
    receipt.workload = None;
    receipt.report = ProviderReport::default();
    receipt
}
