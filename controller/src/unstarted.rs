//! Receipts of attempts that provably never started: the controller writes them, for no worker can.

use agent::assignment::Assignment;
use agent::attempt::plan::{nothing_seen, unresolved};
use agent::receipt::{Receipt, ReceiptError, Status};
use agent::wire::attempt::CancelSignal;
use serde_json::{Value, json};
use time::OffsetDateTime;

/// Cancelled while it waited (runner section 9).
#[must_use]
pub fn cancelled(assignment: &Assignment, signal: CancelSignal, at: OffsetDateTime) -> Value {
    let message = format!("launcher received {} before authentication preflight", signal.as_str());
    receipt(assignment, Status::Cancelled, message, at)
}

/// Its deadline passed while it waited.
#[must_use]
pub fn timed_out(assignment: &Assignment, at: OffsetDateTime) -> Value {
    let message = "explicit deadline elapsed before authentication preflight".to_owned();
    receipt(assignment, Status::TimedOut, message, at)
}

/// A worker refused it for good.
#[must_use]
pub fn refused(assignment: &Assignment, reason: &str, at: OffsetDateTime) -> Value {
    receipt(assignment, Status::ChildFailed, reason.chars().take(500).collect(), at)
}

fn receipt(assignment: &Assignment, status: Status, message: String, at: OffsetDateTime) -> Value {
    let error = ReceiptError { message, evidence: nothing_seen() };
    let (preflight, argv) = unresolved(assignment);
    let mut receipt = Receipt { preflight, argv, ..Receipt::not_started(assignment, status, error, at) };
    receipt.additive.insert("attempt".to_owned(), json!(assignment.attempt));
    receipt.to_value()
}
