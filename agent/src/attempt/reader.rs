//! Reads the workload's spool files as they grow, on a thread of its own: parsing a flood never delays a signal.
//! Memory does not grow with the output: bytes go from the file through the transcript into the event log.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::driver::{ChildExit, Judgement, Transcript};
use crate::event::EventBody;
use crate::eventlog::EventLog;

const CHUNK: usize = 128 * 1024;

/// Handle of the reading thread.
#[derive(Debug)]
pub(super) struct Reader {
    commands: mpsc::Sender<Command>,
    finished: oneshot::Receiver<Finished>,
}

/// The judgement, and what could not be kept on the way to it.
#[derive(Debug)]
pub(super) struct Finished {
    pub judgement: Judgement,
    /// The event log or the spool failed: events may be missing, and the reader says why.
    pub fault: Option<io::Error>,
}

enum Command {
    /// So many bytes of each stream are in the spool.
    Available { stdout: u64, stderr: u64 },
    /// Nothing follows.
    Finish(ChildExit),
}

struct Stream {
    path: PathBuf,
    file: Option<File>,
    read: u64,
}

impl Stream {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, read: 0 }
    }

    /// Hands over what the spool holds up to `limit`, in chunks.
    fn feed(&mut self, limit: u64, buffer: &mut [u8], mut sink: impl FnMut(&[u8])) -> io::Result<()> {
        while self.read < limit {
            let file = match &mut self.file {
                Some(file) => file,
                None => self.file.insert(File::open(&self.path)?),
            };
            let wanted = usize::try_from(limit - self.read).unwrap_or(CHUNK).min(buffer.len());
            let got = file.read(&mut buffer[..wanted])?;
            if got == 0 {
                break;
            }
            self.read += got as u64;
            sink(&buffer[..got]);
        }
        Ok(())
    }
}

impl Reader {
    /// Starts reading `stdout` and `stderr` from their beginning. Provider events that the log already has (an
    /// earlier process wrote them) are not written again: the same bytes give the same events.
    ///
    /// # Errors
    /// The log cannot be read, or no thread can be made.
    pub(super) fn start(
        transcript: Box<dyn Transcript>,
        stdout: PathBuf,
        stderr: PathBuf,
        log: EventLog,
    ) -> io::Result<Self> {
        let known = provider_events(&log)?;
        let (commands, queue) = mpsc::channel();
        let (done, finished) = oneshot::channel();
        let work = Work {
            transcript,
            stdout: Stream::new(stdout),
            stderr: Stream::new(stderr),
            log,
            known,
            events: Vec::new(),
            fault: None,
        };
        std::thread::Builder::new().name("transcript".to_owned()).spawn(move || {
            // The attempt may be gone; then nobody wants the judgement.
            if let Some(result) = work.run(&queue) {
                let _ = done.send(result);
            }
        })?;
        Ok(Self { commands, finished })
    }

    /// Tells how much is there to read.
    pub(super) fn available(&self, stdout: u64, stderr: u64) {
        let _ = self.commands.send(Command::Available { stdout, stderr });
    }

    /// Reads the rest and judges. `None` only if the thread panicked.
    pub(super) async fn finish(self, exit: ChildExit) -> Option<Finished> {
        let _ = self.commands.send(Command::Finish(exit));
        self.finished.await.ok()
    }
}

struct Work {
    transcript: Box<dyn Transcript>,
    stdout: Stream,
    stderr: Stream,
    log: EventLog,
    /// Provider events that are in the log already and come first again.
    known: u64,
    events: Vec<EventBody>,
    fault: Option<io::Error>,
}

impl Work {
    fn run(mut self, queue: &mpsc::Receiver<Command>) -> Option<Finished> {
        let mut buffer = vec![0; CHUNK];
        while let Ok(command) = queue.recv() {
            match command {
                Command::Available { stdout, stderr } => self.read_up_to(stdout, stderr, &mut buffer),
                Command::Finish(exit) => {
                    self.read_up_to(u64::MAX, u64::MAX, &mut buffer);
                    let Self { transcript, log, mut known, mut events, mut fault, .. } = self;
                    let judgement = transcript.finish(exit, &mut events);
                    keep(&log, &mut events, &mut known, &mut fault);
                    return Some(Finished { judgement, fault });
                }
            }
        }
        None
    }

    fn read_up_to(&mut self, stdout: u64, stderr: u64, buffer: &mut [u8]) {
        let Self { transcript, log, known, events, fault, .. } = self;
        let out = self.stdout.feed(stdout, buffer, |bytes| {
            transcript.stdout(bytes, events);
            keep(log, events, known, fault);
        });
        let err = self.stderr.feed(stderr, buffer, |bytes| {
            transcript.stderr(bytes, events);
            keep(log, events, known, fault);
        });
        for result in [out, err] {
            // A spool that was never made (the step did not start) is simply empty.
            if let Err(error) = result
                && error.kind() != io::ErrorKind::NotFound
            {
                fault.get_or_insert(error);
            }
        }
    }
}

fn keep(log: &EventLog, events: &mut Vec<EventBody>, known: &mut u64, fault: &mut Option<io::Error>) {
    for body in events.drain(..) {
        if !body.is_live() && *known > 0 {
            *known -= 1;
        } else if let Err(error) = log.append(body) {
            fault.get_or_insert(error);
        }
    }
}

/// How many kept events of the log came from a transcript.
fn provider_events(log: &EventLog) -> io::Result<u64> {
    let mut count = 0;
    let mut after = 0;
    loop {
        let events = log.read_from(after, 512)?;
        let Some(last) = events.last() else { return Ok(count) };
        after = last.seq;
        count += events
            .iter()
            .filter(|event| {
                !matches!(event.body, EventBody::Status { .. } | EventBody::Terminal { .. } | EventBody::Gap { .. })
            })
            .count() as u64;
    }
}
