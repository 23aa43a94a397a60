//! A write on its way to the disk, and whoever waits for it.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

/// Something written that is being made to outlast a power cut. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Durable(watch::Receiver<Option<Result<(), Arc<io::Error>>>>);

impl Durable {
    /// Runs `sync` where it may block.
    pub(super) fn begin(sync: impl FnOnce() -> io::Result<()> + Send + 'static) -> Self {
        let (done, waiting) = watch::channel(None);
        // Nobody awaits the task: it ends with the device's answer.
        drop(tokio::task::spawn_blocking(move || done.send_replace(Some(sync().map_err(Arc::new)))));
        Self(waiting)
    }

    /// Waits until it is on the disk. Cancel-safe.
    ///
    /// # Errors
    /// The device refuses.
    pub async fn wait(&self) -> io::Result<()> {
        let mut waiting = self.0.clone();
        let done = waiting.wait_for(Option::is_some).await.map_err(io::Error::other)?.clone();
        match done {
            Some(Err(error)) => Err(io::Error::new(error.kind(), error)),
            _ => Ok(()),
        }
    }
}
