//! The attempt's journal: one line before each step, and the state as a fold over the lines.
//!
//! A line survives this process as soon as it is written. It is made to survive a power cut, which ends every container
//! too, where something would be done twice or lost without it ([`Entry::outlasts_power_cut`]).
//!
//! Live code and replay share [`Standing::apply`]. A torn last line is cut; a damaged line before it stops the start.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::bring_home::Collected;
use super::fault;
use super::outcome::Judged;
use crate::container::discover::EngineChoice;
use crate::event::StepRole;
use crate::snapshot::ProjectId;
use crate::wire::attempt::CancelSignal;

/// Something that is about to be done, or that was seen and must not be asked again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum Entry {
    /// The attempt was promised to the controller, by a worker for which this engine was named.
    Accepted {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        engine: Option<EngineChoice>,
    },
    /// Sockets, egress proxy and container are about to be made.
    Preparing,
    /// The snapshot is about to be fetched into this project of the worker's cache, which is pinned from now on.
    Fetching { project: ProjectId },
    /// It is here; its files are about to be written.
    Materializing,
    /// The worktree is whole.
    Materialized,
    /// A container of this name is about to be created, from this image, by the engine at this socket.
    ContainerIntent {
        name: String,
        image: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        engine: Option<EngineChoice>,
    },
    /// It exists and is about to be started.
    ContainerCreated { id: String },
    /// The supervisor answered; preflight begins.
    Preflight,
    /// A step is about to be started. For the workload this is the start intent: from here on it may have started.
    StepIntent { step: u32, role: StepRole },
    /// The preflight gave its verdict; the retry after this moment, if one follows.
    PreflightRetry {
        #[serde(with = "time::serde::rfc3339")]
        not_before: OffsetDateTime,
        first: String,
    },
    /// The attempt is to end early; written before any signal leaves.
    Ending { why: Ending, role: Option<StepRole> },
    /// The workload is over; what follows only reads.
    Settling,
    /// The result is known and will not change; the answer, if any, is on disk. The container is about to be removed.
    Judged { judged: Box<Judged> },
    /// Nobody writes in the worktree any more, and what was left is a tree in the worker's cache.
    Collected { collected: Box<Collected> },
    /// The controller has it, durably.
    ResultKept,
    /// The receipt is written.
    Terminal,
    /// The container, its network and its private files are gone.
    Removed,
    /// Another process took the attempt over.
    Adopted,
}

/// Why an attempt ends before its provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "cause")]
pub enum Ending {
    /// The caller's process received this signal.
    Cancel { signal: CancelSignal },
    /// The explicit deadline passed.
    Deadline,
    /// A step wrote more than it may.
    OutputLimit,
}

/// What the journal says so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// The worktree was made from the snapshot.
    pub materialized: bool,
    /// What the writer left.
    pub collected: Option<Collected>,
    /// It is durable at the controller.
    pub result_kept: bool,
    /// The engine of the attempt, whatever engine its next driver would choose.
    pub engine: Option<EngineChoice>,
    /// Name of the container that was or was about to be created.
    pub container_name: Option<String>,
    /// Reference of its image.
    pub image: Option<String>,
    /// Id of the container, once it was created.
    pub container: Option<String>,
    /// The workload may have started.
    pub workload_intended: bool,
    pub preflight_retry: Option<(OffsetDateTime, String)>,
    pub ending: Option<(Ending, Option<StepRole>)>,
    pub settling: bool,
    pub judged: Option<Judged>,
    pub terminal: bool,
    pub removed: bool,
    /// How often another process took over.
    pub adoptions: u32,
}

impl Standing {
    fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Preparing | Entry::Fetching { .. } | Entry::Materializing | Entry::Preflight => {}
            Entry::Accepted { engine } => self.engine.clone_from(engine),
            Entry::Materialized => self.materialized = true,
            Entry::Collected { collected } => self.collected = Some((**collected).clone()),
            Entry::ResultKept => self.result_kept = true,
            Entry::ContainerIntent { name, image, engine } => {
                if engine.is_some() {
                    self.engine.clone_from(engine);
                }
                self.container_name = Some(name.clone());
                self.image = Some(image.clone());
                self.container = None;
            }
            Entry::ContainerCreated { id } => self.container = Some(id.clone()),
            Entry::StepIntent { role, .. } => self.workload_intended |= *role == StepRole::Workload,
            Entry::PreflightRetry { not_before, first } => self.preflight_retry = Some((*not_before, first.clone())),
            Entry::Ending { why, role } => {
                self.ending.get_or_insert((*why, *role));
            }
            Entry::Settling => self.settling = true,
            Entry::Judged { judged } => self.judged = Some((**judged).clone()),
            Entry::Terminal => self.terminal = true,
            Entry::Removed => self.removed = true,
            Entry::Adopted => self.adoptions += 1,
        }
    }
}

