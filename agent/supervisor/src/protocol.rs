//! What travels on the socket. Down: [`Request`]. Up: [`Report`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Version of this protocol. An agent refuses a supervisor that speaks another one.
pub const PROTOCOL: u32 = 1;

/// Name of the agent's socket in the run directory.
pub const AGENT_SOCKET: &str = "agent.sock";

/// Name of the egress proxy's socket in the run directory.
pub const EGRESS_SOCKET: &str = "egress.sock";

/// Name of a step, unique in an attempt: it also names its spool files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(String);

impl StepId {
    /// Takes any text; the agent chooses it, and no path is ever built from it by the supervisor.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for StepId {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// From the agent: do this, and answer under this id. `descriptors` of them came with the frame by `SCM_RIGHTS`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    #[serde(default)]
    pub descriptors: u8,
    pub call: Call,
}

/// The verbs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Resolve an executable, as `execvp` would. Answer: [`Answer::Found`].
    Find { name: String, path: String, cwd: String },
    /// Create a file; `bytes` is its first piece. Answer: [`Answer::Done`].
    PutFile(PutFile),
    /// The next piece of the file that `upload` began. Answer: [`Answer::Done`].
    PutMore {
        upload: u64,
        #[serde(with = "crate::frame::base64_bytes")]
        bytes: Vec<u8>,
        last: bool,
    },
    /// Read a regular file; refused above `max` bytes. Answer: [`Report::Piece`] frames, then [`Answer::Done`].
    GetFile { path: String, max: u64 },
    /// Start a step, once. Descriptors: stdout spool, stderr spool (append). Answer: [`Answer::Step`].
    Start(Start),
    /// Bytes for a step's stdin from `offset` on; what was taken before is skipped. Answer: [`Answer::Done`] once the
    /// pipe has taken them, `EPIPE` when nobody reads any more.
    Stdin {
        step: StepId,
        offset: u64,
        #[serde(with = "crate::frame::base64_bytes")]
        bytes: Vec<u8>,
        close: bool,
    },
    /// Signal the step's direct child only. `ESRCH` when it has ended. Answer: [`Answer::Done`].
    Signal { step: StepId, signal: i32 },
    /// End every process but the supervisor: TERM, grace, KILL. Answer: [`Answer::Tree`].
    KillTree { grace_ms: u64 },
    /// Append step starts and ends to this descriptor from now on, and those not yet written. Answer: [`Answer::Done`].
    Journal,
    /// Exit with status 0, which ends the container and all that is in it. Answer: [`Answer::Done`].
    Shutdown,
}

/// Beginning of a file transfer. The file must not exist, unless this supervisor made it itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutFile {
    /// Number of this transfer, chosen by the agent.
    pub upload: u64,
    /// Absolute.
    pub path: String,
    pub mode: u32,
    /// Mode of parents that have to be made.
    pub dir_mode: u32,
    #[serde(with = "crate::frame::base64_bytes")]
    pub bytes: Vec<u8>,
    pub last: bool,
}

/// A step to start. Nothing is inherited: these are all variables.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    pub step: StepId,
    /// `argv[0]` is the absolute path of the executable.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Absolute.
    pub cwd: String,
    pub stdin: StdinMode,
    /// Bytes of stdout plus stderr that are spooled; the rest is read, counted and dropped.
    pub output_limit: u64,
    /// Milliseconds from now after which the supervisor ends the direct child itself (TERM, one second, KILL), also
    /// while no agent is connected.
    pub deadline_ms: Option<u64>,
}

/// What a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinMode {
    /// `/dev/null`.
    Null,
    /// A pipe that is filled and closed by [`Call::Stdin`].
    Pipe,
}

/// From the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// First frame of every connection.
    Hello { token: String, hello: Hello },
    /// Answer to the request with this id.
    Reply { id: u64, answer: Answer },
    /// Piece of a file, before the [`Report::Reply`] of the same id.
    Piece {
        id: u64,
        #[serde(with = "crate::frame::base64_bytes")]
        bytes: Vec<u8>,
    },
    /// The step's process runs.
    Started { step: StepId, pid: u32 },
    /// The spools have grown to this. At most every 50 ms, and always before `Exited` and `Drained`.
    Output { step: StepId, streams: Streams },
    /// The direct child has ended; descendants may still hold its pipes.
    Exited { step: StepId, end: End },
    /// Both pipes have reached end of file: the spools are complete.
    Drained { step: StepId, streams: Streams },
    /// The output limit is reached; later bytes are dropped.
    OutputLimit { step: StepId },
    /// A spool could not be written (`errno`); later bytes are dropped.
    SpoolFailed { step: StepId, errno: i32 },
}

/// All that the supervisor knows, said at each connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// As the supervisor sees itself: 1 in a container.
    pub pid: u32,
    /// Since the supervisor started.
    pub uptime_ms: u64,
    /// In the order of their starts.
    pub steps: Vec<StepState>,
    pub journal: bool,
    pub health: Health,
    /// Where the egress proxy is offered, such as `127.0.0.1:3128`; `None` when it could not be.
    pub proxy: Option<String>,
    /// What went wrong at start without ending the supervisor, in words.
    pub warnings: Vec<String>,
}

/// What became of processes that lost their parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Orphans whose end was collected.
    pub orphans_reaped: u64,
    /// Ended processes that nobody has collected, now.
    pub zombies: u32,
}

/// What is known of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepState {
    pub step: StepId,
    pub phase: Phase,
    pub streams: Streams,
    /// Both pipes have reached end of file.
    pub drained: bool,
    pub limit_reached: bool,
    /// Why the spool could not be written.
    pub spool_errno: Option<i32>,
    /// Bytes of stdin taken so far.
    pub stdin_bytes: u64,
}

/// Life of a step's direct child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It could not be started, and never will be: nothing of it ran.
    NotStarted {
        errno: i32,
        message: String,
    },
    Running {
        pid: u32,
    },
    Exited {
        pid: u32,
        end: End,
    },
}

/// How a direct child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub exit: Exit,
    /// From start to end, by the monotonic clock.
    pub elapsed_ms: u64,
    /// The supervisor itself ended it because its deadline passed.
    pub deadline: bool,
}

/// Exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// Bytes in the spools, and bytes read but dropped (limit or spool failure).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    pub stdout: u64,
    pub stderr: u64,
    pub dropped: u64,
}

/// Answers to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Done,
    /// Absolute path, `None` when there is no such executable.
    Found {
        path: Option<String>,
    },
    Step(StepState),
    Tree(TreeEnd),
    /// It was refused or did not work.
    Failed {
        errno: i32,
        message: String,
    },
}

/// What it took to end every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEnd {
    /// Processes found at first.
    pub found: u32,
    /// Still there after the grace, and killed.
    pub killed: u32,
    /// Still there at the end; 0 is the proof that nothing is left.
    pub left: u32,
    pub health: Health,
}

/// One line of the journal that a supervisor appends to the agent's descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalLine {
    /// Written before the process is made.
    Starting {
        step: StepId,
    },
    Started {
        step: StepId,
        pid: u32,
    },
    NotStarted {
        step: StepId,
        errno: i32,
    },
    Exited {
        step: StepId,
        end: End,
    },
    Drained {
        step: StepId,
        streams: Streams,
    },
}
