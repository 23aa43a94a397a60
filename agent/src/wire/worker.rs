//! What agent and controller say to each other.
//!
//! **Lease.** An offer carries a generation. The agent *claims* it before it does anything; only a granted claim may be
//! handed to the worker, so an attempt whose claim was never granted provably did not start and may be offered again.
//! **Session.** Each registration has an id of its own; what a former registration still says is late.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::assignment::Assignment;
use crate::event::{Event, EventBody};
use crate::ids::{AttemptId, Generation, InstanceId, WorkerId};
use crate::wire::attempt::CancelSignal;

/// `POST /v1/workers`. Sent at each start of the agent and whenever the controller asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Register {
    pub worker: WorkerId,
    /// Made anew for each registration.
    pub session: Uuid,
    /// Grows from one registration of a state directory to the next: an older one may arrive later. 0 from older agents, whose
    /// registrations count in the order in which they come, and prove of nothing that it never started.
    #[serde(default)]
    pub number: u64,
    pub facts: WorkerFacts,
    /// Everything that the worker still has, whatever its state.
    pub held: Vec<Held>,
    /// Attempts that stand in the state directory but cannot be taken over: they may have started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<AttemptId>,
}

/// What a worker is and can take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerFacts {
    /// Identity of the state directory: as long as it is the same, what is not held was never started.
    pub store: Uuid,
    pub labels: BTreeMap<String, String>,
    /// Attempts at the same time.
    pub capacity: u32,
    /// Engine and version, for example `docker 28.2.2`.
    pub engine: String,
    /// Architecture as Rust names it, for example `x86_64`.
    pub arch: String,
    /// Operating system of the host.
    pub os: String,
    /// Version of the agent.
    pub version: String,
    pub images: Vec<String>,
    pub instances: Vec<InstanceFacts>,
}

/// One configured account on a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceFacts {
    pub instance: InstanceId,
    pub provider: crate::descriptor::Provider,
    /// Attempts at the same time.
    pub concurrency: u32,
}

/// One attempt in a worker's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    pub attempt: AttemptId,
    pub generation: Generation,
    /// Newest kept event of its log.
    pub last_seq: u64,
    /// The terminal event is in the log.
    pub terminal: bool,
}

/// Answer to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    /// A heartbeat is due this often, in milliseconds.
    pub heartbeat_ms: u64,
    /// After this much silence the controller calls the worker unreachable, in milliseconds.
    pub lease_ms: u64,
    /// Newest durable event of each held attempt; reports go on from there.
    pub acknowledged: Vec<Acknowledged>,
}

/// `POST /v1/workers/{id}/heartbeat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    pub session: Uuid,
    pub held: Vec<Held>,
}

/// `POST /v1/workers/{id}/claim`, `/refuse` and `/released`: one attempt under one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseRef {
    pub session: Uuid,
    pub attempt: AttemptId,
    pub generation: Generation,
}

/// Answer to a claim: the attempt may start, for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Granted {
    /// Measured by the agent's own monotonic clock from the moment it sent the claim: later than this it refuses.
    pub start_within_ms: u64,
}

/// `POST /v1/workers/{id}/refuse`: proof that the attempt was not and will not be started under this lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refuse {
    #[serde(flatten)]
    pub lease: LeaseRef,
    /// What the worker says about it, for people.
    pub reason: String,
    /// Another worker, or this one later, may well take it.
    pub elsewhere: bool,
}

/// `POST /v1/workers/{id}/events`: a stretch of an attempt's log. Repeats and overlaps change nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub session: Uuid,
    pub attempt: AttemptId,
    pub generation: Generation,
    /// Number of the first event; the others follow without holes.
    pub first_seq: u64,
    pub events: Vec<Event>,
}

/// Everything up to and including `last_seq` is durable at the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledged {
    pub attempt: AttemptId,
    pub last_seq: u64,
}

/// `POST /v1/workers/{id}/live`: events that are shown while they happen. Best effort: lost ones are not sent again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Live {
    pub session: Uuid,
    pub attempt: AttemptId,
    pub generation: Generation,
    pub events: Vec<EventBody>,
}

/// One record of `GET /v1/workers/{id}/commands`; its SSE id is `seq`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    pub seq: u64,
    #[serde(flatten)]
    pub body: CommandBody,
}

/// What the controller wants. Each may be repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum CommandBody {
    /// Claim this attempt, and run it if the claim is granted.
    Offer {
        assignment: Box<Assignment>,
        generation: Generation,
        /// Milliseconds from now until its explicit deadline; `None`: it has none, or the controller is an older one.
        #[serde(rename = "deadlineInMs", default, skip_serializing_if = "Option::is_none")]
        deadline_in_ms: Option<u64>,
    },
    /// Cancel as if the caller had received `signal`; the receipt follows.
    Cancel { attempt: AttemptId, generation: Generation, signal: CancelSignal },
    /// The terminal event is durable here: the worker may forget the attempt.
    Release { attempt: AttemptId, generation: Generation },
}

/// What an operator sees of a worker, `GET /v1/workers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    pub worker: WorkerId,
    pub state: WorkerState,
    pub facts: WorkerFacts,
    /// Attempts that hold a place.
    pub used: u32,
    /// Which ones, and those that ended here and are not cleared away yet.
    #[serde(default)]
    pub holds: Vec<AttemptId>,
    /// It is unreachable because its credential was revoked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}

/// `POST /v1/workers/{id}/remove`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Removal {
    /// Also if the worker holds attempts. Those that were only offered wait again; those that may have started stay
    /// `interrupted` until the worker comes back with them.
    pub abandon: bool,
}

/// Whether a worker gets new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerState {
    /// Heard of lately.
    Ready,
    /// Finishes what it has, gets nothing new.
    Draining,
    /// Silent for longer than its lease, or shut out.
    Unreachable,
}
