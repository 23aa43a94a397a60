//! The side that decides: command line, API, scheduler, store, policy and contract. Runs no provider itself.

pub mod cli; // one file a command
pub mod client; // typed client of our own API
pub mod contract; // worker contract, checkpoints, ledger
pub mod core; // attempts, workers, leases: the fold of the journal
pub mod depot; // snapshots and results on their way
pub mod embedded; // everything in this one process
pub mod entry; // first fork of the program, before any parser or runtime
pub mod event; // everything that ever happened
pub mod http; // the API
pub mod hub; // who looks at what just now
pub mod identity; // who may talk to us, and how we prove ourselves
pub mod json; // JSON as the policy and contract files mean it
pub mod policy; // sheets and decisions
pub mod reactor; // what happens when something happens: pure
pub mod retention; // what is kept of ended attempts, and for how long
pub mod schedule; // which attempt goes to which worker: pure
pub mod serve; // the controller as a process of its own
pub mod store; // journal, event logs, answers
pub mod supervisor; // the one task that owns the core
pub mod unstarted; // receipts of attempts that never started
