//! The agent's end of the first process of an attempt container.
//!
//! [`Listener`] waits in the attempt's run directory until the supervisor dials in, which it does again whenever the
//! connection is gone. Each connection is a new [`Supervisor`], whose [`Supervisor::hello`] tells all that happened
//! before, and [`Notices`], which tells what happens from then on. Dropping both closes the connection and changes
//! nothing inside the container. This module decides nothing about an attempt.

mod binary;
mod connection;
mod entry;
mod error;
mod handle;
mod listener;

pub use binary::{InstallError, binary, install};
pub use entry::{Entry, Token};
pub use error::SupervisorError;
pub use handle::{PutFile, Spools, Supervisor};
pub use laneyard_supervisor::protocol::{
    AGENT_SOCKET, EGRESS_SOCKET, End, Exit, Health, Hello, JournalLine, Phase, Start, StdinMode, StepId, StepState,
    Streams, TreeEnd,
};
pub use listener::Listener;

pub use connection::{Notice, Notices};
