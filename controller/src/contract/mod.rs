//! The worker contract as programs see it: its text, what a final response asks for, whether a checkpoint is what it
//! claims, and the ledger of the parent's operations (policy-and-contract section 10). Executes nothing but read-only
//! `git rev-parse`.

pub mod checkpoint; // is a handoff's checkpoint what the parent expects
pub mod ledger; // what the parent reserved and carried out
pub mod strict; // why no route offers the strict contract
