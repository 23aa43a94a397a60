//! The attempt's container with its supervisor, as the attempt sees it: verbs that survive a lost connection, and the
//! state of every step. Where the container is gone, the supervisor's own record on our disk tells what it knew.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::container::cgroup::Cgroup;
use crate::container::{ContainerId, ContainerState, Engine, EngineError};
use crate::supervisor::{
    Health, Hello, JournalLine, Listener, Notice, Notices, Phase, PutFile, Spools, Start, StepId, StepState, Streams,
    Supervisor, SupervisorError, TreeEnd,
};

/// One wait for the supervisor's call before the container is looked at again.
const CALL: Duration = Duration::from_secs(2);

/// Between two questions to an engine that does not answer.
const ENGINE_PAUSE: Duration = Duration::from_millis(500);

/// An engine that is silent for so long, while the supervisor is silent too, is given up.
const ENGINE_LOST: Duration = Duration::from_secs(300);

/// A request is repeated on so many connections before its loss is an error.
const TRIES: usize = 5;

/// The place where the attempt happens.
#[derive(Debug)]
pub(super) struct Place {
    engine: Engine,
    container: ContainerId,
    listener: Listener,
    connection: Option<(Supervisor, Notices)>,
    steps: BTreeMap<StepId, StepState>,
    health: Health,
    warnings: Vec<String>,
    gone: Option<Gone>,
    /// PID 1 on the engine's host.
    first: Option<u32>,
    /// The kernel's counters of the container.
    cgroup: Option<Cgroup>,
    /// The supervisor's own record.
    record: PathBuf,
}

/// The container does not run any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It exists and has ended.
    Ended { state: ContainerState },
    /// The engine does not know it.
    Removed,
    /// The engine does not answer: nothing is known.
    EngineLost { reason: String },
}

/// What [`Place::change`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A step's state moved.
    Step,
    /// A new connection; what was being sent may have to be sent again.
    Reconnected,
    /// The container is gone.
    Gone,
}

/// The place did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the attempt's container ended before `{verb}`")]
    Gone { verb: &'static str },
    #[error("the supervisor's record `{}` cannot be used", path.display())]
    Record { path: PathBuf, source: io::Error },
}

impl Place {
    /// A place around a container that was created. `record` is the file of the supervisor's own record.
    #[must_use]
    pub(super) fn new(engine: Engine, container: ContainerId, listener: Listener, record: PathBuf) -> Self {
        Self {
            engine,
            container,
            listener,
            connection: None,
            steps: BTreeMap::new(),
            health: Health::default(),
            warnings: Vec::new(),
            gone: None,
            first: None,
            cgroup: None,
            record,
        }
    }

    /// The container.
    #[must_use]
    pub(super) fn container(&self) -> &ContainerId {
        &self.container
    }

    /// The engine.
    #[must_use]
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The kernel's counters of the container, where they can be seen.
    #[must_use]
    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// State of a step, `None` if it was never started.
    #[must_use]
    pub(super) fn step(&self, id: &StepId) -> Option<StepState> {
        self.steps.get(id).cloned()
    }

    /// True when the container does not run any more.
    #[must_use]
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// How the container went, if it is gone.
    #[must_use]
    pub(super) fn gone(&self) -> Option<&Gone> {
        self.gone.as_ref()
    }

    /// What the supervisor said of processes that lost their parent.
    #[must_use]
    pub(super) fn health(&self) -> Health {
        self.health
    }

    /// What the supervisor complained about at its start.
    #[must_use]
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The connection of this moment.
    #[must_use]
    pub(super) fn supervisor(&self) -> Option<Supervisor> {
        self.connection.as_ref().map(|(supervisor, _)| supervisor.clone())
    }

    /// Waits until something changed. Cancel-safe.
    ///
    /// # Errors
    /// The supervisor speaks another version, or its record cannot be used.
    pub(super) async fn change(&mut self) -> Result<Change, PlaceError> {
        if self.gone.is_some() {
            return Ok(Change::Gone);
        }
        let Some((_, notices)) = &mut self.connection else { return self.connect().await };
        match notices.next().await {
            Notice::Lost { reason } => {
                tracing::debug!(container = %self.container, reason, "supervisor connection lost");
                self.connection = None;
                self.connect().await
            }
            notice => {
                self.apply(notice);
                Ok(Change::Step)
            }
        }
    }

    /// The container was seen a moment ago: while it runs, its first process is known from now on.
    pub(super) fn running(&mut self, state: &ContainerState) {
        let ContainerState::Running { pid, .. } = state else { return };
        if self.first.replace(*pid) != Some(*pid) {
            self.cgroup = Cgroup::of(*pid, &self.container);
        }
        if let Ok(pid) = i32::try_from(*pid) {
            self.listener.expect_peer(pid);
        }
    }

