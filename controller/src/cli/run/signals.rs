//! SIGINT and SIGTERM: the first one asks for a cancel, all later ones are ignored (runner section 9).

use std::sync::atomic::{AtomicI32, Ordering};

use agent::progress::Signal;
use agent::wire::attempt::CancelSignal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The first signal that this process received.
#[derive(Clone, Debug)]
pub struct Latch {
    first: watch::Receiver<Option<CancelSignal>>,
}

/// The first of the two signals, by number; 0 before any. Written in the signal handler itself, since two signals that
/// come together reach tasks in no order.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Notes the signal if it is the first.
fn note(number: i32) -> std::io::Result<()> {
    let action = move || {
        let _ = FIRST.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
    };
    // SAFETY: the action is one atomic operation, which is async-signal-safe; it neither allocates, locks nor panics.
    unsafe { signal_hook_registry::register(number, action) }.map(|_| ())
}

impl Latch {
    /// Installs the handlers; from here on neither signal ends the process. Needs a Tokio runtime.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn install() -> std::io::Result<Self> {
        note(nix::libc::SIGINT)?;
        note(nix::libc::SIGTERM)?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (latch, first) = watch::channel(None);
        tokio::spawn(async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            let which = match FIRST.load(Ordering::SeqCst) {
                nix::libc::SIGTERM => CancelSignal::Terminate,
                _ => CancelSignal::Interrupt,
            };
            let _ = latch.send(Some(which));
            std::future::pending::<()>().await; // keeps the handlers: later signals go nowhere
        });
        Ok(Self { first })
    }

    /// A latch that a test closes.
    #[must_use]
    pub const fn of(first: watch::Receiver<Option<CancelSignal>>) -> Self {
        Self { first }
    }

    /// The signal, if one came already.
    #[must_use]
    pub fn seen(&self) -> Option<CancelSignal> {
        *self.first.borrow()
    }

    /// Waits for the first signal.
    pub async fn first(&mut self) -> CancelSignal {
        match self.first.wait_for(Option::is_some).await.map(|seen| *seen) {
            Ok(Some(signal)) => signal,
            _ => std::future::pending().await,
        }
    }
}

/// The signal as progress names it.
#[must_use]
pub const fn in_progress(signal: CancelSignal) -> Signal {
    match signal {
        CancelSignal::Interrupt => Signal::Int,
        CancelSignal::Terminate => Signal::Term,
    }
}
