//! How a cancel reaches an attempt that another process drives.

use agent::ids::AttemptId;
use agent::wire::attempt::CancelSignal;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::record::{RecordError, Records};
use crate::client::Client;

/// Who is asked to cancel an attempt.
#[derive(Clone, Debug)]
pub enum Driver {
    /// Its controller, or the one in this process.
    Controller(Client),
    /// The process that holds its record on this machine.
    Holder(Records),
    /// Nobody who could be asked is known.
    Nobody,
}

impl Driver {
    /// Passes a signal on.
    ///
    /// # Errors
    /// It cannot be passed on, or is refused.
    pub async fn ask(&self, attempt: AttemptId, signal: CancelSignal) -> anyhow::Result<()> {
        match self {
            Self::Controller(client) => client.cancel(attempt, signal).await.map(drop).map_err(Into::into),
            Self::Holder(records) => ask_holder(records, attempt, signal),
            Self::Nobody => anyhow::bail!(
                "attempt {attempt} goes on: the process that drives it takes no cancel from here; name its controller with \
                 --controller"
            ),
        }
    }
}

/// Asks the process that holds a record: a client by the signal itself; one that finishes several lanes in the background by
/// a word for this lane alone. One that is gone or has let go needs none.
///
/// # Errors
/// It cannot be reached.
pub fn ask_holder(records: &Records, attempt: AttemptId, signal: CancelSignal) -> anyhow::Result<()> {
    let pid = match records.take(attempt) {
        Err(RecordError::Busy { pid, .. }) => pid,
        Ok(_) | Err(RecordError::Unknown { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if pid <= 1 || records.look(attempt).is_ok_and(|record| record.background) {
        return Ok(records.ask(attempt, signal)?);
    }
    // The record's lock proves that the process is the one that wrote it.
    let number = match signal {
        CancelSignal::Interrupt => Signal::SIGINT,
        CancelSignal::Terminate => Signal::SIGTERM,
    };
    match kill(Pid::from_raw(i32::try_from(pid)?), number) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
