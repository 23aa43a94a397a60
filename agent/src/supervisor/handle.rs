//! The verbs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use laneyard_supervisor::frame::MAX_PIECE;
use laneyard_supervisor::protocol::{self, Answer, Call, Hello, Start, StepId, StepState, TreeEnd};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::SupervisorError;
use super::connection::Asked;

/// Every answer that needs no waiting inside comes within this.
const ANSWER: Duration = Duration::from_secs(30);

/// Handle of one connection to a supervisor. Clones share it; when the last is dropped, the connection closes.
#[derive(Clone, Debug)]
pub struct Supervisor {
    asks: mpsc::Sender<Asked>,
    hello: Arc<Hello>,
    uploads: Arc<AtomicU64>,
}

/// A file to make inside the container.
#[derive(Clone, Copy, Debug)]
pub struct PutFile<'a> {
    /// Absolute.
    pub path: &'a str,
    pub mode: u32,
    /// Mode of parents that have to be made.
    pub dir_mode: u32,
    pub content: &'a [u8],
}

/// Where a step's output goes: open them write-only with `O_APPEND`.
#[derive(Debug)]
pub struct Spools {
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Supervisor {
    pub(super) fn new(asks: mpsc::Sender<Asked>, hello: Hello) -> Self {
        Self { asks, hello: Arc::new(hello), uploads: Arc::new(AtomicU64::new(1)) }
    }

    /// What the supervisor knew when it called: every step so far and what became of it.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Absolute path of the executable that `name` means on `path` (as in `PATH`; relative entries count from `cwd`).
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn find(&self, name: &str, path: &str, cwd: &str) -> Result<Option<String>, SupervisorError> {
        let call = Call::Find { name: name.to_owned(), path: path.to_owned(), cwd: cwd.to_owned() };
        match self.ask("find", call).await? {
            Answer::Found { path } => Ok(path),
            other => Err(unexpected("find", &other)),
        }
    }

    /// Makes a file, and its parents. It must not exist, unless this supervisor made it earlier: then it is replaced.
    ///
    /// # Errors
    /// [`SupervisorError::Refused`] with the error number; those of the connection.
    pub async fn put_file(&self, file: PutFile<'_>) -> Result<(), SupervisorError> {
        let upload = self.uploads.fetch_add(1, Ordering::Relaxed);
        let (first, mut rest) = file.content.split_at(file.content.len().min(MAX_PIECE));
        let begin = protocol::PutFile {
            upload,
            path: file.path.to_owned(),
            mode: file.mode,
            dir_mode: file.dir_mode,
            bytes: first.to_vec(),
            last: rest.is_empty(),
        };
        self.done("put_file", Call::PutFile(begin)).await?;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(MAX_PIECE));
            rest = later;
            let more = Call::PutMore { upload, bytes: piece.to_vec(), last: rest.is_empty() };
            self.done("put_file", more).await?;
        }
        Ok(())
    }

    /// Content of a regular file, at most `max` bytes. No component of the path may be a link.
    ///
    /// # Errors
    /// [`SupervisorError::Refused`]: `EFBIG` above `max`, `ELOOP` for a link, `EINVAL` when it is no regular file.
    pub async fn get_file(&self, path: &str, max: u64) -> Result<Vec<u8>, SupervisorError> {
        let call = Call::GetFile { path: path.to_owned(), max };
        let (answer, content) = self.exchange("get_file", call, Vec::new(), Some(ANSWER)).await?;
        match answer {
            Answer::Done => Ok(content),
            other => Err(unexpected("get_file", &other)),
        }
    }

    /// Starts a step, unless one of that name was ever started: then its state is told and nothing else happens.
    /// A step that could not start is a state, not an error.
    ///
    /// # Errors
    /// Those of the connection; after [`SupervisorError::Lost`] the next hello tells whether it was started.
    pub async fn start(&self, start: Start, spools: Spools) -> Result<StepState, SupervisorError> {
        let descriptors = vec![spools.stdout, spools.stderr];
        match self.exchange("start", Call::Start(start), descriptors, Some(ANSWER)).await?.0 {
            Answer::Step(state) => Ok(state),
            other => Err(unexpected("start", &other)),
        }
    }

    /// Hands `bytes` to a step's stdin, as those that come at `offset` of all its input; what was taken earlier is
    /// skipped, so repeating is harmless. Returns the offset after them, when the pipe has taken them. Waits as long
    /// as the child does not read: drop it to stop waiting.
    ///
    /// # Errors
    /// [`SupervisorError::stdin_closed`] when nobody reads any more; those of the connection.
    pub async fn write_stdin(&self, step: &StepId, offset: u64, bytes: &[u8]) -> Result<u64, SupervisorError> {
        self.feed(step, offset, bytes, false).await
    }

    /// Ends a step's stdin after the `offset` bytes that were written.
    ///
    /// # Errors
    /// As for [`Supervisor::write_stdin`].
    pub async fn close_stdin(&self, step: &StepId, offset: u64) -> Result<(), SupervisorError> {
        self.feed(step, offset, b"", true).await.map(drop)
    }

    /// Hands the whole input to a step and ends it. May be repeated after a reconnect.
    ///
    /// # Errors
    /// As for [`Supervisor::write_stdin`].
    pub async fn write_all_stdin(&self, step: &StepId, input: &[u8]) -> Result<(), SupervisorError> {
        self.feed(step, 0, input, true).await.map(drop)
    }

    async fn feed(&self, step: &StepId, mut offset: u64, input: &[u8], close: bool) -> Result<u64, SupervisorError> {
        let mut rest = input;
        loop {
            let (piece, later) = rest.split_at(rest.len().min(MAX_PIECE));
            rest = later;
            let last = rest.is_empty();
            let call = Call::Stdin { step: step.clone(), offset, bytes: piece.to_vec(), close: close && last };
            match self.exchange("write_stdin", call, Vec::new(), None).await?.0 {
                Answer::Done => offset += piece.len() as u64,
                other => return Err(unexpected("write_stdin", &other)),
            }
            if last {
                return Ok(offset);
            }
        }
    }

    /// Signals the step's direct child only.
    ///
    /// # Errors
    /// [`SupervisorError::Refused`] with `ESRCH` when it has ended; those of the connection.
    pub async fn signal(&self, step: &StepId, signal: i32) -> Result<(), SupervisorError> {
        self.done("signal", Call::Signal { step: step.clone(), signal }).await
    }

    /// Ends every process of the container but the supervisor: TERM, `grace`, KILL.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn kill_tree(&self, grace: Duration) -> Result<TreeEnd, SupervisorError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let patience = grace.saturating_add(ANSWER);
        match self.exchange("kill_tree", Call::KillTree { grace_ms }, Vec::new(), Some(patience)).await?.0 {
            Answer::Tree(end) => Ok(end),
            other => Err(unexpected("kill_tree", &other)),
        }
    }

    /// Gives the supervisor a file (open for appending) in which it writes what happens to steps, so that their ends
    /// are known even when the container is gone. Give it anew on each connection.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn attach_journal(&self, journal: OwnedFd) -> Result<(), SupervisorError> {
        match self.exchange("journal", Call::Journal, vec![journal], Some(ANSWER)).await?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected("journal", &other)),
        }
    }

    /// Ends the supervisor, and with it the container and all that is in it.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn shutdown(&self) -> Result<(), SupervisorError> {
        self.done("shutdown", Call::Shutdown).await
    }

    async fn done(&self, verb: &'static str, call: Call) -> Result<(), SupervisorError> {
        match self.ask(verb, call).await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(verb, &other)),
        }
    }

    async fn ask(&self, verb: &'static str, call: Call) -> Result<Answer, SupervisorError> {
        Ok(self.exchange(verb, call, Vec::new(), Some(ANSWER)).await?.0)
    }

    async fn exchange(
        &self,
        verb: &'static str,
        call: Call,
        descriptors: Vec<OwnedFd>,
        patience: Option<Duration>,
    ) -> Result<(Answer, Vec<u8>), SupervisorError> {
        let lost = || SupervisorError::Lost { reason: "it closed".to_owned() };
        let (reply, answer) = oneshot::channel();
        let exchange = async {
            self.asks.send(Asked { call, descriptors, reply }).await.map_err(|_| lost())?;
            answer.await.map_err(|_| lost())
        };
        let answered = match patience {
            Some(waited) => {
                timeout(waited, exchange).await.map_err(|_| SupervisorError::Unanswered { verb, waited })?
            }
            None => exchange.await,
        };
        match answered? {
            (Answer::Failed { errno, message }, _) => Err(SupervisorError::Refused { verb, errno, message }),
            good => Ok(good),
        }
    }
}

fn unexpected(verb: &'static str, answer: &Answer) -> SupervisorError {
    SupervisorError::Lost { reason: format!("it answered {verb} with {answer:?}") }
}
