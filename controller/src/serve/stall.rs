//! Cuts connections whose peer has stopped reading (the reader comes back and resumes, and holds no memory meanwhile),
//! and those of strangers that stay without ever showing a good credential.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::http::auth::Peer;

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.to_string(), None)
    }
}

impl From<tokio::net::unix::SocketAddr> for Peer {
    fn from(_: tokio::net::unix::SocketAddr) -> Self {
        Self::new("unix".to_owned(), None)
    }
}

impl<L> Connected<IncomingStream<'_, Stalls<L>>> for Peer
where
    L: Listener,
    L::Addr: Into<Self>,
{
    fn connect_info(stream: IncomingStream<'_, Stalls<L>>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A peer that takes not one byte for so long is cut.
const PATIENCE: Duration = Duration::from_secs(30);

/// A listener whose connections are cut when they stall.
pub(super) struct Stalls<L> {
    listener: L,
    /// A connection that has brought no good credential by then is cut.
    stranger_limit: Duration,
}

/// Cuts a listener's stalled connections, and strangers' after `stranger_limit`.
pub(super) fn stalls<L>(listener: L, stranger_limit: Duration) -> Stalls<L> {
    Stalls { listener, stranger_limit }
}

impl<L: Listener> Listener for Stalls<L>
where
    L::Addr: Into<Peer>,
{
    type Io = Cut<L::Io>;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (io, address) = self.listener.accept().await;
        let peer: Peer = address.into();
        let deadline = Box::pin(tokio::time::sleep(self.stranger_limit));
        (Cut { io, waiting: None, stranger: Some((deadline, peer.clone())) }, peer)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr().map(Into::into)
    }
}

/// A connection that fails when a write makes no progress, or when its peer stays a stranger.
pub(super) struct Cut<T> {
    io: T,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Until the peer is known.
    stranger: Option<(Pin<Box<Sleep>>, Peer)>,
}

impl<T> Cut<T> {
    /// True when a stranger's time is over.
    fn is_unwelcome(&mut self, context: &mut Context<'_>) -> bool {
        let Some((deadline, peer)) = &mut self.stranger else { return false };
        if peer.is_known() {
            self.stranger = None;
            return false;
        }
        deadline.as_mut().poll(context).is_ready()
    }
}

impl<T: AsyncWrite + Unpin> Cut<T> {
    fn judge<R>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let deadline = || Box::pin(tokio::time::sleep_until(Instant::now() + PATIENCE));
        match self.waiting.get_or_insert_with(deadline).as_mut().poll(context) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer has stopped reading")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Cut<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_unwelcome(context) {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the peer has not shown a good credential in time");
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Cut<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(context, bytes);
        self.judge(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.judge(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(context);
        self.judge(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_shutdown(context);
        self.judge(context, outcome)
    }
}
