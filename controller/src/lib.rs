//! The side that decides: command line, API, scheduler, store, policy and contract. Runs no provider itself.

pub mod cli; // one file a command
pub mod client; // typed client of our own API
pub mod contract; // worker contract, checkpoints, ledger
pub mod entry; // first fork of the program, before any parser or runtime
pub mod json; // JSON as the policy and contract files mean it
pub mod policy; // sheets and decisions
