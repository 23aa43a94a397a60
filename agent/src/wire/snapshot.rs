//! Snapshots and results on their way through the controller. Objects go up in three steps (offer, announce, bytes from an
//! offset) and down in three (offer, pack, bytes from an offset); each step may be repeated.

use serde::{Deserialize, Serialize};

use crate::ids::{AttemptId, WorkerId};
use crate::snapshot::transfer::Ticket;
use crate::snapshot::{ObjectFormat, Oid, ProjectId};

/// The snapshot that an attempt starts from: part of its assignment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRef {
    /// The project as its client names it; everybody else derives a name of their own from it.
    pub project: ProjectId,
    pub format: ObjectFormat,
    /// Name of the snapshot.
    pub id: Oid,
    /// Real path of the work tree's top on the caller's machine: where it stands inside the container.
    pub root: String,
}

/// `POST …/upload`: what the pack is whose bytes follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announce {
    pub project: ProjectId,
    pub format: ObjectFormat,
    pub ticket: Ticket,
}

/// How much of a pack is durable, in bytes: the sender goes on there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrived {
    pub bytes: u64,
    /// All of it was checked and taken.
    pub complete: bool,
}

/// `POST /v1/workers/{id}/result/keep`: all objects of the result are there; it is the attempt's from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeepResult {
    pub result: Oid,
}

/// A result that the controller keeps: `GET /v1/attempts/{id}/result`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultView {
    pub attempt: AttemptId,
    pub snapshot: SnapshotRef,
    /// Name of the result tree.
    pub result: Oid,
    #[serde(with = "time::serde::rfc3339")]
    pub kept_at: time::OffsetDateTime,
    /// Somebody has taken it or let it go: it may be removed.
    pub reviewed: bool,
}

/// `POST /v1/workers/{id}/kept`: attempts whose worktrees the worker still has although they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kept {
    pub attempts: Vec<AttemptId>,
    /// Those whose results the controller does not have although the worker offered them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
}

/// A result that is on its worker only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    pub attempt: AttemptId,
    /// Its worktree there.
    pub path: String,
    #[serde(with = "time::serde::rfc3339")]
    pub since: time::OffsetDateTime,
    /// What the last try came to, for people.
    pub reason: String,
    /// The controller itself said no; otherwise the worker did not get through.
    pub refused: bool,
}

/// Where a result is that the controller does not have: `GET /v1/attempts/{id}/result/waiting`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingView {
    pub attempt: AttemptId,
    pub worker: WorkerId,
    /// The worker is there, and offers the result again by itself.
    pub connected: bool,
    /// As in [`Waiting`]; absent when the worker did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub since: time::OffsetDateTime,
    pub reason: String,
    pub refused: bool,
}

/// Answer to [`Kept`]: those that somebody released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Let {
    pub release: Vec<AttemptId>,
}