    /// Waits for the supervisor's call, or for the proof that the container is gone. Cancel-safe.
    ///
    /// # Errors
    /// As for [`Place::change`].
    pub(super) async fn connect(&mut self) -> Result<Change, PlaceError> {
        let since = Instant::now();
        // The engine is asked only where the first call has not come by then.
        let mut known = self.connection.is_none() && self.steps.is_empty() && self.first.is_some();
        loop {
            if self.connection.is_some() {
                return Ok(Change::Reconnected);
            }
            if !std::mem::take(&mut known) {
                match self.engine.inspect(&self.container).await {
                    Ok(inspection) => match inspection.state {
                        state @ ContainerState::Running { .. } => self.running(&state),
                        state @ ContainerState::Exited { .. } => return self.lose(Gone::Ended { state }),
                        ContainerState::Created => {}
                    },
                    Err(error) if error.is_gone() => return self.lose(Gone::Removed),
                    Err(error) if error.is_unreachable() => {
                        if since.elapsed() > ENGINE_LOST {
                            return self.lose(Gone::EngineLost { reason: error.to_string() });
                        }
                        tokio::time::sleep(ENGINE_PAUSE).await;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            match self.listener.accept(CALL).await {
                Ok((supervisor, notices)) => {
                    self.fold(supervisor.hello().clone());
                    let record = open_record(&self.record)
                        .map_err(|source| PlaceError::Record { path: self.record.clone(), source })?;
                    // A supervisor that hangs up at once is simply called again.
                    if supervisor.attach_journal(record).await.is_ok() {
                        self.connection = Some((supervisor, notices));
                    }
                }
                Err(SupervisorError::NoCall { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Absolute path of an executable inside, `None` if there is none of that name.
    ///
    /// # Errors
    /// The container is gone, or the supervisor refuses.
    pub(super) async fn find(&mut self, name: &str, path: &str, cwd: &str) -> Result<Option<String>, PlaceError> {
        for _ in 0..TRIES {
            let supervisor = self.connected("find").await?;
            match supervisor.find(name, path, cwd).await {
                Err(error) if lost(&error) => self.connection = None,
                other => return Ok(other?),
            }
        }
        Err(PlaceError::Gone { verb: "find" })
    }

    /// Makes a file inside.
    ///
    /// # Errors
    /// The container is gone, or the supervisor refuses.
    pub(super) async fn put_file(&mut self, file: PutFile<'_>) -> Result<(), PlaceError> {
        for _ in 0..TRIES {
            let supervisor = self.connected("put a file").await?;
            match supervisor.put_file(file).await {
                Err(error) if lost(&error) => self.connection = None,
                other => return Ok(other?),
            }
        }
        Err(PlaceError::Gone { verb: "put a file" })
    }

    /// Reads a regular file inside, at most `max` bytes.
    ///
    /// # Errors
    /// The container is gone, or the supervisor refuses.
    pub(super) async fn get_file(&mut self, path: &str, max: u64) -> Result<Vec<u8>, PlaceError> {
        for _ in 0..TRIES {
            let supervisor = self.connected("get a file").await?;
            match supervisor.get_file(path, max).await {
                Err(error) if lost(&error) => self.connection = None,
                other => return Ok(other?),
            }
        }
        Err(PlaceError::Gone { verb: "get a file" })
    }

    /// Starts a step, at most once: after a lost connection the supervisor's next hello decides whether it was started.
    /// A container that went away meanwhile is no error: the step's state stays what the record says.
    ///
    /// # Errors
    /// A spool cannot be opened, or the supervisor refuses.
    pub(super) async fn start(
        &mut self,
        start: &Start,
        spools: impl Fn() -> io::Result<Spools>,
    ) -> Result<(), PlaceError> {
        for _ in 0..TRIES {
            let supervisor = match self.connected("start a step").await {
                Err(PlaceError::Gone { .. }) => return Ok(()),
                other => other?,
            };
            if self.steps.contains_key(&start.step) {
                return Ok(());
            }
            let opened = spools().map_err(|source| PlaceError::Record { path: self.record.clone(), source })?;
            match supervisor.start(start.clone(), opened).await {
                Ok(state) => {
                    self.steps.insert(state.step.clone(), state);
                    return Ok(());
                }
                Err(error) if lost(&error) => self.connection = None,
                Err(error) => return Err(error.into()),
            }
        }
        Err(PlaceError::Gone { verb: "start a step" })
    }

    /// Signals a step's direct child; false when it had ended, or when nobody is there to deliver it.
    ///
    /// # Errors
    /// The supervisor refuses for another reason than the child's end.
    pub(super) async fn signal(&mut self, id: &StepId, signal: i32) -> Result<bool, PlaceError> {
        let Some((supervisor, _)) = &self.connection else { return Ok(false) };
        match supervisor.signal(id, signal).await {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Some(nix::libc::ESRCH) || lost(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends every process but the supervisor; `None` when nobody is there to do it.
    pub(super) async fn kill_tree(&mut self, grace: Duration) -> Option<TreeEnd> {
        let (supervisor, _) = self.connection.as_ref()?;
        let end = supervisor.kill_tree(grace).await.ok()?;
        self.health = end.health;
        Some(end)
    }

    /// Asks the supervisor to end, and with it the container.
    pub(super) async fn shut_down(&mut self) {
        if let Some((supervisor, _)) = self.connection.take() {
            let _ = supervisor.shutdown().await;
        }
    }

    /// Process id of a direct child on this host, for people and probes; the inside one where it cannot be told.
    #[must_use]
    pub(super) fn host_pid(&self, inside: u32) -> u32 {
        self.first.and_then(|first| host_pid(first, inside)).unwrap_or(inside)
    }

    async fn connected(&mut self, verb: &'static str) -> Result<Supervisor, PlaceError> {
        loop {
            if let Some((supervisor, _)) = &self.connection {
                return Ok(supervisor.clone());
            }
            if self.gone.is_some() || self.connect().await? == Change::Gone {
                return Err(PlaceError::Gone { verb });
            }
        }
    }

    fn fold(&mut self, hello: Hello) {
        self.health = hello.health;
        self.warnings = hello.warnings;
        for state in hello.steps {
            self.steps.insert(state.step.clone(), state);
        }
    }

    fn apply(&mut self, notice: Notice) {
        let id = match &notice {
            Notice::Started { step, .. }
            | Notice::Output { step, .. }
            | Notice::Exited { step, .. }
            | Notice::Drained { step, .. }
            | Notice::OutputLimit { step }
            | Notice::SpoolFailed { step, .. } => step.clone(),
            Notice::Lost { .. } => return,
        };
        let Some(state) = self.steps.get_mut(&id) else { return };
        match notice {
            Notice::Started { pid, .. } => state.phase = Phase::Running { pid },
            Notice::Output { streams, .. } => state.streams = streams,
            Notice::Exited { end, .. } => exited(state, end),
            Notice::Drained { streams, .. } => {
                state.streams = streams;
                state.drained = true;
            }
            Notice::OutputLimit { .. } => state.limit_reached = true,
            Notice::SpoolFailed { errno, .. } => state.spool_errno = Some(errno),
            Notice::Lost { .. } => {}
        }
    }

    /// The container is gone: what the supervisor wrote down is all that will ever be known.
    fn lose(&mut self, gone: Gone) -> Result<Change, PlaceError> {
        self.connection = None;
        let text = match fs::read(&self.record) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(PlaceError::Record { path: self.record.clone(), source }),
        };
        // A torn or foreign line proves nothing and is passed over.
        for line in text.split(|byte| *byte == b'\n') {
            if let Ok(line) = serde_json::from_slice::<JournalLine>(line) {
                self.recall(line);
            }
        }
        for state in self.steps.values_mut() {
            // What is in the spools now is all there will be.
            state.streams.stdout = u64::MAX;
            state.streams.stderr = u64::MAX;
        }
        self.gone = Some(gone);
        Ok(Change::Gone)
    }

    fn recall(&mut self, line: JournalLine) {
        match line {
            JournalLine::Starting { .. } => {}
            JournalLine::Started { step, pid } => {
                self.recalled(step).phase = Phase::Running { pid };
            }
            JournalLine::NotStarted { step, errno } => {
                let message = nix::errno::Errno::from_raw(errno).desc().to_owned();
                self.recalled(step).phase = Phase::NotStarted { errno, message };
            }
            JournalLine::Exited { step, end } => exited(self.recalled(step), end),
            JournalLine::Drained { step, streams } => {
                let state = self.recalled(step);
                state.streams = streams;
                state.drained = true;
            }
        }
    }

    fn recalled(&mut self, step: StepId) -> &mut StepState {
        self.steps.entry(step.clone()).or_insert_with(|| StepState {
            step,
            phase: Phase::Running { pid: 0 },
            streams: Streams::default(),
            drained: false,
            limit_reached: false,
            spool_errno: None,
            stdin_bytes: 0,
        })
    }
}

fn exited(state: &mut StepState, end: crate::supervisor::End) {
    let pid = match state.phase {
        Phase::Running { pid } | Phase::Exited { pid, .. } => pid,
        Phase::NotStarted { .. } => 0,
    };
    state.phase = Phase::Exited { pid, end };
}

/// No more requests on this connection; the next one may serve.
const fn lost(error: &SupervisorError) -> bool {
    matches!(error, SupervisorError::Lost { .. } | SupervisorError::Unanswered { .. })
}

fn open_record(path: &std::path::Path) -> io::Result<std::os::fd::OwnedFd> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(Into::into)
}

/// Looks among the children of `first` for the process that is `inside` in its own namespace.
fn host_pid(first: u32, inside: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).ok()?;
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        line.and_then(|line| line.split_whitespace().next_back()) == Some(&inside.to_string())
    })
}
