//! Signals as inputs, with their senders known: as first process, only those from outside the container count.

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::{Input, tree};

/// Signals that no longer arrive otherwise.
pub(super) struct Blocked(SignalFd);

/// Blocks the signals; call it before the first thread, which would be interrupted otherwise.
pub(super) fn block() -> nix::Result<Blocked> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map(Blocked)
}

/// Turns them into inputs for ever.
pub(super) async fn watch(blocked: Blocked, inputs: mpsc::Sender<Input>) {
    // SAFETY: the signal descriptor is owned, and stays the same until it is dropped.
    let Ok(signals) = (unsafe { AsyncFd::register_with_interest(blocked.0, Interest::READABLE) }) else { return };
    let first = tree::is_first();
    loop {
        let Ok(mut ready) = signals.readable().await else { return };
        while let Ok(Some(info)) = signals.get_ref().read_signal() {
            let signal = info.ssi_signo.cast_signed();
            let input = match signal {
                libc::SIGCHLD => Input::Children,
                // A provider must not be able to end its own supervisor: a sender outside has no number in here.
                _ if first && info.ssi_pid != 0 => continue,
                _ => Input::Stop { signal },
            };
            if inputs.send(input).await.is_err() {
                return;
            }
        }
        ready.clear_ready();
    }
}
