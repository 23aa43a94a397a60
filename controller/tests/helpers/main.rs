//! The policy and contract helpers, tested through the real program and their public interface.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says by a panic what went wrong")]

#[path = "../../../agent/tests/fixtures/assignment.rs"]
mod fixture;
mod ledger; // concurrency, kills, full disk
mod policy; // human output, and rules beyond the vectors
mod program; // runs the program
mod properties; // any input, any history
mod receipts; // receipts of a run become events
mod vectors; // the reference's own cases
