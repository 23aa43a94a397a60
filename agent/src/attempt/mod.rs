//! One attempt: a typed state machine that writes its journal before each step (design section 5).
//!
//! `accepted → preparing → preflight → running → settling → terminal`
//!
//! The same path serves a fresh attempt and one whose driver was killed: every step first looks whether it was done.
//! A container is found by its label, the supervisor inside tells again what became of its steps, and a step that it
//! knows is never started twice. So the model is invoked at most once, whoever drives the attempt.

pub mod directory; // what stands on the disk
pub mod durable; // and is being made to stay there
pub mod journal; // the line before each step, and the state as its fold
pub mod outcome; // what the attempt came to
pub mod bring_home; // a writer's result
mod course; // from the first check to the result
pub mod kept; // worktrees that outlive their attempts
pub(crate) mod late; // results that the controller does not have yet
mod ending; // cancel and deadline
mod login; // the instance's stored login
pub mod fault; // named points at which tests kill the process
mod place; // the container with its supervisor
pub mod plan; // what it would do, known beforehand
mod preflight; // the driver's own checks
mod reader; // the workload's output, parsed as it grows
mod record; // journal and status events together
pub mod snapshot; // a worktree of its own
mod site; // making the container, its mounts and its proxy, or finding them again
mod source; // the worker's engine
mod step; // one step inside the container
mod stop; // ends before the workload has a result
mod sweep; // leftovers
mod teardown; // removing it all, with proof
mod transfer; // how far a transfer has come, told while it goes on
mod workload; // the one model invocation

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::assignment::Assignment;
use crate::config::Instance;
use crate::container::image::{PullPolicy, Reference};
use crate::descriptor::Provider;
use crate::event::{EventBody, Phase};
use crate::eventlog::EventLog;
use crate::ids::{InstanceId, WorkerId};
use crate::receipt::{PreflightReport, pretty_value};
use crate::wire::attempt::CancelSignal;
use course::{Attempt, Outcome};
use directory::{Accepted, AttemptDir, StateDir};
use durable::Durable;
use ending::Endings;
use journal::Entry;
use outcome::{Course, Judged};
use record::Record;
use teardown::Left;

pub use snapshot::Supply;
pub use source::EngineSource;
pub use sweep::{SweepError, sweep};

/// The receipt's file.
const RECEIPT: &str = "receipt.json";

/// Pause between tries to write a result that a full disk refused.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// What every attempt of a worker shares.
#[derive(Debug)]
pub struct Deps {
    pub state: StateDir,
    pub worker: WorkerId,
    /// The engine, found when the first attempt needs it.
    pub engine: EngineSource,
    /// Configured image of a provider; others use `laneyard/<provider>:current`.
    pub images: BTreeMap<Provider, Reference>,
    pub pull: PullPolicy,
    /// Configured accounts of this worker.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Where snapshots come from; `None` where the caller's own files are at hand.
    pub supply: Option<Supply>,
}

impl Deps {
    /// The assignment with what its account brings on this worker. The accepted one stays as the caller sent it: what
    /// belongs to an account is never written down with an attempt.
    fn with_account(&self, assignment: &Assignment) -> Assignment {
        let account = assignment.instance.as_ref().and_then(|id| self.instances.get(id));
        account.map_or_else(|| assignment.clone(), |account| account.applied_to(assignment))
    }
}

/// An accepted attempt that waits to be driven.
#[derive(Debug)]
pub struct Driving {
    deps: Arc<Deps>,
    assignment: Assignment,
    generation: crate::ids::Generation,
    record: Record,
    endings: Endings,
}

/// Opens the records of an attempt and notes that this process drives it from now on.
///
/// # Errors
/// The records are damaged or cannot be written.
pub fn begin(
    deps: Arc<Deps>,
    dir: AttemptDir,
    accepted: &Accepted,
    log: EventLog,
    cancel: watch::Receiver<Option<CancelSignal>>,
    adopted: bool,
) -> io::Result<Driving> {
    let durable = dir.durable();
    let mut record = Record::open(dir, log, durable)?;
    if !record.standing().terminal {
        record.dir().reserve()?;
        let accepted = Entry::Accepted { engine: deps.engine.choice().cloned() };
        record.enter(if adopted { Entry::Adopted } else { accepted })?;
        record.phase(Phase::Accepted);
    }
    let endings = Endings::new(&accepted.assignment, cancel);
    let assignment = deps.with_account(&accepted.assignment);
    Ok(Driving { deps, assignment, generation: accepted.generation, record, endings })
}

impl Driving {
    /// The acceptance on its way to the disk: nothing is promised before it is there, and no container is made.
    #[must_use]
    pub fn durable(&self) -> Durable {
        self.record.durable().clone()
    }

