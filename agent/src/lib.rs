//! Worker side of laneyard: runs one attempt of a provider CLI in a container of its own and writes its receipt.
//! Knows nothing of scheduling, policy or other workers.

pub mod ids; // one spelling for every identity
pub mod blank; // white space as the policy files mean it
pub mod moment; // a point in time for people
pub mod config; // the configuration file, raw and resolved
pub mod container; // the engine and the isolation
pub mod descriptor; // the vocabulary of an assignment
pub mod route; // which descriptors the parent covers itself
pub mod assignment; // everything frozen about an attempt before it starts
pub mod receipt; // the terminal record
pub mod event; // normalized records of what happened
pub mod eventlog; // an attempt's append-only log of them
pub mod handoff; // what a final response asks of the parent
pub mod ownership; // the text of the worker contract
pub mod progress; // what a caller can watch before the receipt exists
pub mod secret_file; // files of mode 0600
pub mod wire; // what travels
pub mod transport; // ways to the controller: HTTP or the same process
pub mod driver; // one file per provider CLI: data in, data out
pub mod supervisor; // the first process of the container, seen from outside
pub mod egress; // the only way out of a container: a proxy process per attempt
pub mod worktree; // the working directory of a lane
pub mod snapshot; // a working directory that travels, and a result on its way back
pub mod shuttle; // objects to and from the controller
pub mod doctor; // checks of this machine, as data
pub mod attempt; // the state machine that joins them
pub mod retention; // how long what is over is kept
pub mod identity; // who this worker is: joined once, renewed for ever
pub mod sole; // one agent a state directory
pub mod link; // our side of the connection to the controller
pub mod worker; // accepts, drives, adopts, sweeps
pub mod run; // `laneyard-agent run`: wiring only
