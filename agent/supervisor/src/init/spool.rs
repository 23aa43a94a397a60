//! A step's output: one thread a stream copies the pipe to the spool. A flood keeps only its own thread busy.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;

use laneyard_supervisor::protocol::Streams;
use tokio::sync::mpsc;

use super::Input;

/// Bytes a read. Larger ones win nothing.
const PIECE: usize = 64 << 10;

/// Which of the two.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// Shared by the two threads of a step and the loop.
#[derive(Debug)]
pub(super) struct Counters {
    stdout: AtomicU64,
    stderr: AtomicU64,
    dropped: AtomicU64,
    /// Bytes that may still be spooled.
    room: AtomicU64,
    limited: AtomicBool,
    errno: AtomicI32,
    /// An [`Input::Grew`] is under way that has not been looked at.
    announced: AtomicBool,
}

impl Counters {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            stdout: AtomicU64::new(0),
            stderr: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            room: AtomicU64::new(limit),
            limited: AtomicBool::new(false),
            errno: AtomicI32::new(0),
            announced: AtomicBool::new(false),
        })
    }

    pub(super) fn streams(&self) -> Streams {
        Streams {
            stdout: self.stdout.load(Ordering::Acquire),
            stderr: self.stderr.load(Ordering::Acquire),
            dropped: self.dropped.load(Ordering::Acquire),
        }
    }

    pub(super) fn limit_reached(&self) -> bool {
        self.limited.load(Ordering::Acquire)
    }

    pub(super) fn errno(&self) -> Option<i32> {
        Some(self.errno.load(Ordering::Acquire)).filter(|&errno| errno != 0)
    }

    /// The loop has seen the growth; the next one is to be announced.
    pub(super) fn seen(&self) {
        self.announced.store(false, Ordering::Release);
    }

    fn reserve(&self, wanted: u64) -> u64 {
        let take = |room: u64| Some(room.saturating_sub(wanted));
        match self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
            Ok(room) | Err(room) => room.min(wanted),
        }
    }
}

/// Starts the thread of one stream.
pub(super) fn copy(
    pipe: OwnedFd,
    spool: OwnedFd,
    which: Stream,
    counters: Arc<Counters>,
    step: usize,
    inputs: mpsc::Sender<Input>,
) -> io::Result<()> {
    let run = move || {
        drain(File::from(pipe), File::from(spool), which, &counters, &inputs);
        let _ = inputs.blocking_send(Input::StreamEnded { step });
    };
    thread::Builder::new().name(format!("{which:?}")).stack_size(128 << 10).spawn(run).map(drop)
}

fn drain(mut pipe: File, spool: File, which: Stream, counters: &Counters, inputs: &mpsc::Sender<Input>) {
    let written = match which {
        Stream::Stdout => &counters.stdout,
        Stream::Stderr => &counters.stderr,
    };
    let mut buffer = vec![0; PIECE];
    let mut failed = false;
    loop {
        let n = match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let wanted = n as u64;
        let room = if failed { 0 } else { counters.reserve(wanted) };
        let (done, error) = write_all(&spool, &buffer[..usize::try_from(room).unwrap_or(n)]);
        written.fetch_add(done, Ordering::AcqRel);
        if done < wanted {
            counters.dropped.fetch_add(wanted - done, Ordering::AcqRel);
        }
        match error {
            Some(error) => {
                failed = true;
                let errno = error.raw_os_error().unwrap_or(nix::libc::EIO);
                let _ = counters.errno.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire);
            }
            None if room < wanted && !failed => counters.limited.store(true, Ordering::Release),
            None => {}
        }
        if !counters.announced.swap(true, Ordering::AcqRel) && inputs.blocking_send(Input::Grew).is_err() {
            return;
        }
    }
}

/// Bytes written, and why not all.
fn write_all(mut spool: &File, bytes: &[u8]) -> (u64, Option<io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        match spool.write(&bytes[done..]) {
            Ok(0) => return (done as u64, Some(io::ErrorKind::WriteZero.into())),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done as u64, Some(error)),
        }
    }
    (done as u64, None)
}
