//! What the caller gets: the answer in its file, the receipt in its file, one line on the right stream.

use std::io;
use std::time::Duration;

use agent::assignment::Assignment;
use agent::attempt::plan::unresolved;
use agent::ids::AttemptId;
use agent::receipt::{
    FAILURE_DETAIL, FailurePhase, LAUNCHER_FAILED, PreflightStatus, ProviderReport, Receipt, ReceiptError, Status, cap,
    launcher_evidence, pretty_value, status_of,
};
use agent::transport::CallError;
use agent::wire::error::code::NO_SUCH_ATTEMPT;
use futures_util::stream::StreamExt as _;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::drive::{Ended, Lost, Unseen};
use super::lane::Lane;
use super::reserve::Reserved;
use super::signals::Latch;
use crate::cli::output;

/// Exit code where a receipt has no status that we know (runner 1.5, launcher failure).
const UNKNOWN_STATUS: u8 = 70;
/// Tries to fetch an answer over a connection that comes and goes, one second apart.
const ANSWER_TRIES: u32 = 60;

/// The controller refuses our credential by now. What it has for us stays there, and the reserved files stay as they were.
#[derive(Debug, thiserror::Error)]
#[error(
    "the controller lets us look no more: {reason}; attempt {attempt} may go on, and its files stay reserved: \
     laneyard attach {attempt}, with a valid credential"
)]
pub struct Shut {
    pub attempt: AttemptId,
    pub reason: String,
}

/// What the controller has shown us before it shows us no more: a matter of the credential, or of who answers there now.
#[must_use]
pub fn is_not_for_us(error: &CallError) -> bool {
    error.is_of_credential() || error.is(NO_SUCH_ATTEMPT)
}

/// Puts answer and receipt in place. The receipt comes last: who sees it finds the answer.
///
/// # Errors
/// See [`Shut`]; nothing else keeps a lane from its receipt.
pub async fn deliver(
    lane: &dyn Lane,
    attempt: AttemptId,
    ended: Ended,
    files: (&mut Reserved, &mut Reserved),
) -> Result<Settled, Shut> {
    let (output, receipt) = files;
    let delivered = status_of(&ended.receipt).is_some_and(Status::delivered);
    if !delivered {
        return Ok(settle(ended.receipt, output, receipt));
    }
    Ok(match fetch(lane, attempt, ended.answer_bytes, output).await {
        Ok(()) => write(ended.receipt, receipt),
        Err(Unfetched::Shut(error)) => {
            let _ = output.clear(); // a part of an answer is none; whoever comes next begins anew too
            return Err(Shut { attempt, reason: output::chain(&error) });
        }
        Err(Unfetched::Failed(error)) => {
            let failed = match Receipt::from_value(&ended.receipt) {
                Ok(complete) => lost_answer(complete, &error).to_value(),
                Err(_) => ended.receipt,
            };
            settle(failed, output, receipt)
        }
    })
}

/// Writes the receipt of an attempt whose output file is gone: an answer that was delivered is lost.
pub fn deliver_receipt(ended: Ended, gone: &io::Error, receipt: &mut Reserved) -> Settled {
    let value = match Receipt::from_value(&ended.receipt) {
        Ok(complete) if complete.status.delivered() => lost_answer(complete, gone).to_value(),
        _ => ended.receipt,
    };
    write(value, receipt)
}

/// A lane that is over, its files in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    pub receipt: Value,
    /// False if the receipt's file could not be written.
    pub written: bool,
}

impl Settled {
    /// Exit code of the runner.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match status_of(&self.receipt) {
            Some(status) if self.written => status.exit_code(),
            _ => UNKNOWN_STATUS,
        }
    }

    /// Prints the receipt's line: on stdout for a delivered answer, else on stderr (runner 1.5).
    pub fn print(&self) {
        let line = self.receipt.to_string();
        if self.exit_code() == 0 { output::data(&line) } else { output::line(&line) }
    }
}

/// Ends a lane without an answer: the output reservation goes, the receipt is written.
pub fn settle(value: Value, output: &Reserved, receipt: &mut Reserved) -> Settled {
    output.remove();
    write(value, receipt)
}

fn write(value: Value, receipt: &mut Reserved) -> Settled {
    let written = receipt.rewrite(&pretty_value(&value)).is_ok();
    Settled { receipt: value, written }
}

/// The answer cannot be had.
enum Unfetched {
    Shut(CallError),
    Failed(io::Error),
}

async fn fetch(
    lane: &dyn Lane,
    attempt: AttemptId,
    expected: Option<u64>,
    output: &mut Reserved,
) -> Result<(), Unfetched> {
    for _ in 1..ANSWER_TRIES {
        match copy(lane, attempt, expected, output).await {
            Err(Copy::Passing) => tokio::time::sleep(Duration::from_secs(1)).await,
            Err(Copy::Final(error)) => return Err(error),
            Ok(()) => return output.sync().map_err(Unfetched::Failed),
        }
    }
    Err(Unfetched::Failed(io::Error::other("the answer could not be fetched")))
}

enum Copy {
    /// The connection was lost: again, from the start.
    Passing,
    Final(Unfetched),
}

