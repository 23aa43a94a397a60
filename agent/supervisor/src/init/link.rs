//! The connection to the agent: dialled for ever, one at a time.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use laneyard_supervisor::frame::{self, Decoder};
use laneyard_supervisor::protocol::{Report, Request};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Input;

/// Reports on their way out. When it is full, the connection is given up: the next hello tells all.
pub(super) type Outgoing = mpsc::Sender<Report>;

const OUTGOING: usize = 256;

/// Descriptors that one message may carry.
const DESCRIPTORS: usize = 4;

/// An agent that takes no byte for so long is as good as gone.
const STUCK: Duration = Duration::from_secs(60);

/// Dials, serves the connection, dials again.
pub(super) async fn keep(socket: PathBuf, inputs: mpsc::Sender<Input>) {
    loop {
        let stream = dial(&socket).await;
        let (outgoing, mut reports) = mpsc::channel(OUTGOING);
        if inputs.send(Input::Connected(outgoing)).await.is_err() {
            return;
        }
        let _ = serve(&stream, &mut reports, &inputs).await; // whatever ended it, the next call is the answer
        drop(stream);
        if inputs.send(Input::Disconnected).await.is_err() {
            return; // the supervisor ends
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the last reports are written, within reason.
pub(super) async fn finish(link: JoinHandle<()>) {
    let _ = timeout(Duration::from_millis(500), link).await;
}

/// Quick tries while an agent is about to listen, then patient ones.
async fn dial(socket: &Path) -> UnixStream {
    let mut tries = 0_u32;
    loop {
        if let Ok(stream) = UnixStream::connect(socket).await {
            return stream;
        }
        tries = tries.saturating_add(1);
        sleep(Duration::from_millis(if tries < 400 { 5 } else { 50 })).await;
    }
}

async fn serve(
    stream: &UnixStream,
    reports: &mut mpsc::Receiver<Report>,
    inputs: &mpsc::Sender<Input>,
) -> io::Result<()> {
    let (calls, reading) = (read_calls(stream, inputs), write_reports(stream, reports));
    tokio::select! {
        result = calls => result,
        result = reading => result,
    }
}

async fn write_reports(stream: &UnixStream, reports: &mut mpsc::Receiver<Report>) -> io::Result<()> {
    let mut writer = Writer(stream);
    while let Some(report) = reports.recv().await {
        let line = frame::encode(&report)?;
        timeout(STUCK, writer.write_all(&line)).await??;
    }
    Ok(())
}

async fn read_calls(stream: &UnixStream, inputs: &mpsc::Sender<Input>) -> io::Result<()> {
    let mut decoder = Decoder::default();
    let mut received: Vec<OwnedFd> = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = stream.async_io(Interest::READABLE, || receive(stream, &mut buffer, &mut received)).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        decoder.push(&buffer[..n]);
        while let Some(request) = decoder.next_frame::<Request>().map_err(io::Error::other)? {
            let count = usize::from(request.descriptors);
            if count > received.len() {
                return Err(io::Error::other("descriptors are missing"));
            }
            let descriptors = received.drain(..count).collect();
            if inputs.send(Input::Call { request, descriptors }).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// One read with the descriptors that came along; nothing that we start ever inherits them.
fn receive(stream: &UnixStream, buffer: &mut [u8], received: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS]);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            // SAFETY: the kernel has just made these descriptors for us, and nobody else knows them.
            received.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    if message.flags.contains(MsgFlags::MSG_CTRUNC) || received.len() > DESCRIPTORS {
        return Err(io::Error::other("more descriptors than any request has"));
    }
    Ok(message.bytes)
}

/// Writes through a shared reference, as reading goes on beside it.
struct Writer<'a>(&'a UnixStream);

impl Writer<'_> {
    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.0.writable().await?;
            match self.0.try_write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
