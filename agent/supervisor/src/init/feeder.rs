//! A step's stdin: pieces are written in the order in which they came, as fast as the child reads.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::Sender;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Input;

/// Pieces that may wait; the agent sends the next when one was taken.
const WAITING: usize = 8;

/// The writing end of a child's stdin.
#[derive(Debug)]
pub(super) struct Feeder {
    pieces: mpsc::Sender<Piece>,
    task: JoinHandle<()>,
}

/// Bytes, with a number of their own: request ids begin anew with each connection.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) close: bool,
}

impl Feeder {
    pub(super) fn new(pipe: OwnedFd, step: usize, inputs: mpsc::Sender<Input>) -> io::Result<Self> {
        let pipe = Sender::from_owned_fd(pipe)?;
        let (pieces, queue) = mpsc::channel(WAITING);
        Ok(Self { pieces, task: tokio::spawn(feed(pipe, queue, step, inputs)) })
    }

    /// False when too many wait already.
    pub(super) fn push(&self, piece: Piece) -> bool {
        !matches!(self.pieces.try_send(piece), Err(mpsc::error::TrySendError::Full(_)))
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.task.abort(); // a descendant may hold the other end and never read
    }
}

async fn feed(pipe: Sender, mut queue: mpsc::Receiver<Piece>, step: usize, inputs: mpsc::Sender<Input>) {
    let mut pipe = Some(pipe);
    while let Some(Piece { number, bytes, close }) = queue.recv().await {
        let written = match &mut pipe {
            Some(pipe) => pipe.write_all(&bytes).await,
            None if bytes.is_empty() => Ok(()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if close || written.is_err() {
            pipe = None;
        }
        let errno = written.err().map(|error| error.raw_os_error().unwrap_or(nix::libc::EPIPE));
        if inputs.send(Input::Fed { step, piece: number, errno }).await.is_err() {
            return;
        }
    }
}
