//! SIGINT and SIGTERM: the first one asks for a cancel, all later ones are ignored (runner section 9).

use agent::progress::Signal;
use agent::wire::attempt::CancelSignal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The first signal that this process received.
#[derive(Clone, Debug)]
pub struct Latch {
    first: watch::Receiver<Option<CancelSignal>>,
}

impl Latch {
    /// Installs the handlers; from here on neither signal ends the process. Needs a Tokio runtime.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn install() -> std::io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (latch, first) = watch::channel(None);
        tokio::spawn(async move {
            let which = tokio::select! {
                _ = interrupt.recv() => CancelSignal::Interrupt,
                _ = terminate.recv() => CancelSignal::Terminate,
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
