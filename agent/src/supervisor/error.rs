//! What can go wrong between an agent and its supervisor.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Failure of one request or of the connection.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    #[error(
        "cannot listen at {path} for the attempt's supervisor: check that the run directory exists and is writable"
    )]
    Listen { path: PathBuf, source: io::Error },
    #[error("the attempt's supervisor did not call within {waited:?}: check whether its container still runs")]
    NoCall { waited: Duration },
    #[error(
        "the attempt's supervisor speaks protocol {spoken}, this agent speaks {ours}: use the agent version that started it"
    )]
    Version { spoken: u32, ours: u32 },
    /// The supervisor refused, or the operating system did; `errno` says which.
    #[error("{verb} failed inside the container: {message} (errno {errno})")]
    Refused { verb: &'static str, errno: i32, message: String },
    /// No more requests on this connection; accept the next one.
    #[error("connection to the attempt's supervisor is lost ({reason}): accept its next call")]
    Lost { reason: String },
    #[error("the attempt's supervisor did not answer {verb} within {waited:?}: look at the container")]
    Unanswered { verb: &'static str, waited: Duration },
}

impl SupervisorError {
    /// The error number from inside the container, if the request got that far.
    #[must_use]
    pub const fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::Listen { .. }
            | Self::NoCall { .. }
            | Self::Version { .. }
            | Self::Lost { .. }
            | Self::Unanswered { .. } => None,
        }
    }

    /// True when nobody reads the step's stdin any more: an ordinary end of feeding a child.
    #[must_use]
    pub const fn stdin_closed(&self) -> bool {
        matches!(self.errno(), Some(nix::libc::EPIPE))
    }
}
