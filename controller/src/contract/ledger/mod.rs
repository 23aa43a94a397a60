//! The operation ledger: what the parent reserved, and how it ended (policy-and-contract 10.4).

pub mod record;
pub mod step;
pub mod store;

pub use record::{Ledger, Record};
pub use step::{Asked, Recorded};
pub use store::LedgerFile;

use agent::vocabulary;

vocabulary!(
    /// Where an operation stands. A `pending` one is ambiguous after a crash and must be reconciled by a person.
    OperationState, "state", { Pending = "pending", Complete = "complete", Rejected = "rejected" }
);
