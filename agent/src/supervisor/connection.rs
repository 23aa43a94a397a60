//! One connection to a supervisor, owned by one task.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use laneyard_supervisor::frame::{self, Decoder};
use laneyard_supervisor::protocol::{Answer, Call, End, Hello, Report, Request, StepId, Streams};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::Supervisor;

/// Notices that wait for their reader. Progress is dropped when full, as the next one says more.
const NOTICES: usize = 1024;

/// What happened inside, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Started {
        step: StepId,
        pid: u32,
    },
    /// The spools hold so many bytes now; coalesced, and always sent before `Exited` and `Drained`.
    Output {
        step: StepId,
        streams: Streams,
    },
    /// The direct child has ended. Descendants may still hold its pipes, so `Drained` may never come.
    Exited {
        step: StepId,
        end: End,
    },
    /// Both pipes are at end of file: the spools are complete.
    Drained {
        step: StepId,
        streams: Streams,
    },
    /// Later output is counted and dropped.
    OutputLimit {
        step: StepId,
    },
    /// The spool could not be written; later output is counted and dropped.
    SpoolFailed {
        step: StepId,
        errno: i32,
    },
    /// The connection is gone. Nothing comes after it.
    Lost {
        reason: String,
    },
}

/// Reading end of a connection.
#[derive(Debug)]
pub struct Notices {
    incoming: mpsc::Receiver<Notice>,
}

impl Notices {
    /// The next notice; [`Notice::Lost`] for ever once the connection is gone. Cancel safe.
    pub async fn next(&mut self) -> Notice {
        let gone = || Notice::Lost { reason: "closed".to_owned() };
        self.incoming.recv().await.unwrap_or_else(gone)
    }
}

/// A request on its way to the task.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) call: Call,
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) reply: oneshot::Sender<(Answer, Vec<u8>)>,
}

struct Waiting {
    reply: oneshot::Sender<(Answer, Vec<u8>)>,
    pieces: Vec<u8>,
    room: usize,
}

pub(super) fn open(stream: UnixStream, hello: Hello, rest: Decoder) -> (Supervisor, Notices) {
    let (asks, asked) = mpsc::channel(32);
    let (notices, incoming) = mpsc::channel(NOTICES);
    let connection = Connection { stream, decoder: rest, asked, notices, waiting: HashMap::new(), next_id: 1 };
    tokio::spawn(connection.run());
    (Supervisor::new(asks, hello), Notices { incoming })
}

struct Connection {
    stream: UnixStream,
    decoder: Decoder,
    asked: mpsc::Receiver<Asked>,
    notices: mpsc::Sender<Notice>,
    waiting: HashMap<u64, Waiting>,
    next_id: u64,
}

/// A frame that is not yet fully written; its descriptors leave with its first byte.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    descriptors: Vec<OwnedFd>,
}

impl Connection {
    async fn run(mut self) {
        let reason = match self.serve().await {
            Ok(()) => "closed by the agent".to_owned(),
            Err(error) => error.to_string(),
        };
        // Requests that wait are answered by the loss of their sender.
        let _ = self.notices.send(Notice::Lost { reason }).await;
    }

    async fn serve(&mut self) -> io::Result<()> {
        let mut outgoing = Outgoing::default();
        let mut buffer = vec![0; 64 << 10];
        self.dispatch()?;
        loop {
            let writing = outgoing.written < outgoing.bytes.len();
            tokio::select! {
                readable = self.stream.readable() => {
                    readable?;
                    match self.stream.try_read(&mut buffer) {
                        Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the supervisor hung up")),
                        Ok(n) => {
                            self.decoder.push(&buffer[..n]);
                            self.dispatch()?;
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
                writable = self.stream.writable(), if writing => {
                    writable?;
                    outgoing.push_to(&self.stream)?;
                }
                asked = self.asked.recv(), if !writing => match asked {
                    Some(asked) => outgoing = self.prepare(asked)?,
                    None => return Ok(()),
                },
            }
        }
    }

    fn prepare(&mut self, asked: Asked) -> io::Result<Outgoing> {
        let Asked { call, descriptors, reply } = asked;
        let id = self.next_id;
        self.next_id += 1;
        let room = match &call {
            Call::GetFile { max, .. } => usize::try_from(*max).unwrap_or(usize::MAX),
            _ => 0,
        };
        let count = u8::try_from(descriptors.len()).map_err(io::Error::other)?;
        let bytes = frame::encode(&Request { id, descriptors: count, call })?;
        self.waiting.insert(id, Waiting { reply, pieces: Vec::new(), room });
        Ok(Outgoing { bytes, written: 0, descriptors })
    }

    /// Handles every whole frame.
    fn dispatch(&mut self) -> io::Result<()> {
        while let Some(report) = self.decoder.next_frame().map_err(io::Error::other)? {
            let notice = match report {
                Report::Reply { id, answer } => {
                    if let Some(waiting) = self.waiting.remove(&id) {
                        let _ = waiting.reply.send((answer, waiting.pieces)); // the asker may have given up
                    }
                    continue;
                }
                Report::Piece { id, bytes } => {
                    let Some(waiting) = self.waiting.get_mut(&id) else { continue };
                    if waiting.pieces.len() + bytes.len() > waiting.room {
                        return Err(io::Error::other("the supervisor sent more of a file than was asked for"));
                    }
                    waiting.pieces.extend_from_slice(&bytes);
                    continue;
                }
                Report::Hello { .. } => return Err(io::Error::other("the supervisor said hello twice")),
                Report::Started { step, pid } => Notice::Started { step, pid },
                Report::Output { step, streams } => {
                    let _ = self.notices.try_send(Notice::Output { step, streams });
                    continue;
                }
                Report::Exited { step, end } => Notice::Exited { step, end },
                Report::Drained { step, streams } => Notice::Drained { step, streams },
                Report::OutputLimit { step } => Notice::OutputLimit { step },
                Report::SpoolFailed { step, errno } => Notice::SpoolFailed { step, errno },
            };
            match self.notices.try_send(notice) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => {} // only requests are of interest to the other side
                Err(mpsc::error::TrySendError::Full(_)) => return Err(io::Error::other("nobody reads the notices")),
            }
        }
        Ok(())
    }
}

impl Outgoing {
    fn push_to(&mut self, stream: &UnixStream) -> io::Result<()> {
        let rest = &self.bytes[self.written..];
        let sent = if self.descriptors.is_empty() {
            stream.try_write(rest)
        } else {
            let raw: Vec<_> = self.descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
            stream.try_io(Interest::WRITABLE, || {
                let rights = [ControlMessage::ScmRights(&raw)];
                let bytes = [io::IoSlice::new(rest)];
                Ok(sendmsg::<()>(stream.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None)?)
            })
        };
        match sent {
            Ok(n) => {
                self.written += n;
                self.descriptors.clear();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}