    /// Drives the attempt to its end. What fails on the way is part of the result; a disk that refuses the result
    /// itself is asked again until it takes it.
    #[tracing::instrument(skip_all, fields(attempt = %self.assignment.attempt, provider = %self.assignment.provider))]
    pub async fn drive(mut self) {
        let mut left = Left::default();
        if self.record.standing().judged.is_none() && !self.record.standing().terminal {
            let ((judged, answer), unfinished) = self.judge().await;
            left = unfinished;
            self.record.dir().release_reserve();
            let judged = self.keep_answer(judged, answer).await;
            self.insist(Entry::Judged { judged: Box::new(judged) }).await;
        }
        match self.terminal_event() {
            None => {
                // A power cut may have kept the entry and not the receipt.
                if !self.record.standing().terminal || self.receipt().is_err() {
                    self.conclude(left).await;
                }
                self.tell_the_end().await;
            }
            // A power cut may have kept the event, and neither the receipt's own file nor the entry.
            Some(told) => {
                if self.receipt().is_err() {
                    self.write_receipt(&pretty_value(&told)).await;
                }
                if !self.record.standing().terminal {
                    self.insist(Entry::Terminal).await;
                }
            }
        }
        if !self.record.standing().removed {
            // Whoever waits for the end hears of it while the rest is cleared away.
            match tokio::task::spawn_blocking(move || self.clear_away()).await {
                Ok((_, Ok(()))) => {}
                Ok((mut driving, Err(_))) => driving.insist(Entry::Removed).await,
                Err(error) => tracing::error!(%error, "what the attempt leaves was not cleared away"),
            }
        }
    }

    fn clear_away(mut self) -> (Self, io::Result<()>) {
        self.record.dir().release_reserve();
        // Until now the event that tells it was the one that outlasts a power cut.
        if let Err(error) = self.record.dir().sync(RECEIPT) {
            tracing::warn!(%error, "the receipt is not known to be on the disk; the event log has it");
        }
        teardown::remove_private(&self.deps, &self.assignment, &self.record);
        let entered = self.record.enter(Entry::Removed);
        (self, entered)
    }

    async fn judge(&mut self) -> (Outcome, Left) {
        let Self { deps, assignment, generation, record, endings } = self;
        let Some(mut attempt) = Attempt::new(deps, *generation, assignment, record, endings.clone()) else {
            let course = Course {
                executable: None,
                preflight: PreflightReport::not_run(""),
                argv: Vec::new(),
                process_started: false,
            };
            let message = format!("no driver for provider {} in this version", assignment.provider);
            let judged = course.failed(crate::receipt::Status::UnavailableCli, &message, "");
            return ((judged, None), Left::default());
        };
        let (mut judged, answer) = attempt.run().await;
        let (facts, place, written) = attempt.into_parts();
        judged.note("attempt", json!(assignment.attempt));
        judged.additive.extend(facts);
        if record.standing().adoptions > 0 {
            let note = format!("taken over {} time(s) after its driver ended", record.standing().adoptions);
            judged.note("notes", json!([note]));
        }
        ((judged, answer), Left { place, written })
    }

    /// The answer is on the disk before the result says that there is one.
    async fn keep_answer(&self, mut judged: Judged, answer: Option<String>) -> Judged {
        let Some(answer) = answer else { return judged };
        loop {
            match self.record.dir().write_durably("answer", answer.as_bytes()) {
                Ok(()) => {
                    judged.note("answerBytes", json!(answer.len()));
                    return judged;
                }
                Err(error) => {
                    tracing::error!(%error, "the answer could not be written; free space on the worker");
                    tokio::time::sleep(WRITE_AGAIN).await;
                }
            }
        }
    }

    /// Container away, receipt durable.
    async fn conclude(&mut self, left: Left) {
        let Some(judged) = self.record.standing().judged.clone() else { return };
        let mut facts = teardown::tear_down(&self.deps, &self.assignment, &self.record, left).await;
        let Self { deps, assignment, generation, record, .. } = self;
        if let Some(result) = bring_home::bring_home(deps, *generation, assignment, record, &judged).await {
            facts.insert("result".to_owned(), result);
        }
        let receipt = judged.receipt(&self.assignment, OffsetDateTime::now_utc(), facts);
        self.write_receipt(&receipt.pretty()).await;
        self.insist(Entry::Terminal).await;
    }

    async fn write_receipt(&self, text: &str) {
        while let Err(error) = self.record.dir().write_note(RECEIPT, text) {
            tracing::error!(%error, "the receipt could not be written; free space on the worker");
            tokio::time::sleep(WRITE_AGAIN).await;
        }
    }

    fn receipt(&self) -> Result<Value, String> {
        let bytes = std::fs::read(self.record.dir().file(RECEIPT)).map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }

    /// The receipt that the log's last event carries, if the end was told.
    fn terminal_event(&self) -> Option<Value> {
        let log = self.record.log();
        let last = log.read_from(log.last_seq().saturating_sub(1), 1).unwrap_or_default().pop()?;
        if let EventBody::Terminal { receipt, .. } = last.body { Some(receipt) } else { None }
    }

    /// The log's last event carries the receipt.
    async fn tell_the_end(&mut self) {
        self.record.phase(Phase::Terminal);
        let receipt = self.receipt().unwrap_or_else(|error| json!({"unreadable": error}));
        let answer_bytes = std::fs::metadata(self.record.dir().file("answer")).ok().map(|meta| meta.len());
        let log = self.record.log().clone();
        let body = EventBody::Terminal { receipt, answer_bytes };
        while let Err(error) = log.append(body.clone()).and_then(|_| log.sync()) {
            tracing::error!(%error, "the terminal event could not be kept; free space on the worker");
            tokio::time::sleep(WRITE_AGAIN).await;
        }
    }

    async fn insist(&mut self, entry: Entry) {
        while let Err(error) = self.record.enter(entry.clone()) {
            tracing::error!(%error, entry = entry.name(), "the journal could not be written; free space on the worker");
            tokio::time::sleep(WRITE_AGAIN).await;
        }
    }
}
