//! The agent's side of the connection to the controller: it dials out, takes commands, ships event logs, beats.
//!
//! The link never holds up an attempt: it reads from the log on disk, at its own pace, from the number that the
//! controller acknowledged last. Losing the connection, the controller or this process loses nothing.

mod beat;
mod commands;
mod session;
mod ship;

use std::path::PathBuf;

use futures_util::future::BoxFuture;

use crate::assignment::Assignment;
use crate::eventlog::EventLog;
use crate::ids::{AttemptId, Generation};
use crate::receipt::Status;
use crate::wire::attempt::CancelSignal;
use crate::wire::worker::{Held, WorkerFacts};

pub use self::session::{LinkError, run};

/// The local worker, as the link sees it. Every method may be called again with the same arguments.
pub trait Runner: Send + Sync + 'static {
    /// Takes an attempt: when this returns `Ok`, the acceptance is durable and the attempt goes on by itself. An
    /// attempt that is already held under the same generation is no error and is not started twice.
    fn offer(&self, assignment: Assignment, generation: Generation) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Cancels as if the caller had received `signal`. Unknown and finished attempts are ignored.
    fn cancel(&self, attempt: AttemptId, signal: CancelSignal);

    /// The terminal event is durable at the controller: the attempt may be forgotten.
    fn release(&self, attempt: AttemptId);

    /// The caller was given another end than the worker told. Only a controller in the same process says so, for the
    /// worker to remember.
    fn delivered(&self, _attempt: AttemptId, _status: Status) {}

    /// Everything that is held: accepted and not yet released.
    fn attempts(&self) -> Vec<Held>;

    /// Attempts that were accepted and not released, but are not held: their records are damaged. They may have
    /// started, so nobody must start them again.
    fn damaged(&self) -> Vec<AttemptId> {
        Vec::new()
    }

    /// The event log of a held attempt.
    fn log(&self, attempt: AttemptId) -> Option<EventLog>;

    /// File with the final answer of a held attempt, once its terminal event promises one.
    fn answer(&self, attempt: AttemptId) -> Option<PathBuf>;

    /// What the worker is and can take.
    fn facts(&self) -> WorkerFacts;
}

/// Why a worker does not take an attempt. Nothing was started, and nothing is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing is wrong with the attempt: another worker, or this one later, may take it.
    #[error("the worker cannot take it now: {0}")]
    Busy(String),
    /// No worker should be asked again; the attempt ends.
    #[error("the worker cannot run it: {0}")]
    Unfit(String),
}