impl Entry {
    /// True where the step must wait until the entry is on the disk. The others are durable with the next such entry; if a
    /// power cut takes them before, what they announce is over, or is done again without harm.
    const fn outlasts_power_cut(&self) -> bool {
        match self {
            // The assignment itself is durable, and no container exists yet.
            Self::Accepted { .. } | Self::Preparing | Self::Adopted => false,
            // The intent named the container: it is found by its label, and it does not run any more.
            Self::ContainerCreated { .. } | Self::Preflight => false,
            // What follows only reads until the result is known.
            Self::Settling => false,
            // The event that tells the end is made durable next, and carries the receipt.
            Self::Terminal => false,
            // What is gone is found to be gone.
            Self::Removed => false,
            Self::Fetching { .. }
            | Self::Materializing
            | Self::Materialized
            | Self::ContainerIntent { .. }
            | Self::StepIntent { .. }
            | Self::PreflightRetry { .. }
            | Self::Ending { .. }
            | Self::Judged { .. }
            | Self::Collected { .. }
            | Self::ResultKept => true,
        }
    }

    /// Name of the entry, as the journal spells it; also the name of its fault points.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Preparing => "preparing",
            Self::Fetching { .. } => "fetching",
            Self::Materializing => "materializing",
            Self::Materialized => "materialized",
            Self::Collected { .. } => "collected",
            Self::ResultKept => "result-kept",
            Self::ContainerIntent { .. } => "container-intent",
            Self::ContainerCreated { .. } => "container-created",
            Self::Preflight => "preflight",
            Self::StepIntent { role: StepRole::Probe, .. } => "step-intent-probe",
            Self::StepIntent { role: StepRole::Preflight, .. } => "step-intent-preflight",
            Self::StepIntent { role: StepRole::Workload, .. } => "step-intent-workload",
            Self::StepIntent { role: StepRole::Export, .. } => "step-intent-export",
            Self::PreflightRetry { .. } => "preflight-retry",
            Self::Ending { .. } => "ending",
            Self::Settling => "settling",
            Self::Judged { .. } => "judged",
            Self::Terminal => "terminal",
            Self::Removed => "removed",
            Self::Adopted => "adopted",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    seq: u64,
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    #[serde(flatten)]
    entry: Entry,
}

/// The open journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
    seq: u64,
    end: u64,
    standing: Standing,
}

impl Journal {
    /// Opens the journal at `path`, creating it (mode 0600) if absent, folds what it holds and cuts a torn last line.
    ///
    /// # Errors
    /// The file cannot be opened or read, or a line before the last one is damaged.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut journal = Self { file, seq: 0, end: 0, standing: Standing::default() };
        journal.fold(path)?;
        journal.file.set_len(journal.end)?;
        journal.file.seek(SeekFrom::Start(journal.end))?;
        Ok(journal)
    }

    /// What the journal at `path` says, without touching it: somebody else may be writing it.
    ///
    /// # Errors
    /// As for [`Journal::open`]; also when the file is absent.
    pub fn read(path: &Path) -> io::Result<Standing> {
        let mut journal = Self { file: File::open(path)?, seq: 0, end: 0, standing: Standing::default() };
        journal.fold(path)?;
        Ok(journal.standing)
    }

    fn fold(&mut self, path: &Path) -> io::Result<()> {
        let mut reader = BufReader::new(self.file.try_clone()?);
        let mut text = Vec::new();
        loop {
            text.clear();
            let read = reader.read_until(b'\n', &mut text)? as u64;
            if read == 0 || text.last() != Some(&b'\n') {
                return Ok(());
            }
            let line: Line = serde_json::from_slice(&text).map_err(|error| {
                let message = format!("journal `{}` is damaged after line {}: {error}", path.display(), self.seq);
                io::Error::new(io::ErrorKind::InvalidData, message)
            })?;
            self.standing.apply(&line.entry);
            self.seq = line.seq;
            self.end += read;
        }
    }

    /// What the journal says so far.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Appends an entry. Where its step must not be taken twice, it is on the disk when this returns.
    ///
    /// # Errors
    /// The device refuses; the step that the entry announces must not be taken then.
    pub fn append(&mut self, entry: Entry) -> io::Result<()> {
        fault::point("before", entry.name());
        let line = Line { seq: self.seq + 1, at: OffsetDateTime::now_utc(), entry };
        let mut text = serde_json::to_vec(&line).map_err(io::Error::other)?;
        text.push(b'\n');
        let mut written = self.file.write_all(&text);
        if line.entry.outlasts_power_cut() {
            written = written.and_then(|()| self.file.sync_data());
        }
        if let Err(error) = written {
            self.file.set_len(self.end)?;
            self.file.seek(SeekFrom::Start(self.end))?;
            return Err(error);
        }
        self.seq = line.seq;
        self.end += text.len() as u64;
        self.standing.apply(&line.entry);
        fault::point("after", line.entry.name());
        Ok(())
    }
}