async fn copy(lane: &dyn Lane, attempt: AttemptId, expected: Option<u64>, output: &mut Reserved) -> Result<(), Copy> {
    let lost = |error: CallError| match error {
        passing if passing.is_passing() => Copy::Passing,
        refused if is_not_for_us(&refused) => Copy::Final(Unfetched::Shut(refused)),
        other => Copy::Final(Unfetched::Failed(io::Error::other(other))),
    };
    let unwritten = |error| Copy::Final(Unfetched::Failed(error));
    output.clear().map_err(unwritten)?;
    let mut pieces = lane.answer(attempt).await.map_err(lost)?;
    let mut length = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(lost)?;
        length += piece.len() as u64;
        output.append(&piece).map_err(unwritten)?;
    }
    match expected {
        Some(whole) if whole != length => Err(Copy::Passing), // cut off
        _ => Ok(()),
    }
}

/// The model answered, and we could not keep the answer: a launcher failure, honest about the model having run.
fn lost_answer(mut receipt: Receipt, error: &io::Error) -> Receipt {
    receipt.status = Status::ChildFailed;
    receipt.error = Some(ReceiptError { message: LAUNCHER_FAILED.to_owned(), evidence: launcher_evidence(error) });
    receipt.failure_phase = Some(FailurePhase::Invocation);
    receipt.process_started = true;
    receipt.workload = None;
    receipt.report = ProviderReport::default();
    detail(&mut receipt, &format!("the answer could not be written: {}", output::chain(error)));
    receipt
}

/// What failed, beside the message of fixed words.
fn detail(receipt: &mut Receipt, text: &str) {
    receipt.additive.insert(FAILURE_DETAIL.to_owned(), cap(text, 4_000).into());
}

/// A failure of our own after the paths were reserved.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Evidence of runner 2.6: never a path or a message.
    pub evidence: String,
    /// What failed, to what.
    pub detail: String,
    /// The model may have run.
    pub started: bool,
}

/// Receipt of an attempt whose end nobody here saw: it may have started, and no child of it is known to have settled.
#[must_use]
pub fn unseen(assignment: &Assignment, why: &Unseen, latch: &Latch) -> Receipt {
    let reason = output::chain(why);
    let failure = Failure { evidence: "Error".to_owned(), detail: reason.clone(), started: true };
    let mut receipt = launcher_failure(assignment, failure, latch);
    receipt.additive.insert("attempt".to_owned(), json!(assignment.attempt));
    if let Unseen::Lost(lost) = why {
        let left = travelled(assignment, lost, &mut receipt);
        if let (Status::ChildFailed, Some(error)) = (receipt.status, &mut receipt.error) {
            error.message = left.map_or(reason.clone(), |left| format!("{reason}; {left}"));
        }
    }
    receipt
}

/// What is known here of the worktree of an attempt that is lost with its worker, and of what a writer left in it, as other
/// receipts say it. Gives the latter in words.
fn travelled(assignment: &Assignment, lost: &Lost, receipt: &mut Receipt) -> Option<String> {
    let snapshot = assignment.snapshot.as_ref()?;
    let access = if assignment.mode.writes() { "read-write" } else { "read-only" };
    let worktree = json!({"kind": "snapshot", "snapshot": snapshot.id, "path": snapshot.root, "access": access});
    receipt.additive.insert("worktree".to_owned(), worktree);
    if !assignment.mode.writes() {
        return None;
    }
    let attempt = assignment.attempt;
    let left = format!(
        "what the lane left, if anything, is still with the worker: once that is back, `laneyard attach {attempt}` shows the \
         end and `laneyard result show {attempt}` the changes"
    );
    let result = json!({"tree": null, "outcome": "unknown", "reason": left, "worktree": {"worker": lost.worker}});
    receipt.additive.insert("result".to_owned(), result);
    Some(left)
}

/// Its receipt (runner 2.7).
#[must_use]
pub fn launcher_failure(assignment: &Assignment, failure: Failure, latch: &Latch) -> Receipt {
    let now = OffsetDateTime::now_utc();
    let late = assignment.timeout().is_some_and(|limit| now - assignment.started_at >= limit);
    let (status, message) = match latch.seen() {
        Some(signal) => {
            (Status::Cancelled, format!("launcher received {} after reserving output paths", signal.as_str()))
        }
        None if late => (Status::TimedOut, "explicit deadline elapsed after reserving output paths".to_owned()),
        None => (Status::ChildFailed, LAUNCHER_FAILED.to_owned()),
    };
    let mut receipt =
        Receipt::not_started(assignment, status, ReceiptError { message, evidence: failure.evidence }, now);
    (receipt.preflight, receipt.argv) = unresolved(assignment);
    match status {
        Status::Cancelled => receipt.preflight.status = PreflightStatus::Cancelled,
        Status::TimedOut => receipt.preflight.status = PreflightStatus::TimedOut,
        _ => {}
    }
    detail(&mut receipt, &failure.detail);
    if failure.started {
        receipt.failure_phase = Some(FailurePhase::Invocation);
        receipt.process_started = true;
    }
    receipt
}
