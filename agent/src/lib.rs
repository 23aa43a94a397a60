//! Worker side of laneyard: runs one attempt of a provider CLI in a container of its own and writes its receipt.
//! Knows nothing of scheduling, policy or other workers.

pub mod assignment; // everything frozen about an attempt before it starts
pub mod descriptor; // the vocabulary of an assignment
pub mod driver;
pub mod event; // normalized records of what happened
pub mod eventlog; // an attempt's append-only log of them
pub mod ids; // one spelling for every identity
pub mod receipt; // the terminal record
pub mod wire; // what travels // one file per provider CLI: data in, data out
