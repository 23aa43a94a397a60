//! The worker: accepts attempts, drives each on a task of its own, adopts what a killed process left, sweeps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::assignment::Assignment;
use crate::attempt::directory::{Accepted, AttemptDir, DirectoryError, RELEASED, StateDir};
use crate::attempt::durable::Durable;
use crate::attempt::late::Late;
use crate::attempt::{self, Deps, kept};
use crate::container::discover::DiscoverError;
use crate::container::{Engine, EngineError};
use crate::eventlog::EventLog;
use crate::ids::{AttemptId, Generation};
use crate::link::{Refusal, Runner};
use crate::receipt::Status;
use crate::retention::{Rules, attempts, images};
use crate::transport::Call;
use crate::wire::attempt::CancelSignal;
use crate::wire::paths;
use crate::wire::snapshot::{Kept, Let};
use crate::wire::worker::{Held, WorkerFacts};

/// How often leftovers are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(300);

/// How often the controller is asked which kept worktrees may go.
const LET_GO_EVERY: Duration = Duration::from_secs(10);

/// How often it is looked for results that the controller should have.
const DELIVER_EVERY: Duration = Duration::from_secs(5);

/// One worker process (or the worker side of an embedded command).
#[derive(Debug)]
pub struct Worker {
    deps: Arc<Deps>,
    facts: WorkerFacts,
    held: Mutex<BTreeMap<AttemptId, HeldAttempt>>,
    tasks: TaskTracker,
    /// Results that stayed here.
    late: Late,
}

#[derive(Debug)]
struct HeldAttempt {
    generation: Generation,
    log: EventLog,
    cancel: watch::Sender<Option<CancelSignal>>,
    terminal: Arc<AtomicBool>,
    /// The acceptance, on its way to the disk.
    durable: Durable,
}

impl Worker {
    /// A worker over a state directory. Nothing is started or looked for yet.
    #[must_use]
    pub fn new(deps: Deps, facts: WorkerFacts) -> Arc<Self> {
        Arc::new(Self {
            deps: Arc::new(deps),
            facts,
            held: Mutex::default(),
            tasks: TaskTracker::new(),
            late: Late::default(),
        })
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> &StateDir {
        &self.deps.state
    }

    /// Looks for the engine now rather than with the first attempt, and returns as soon as one answers. What it is becomes
    /// known in the background.
    ///
    /// # Errors
    /// None answers; the error names every candidate that was tried.
    pub async fn find_engine(&self) -> Result<(), DiscoverError> {
        let deps = self.deps.clone();
        let found = tokio::spawn(async move { deps.engine.get().await.map(drop) });
        tokio::select! {
            biased;
            () = self.deps.engine.answer() => Ok(()),
            found = found => found.unwrap_or(Ok(())), // it panicked: whoever needs the engine looks again
        }
    }

    /// Attempts here that no process drives, and whose receipt is not delivered yet or whose sockets are still there.
    ///
    /// # Errors
    /// The state directory cannot be listed.
    pub fn orphans(state: &StateDir) -> Result<Vec<AttemptId>, DirectoryError> {
        let mut orphans = state.unfinished()?;
        orphans.retain(|attempt| !state.is_driven(*attempt));
        Ok(orphans)
    }

    /// Takes over one attempt that no process drives; one that this worker holds already is left as it is.
    ///
    /// # Errors
    /// The attempt is unknown here or another process drives it.
    pub fn adopt(self: &Arc<Self>, attempt: AttemptId) -> Result<(), AdoptError> {
        if self.holds(attempt) {
            return Ok(());
        }
        let (dir, accepted) = self.deps.state.adopt(attempt)?;
        self.take(dir, accepted, true)
    }

    /// Takes over everything that no process drives and that is `wanted`. Attempts that cannot be taken over are logged
    /// and left.
    pub fn adopt_all(self: &Arc<Self>, wanted: impl Fn(AttemptId) -> bool) {
        match Self::orphans(&self.deps.state) {
            Ok(orphans) => {
                for attempt in orphans.into_iter().filter(|attempt| wanted(*attempt)) {
                    if let Err(error) = self.adopt(attempt) {
                        tracing::warn!(%attempt, %error, "the attempt was not taken over");
                    }
                }
            }
            Err(error) => tracing::error!(%error, "attempts left by a former process could not be listed"),
        }
    }

    /// Removes, now and from time to time, what carries our labels and belongs to no attempt that goes on.
    pub async fn sweep_until(&self, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {
                    if let Err(error) = self.sweep().await {
                        tracing::warn!(%error, "the sweep did not finish");
                    }
                }
            }
        }
    }

    /// Removes, now and from time to time, kept worktrees that somebody has let go at the controller.
    pub async fn let_go_until(&self, shutdown: CancellationToken) {
        let Some(supply) = &self.deps.supply else { return };
        let mut ticks = tokio::time::interval(LET_GO_EVERY);
        let mut connected = true;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
                () = self.late.news() => {}
            }
            let kept = match kept::list(&self.deps.state) {
                Ok(kept) => kept,
                Err(error) => {
                    tracing::warn!(%error, "kept worktrees could not be listed");
                    continue;
                }
            };
            if kept.is_empty() {
                continue;
            }
            let waiting = self.late.waiting(&kept);
            let attempts = kept.into_iter().map(|kept| kept.attempt).collect();
            let path = paths::worker_part(&self.deps.worker, "kept");
            let Ok(call) = Call::post(&path, &Kept { attempts, waiting }) else { continue };
            let answer = supply.transport.json::<Let>(call).await;
            if !std::mem::replace(&mut connected, answer.is_ok()) && connected {
                self.late.reconnected();
            }
            match answer {
                Ok(answer) => answer.release.into_iter().for_each(|attempt| {
                    if let Err(error) = kept::release(&self.deps.state, &supply.cache, attempt) {
                        tracing::warn!(%attempt, %error, "a worktree that was let go could not be removed");
                    }
                }),
                Err(error) => tracing::debug!(%error, "the controller was not asked which worktrees may go"),
            }
        }
    }

    /// Offers, now and again, the results that the controller did not take when their attempts ended.
    pub async fn deliver_late_until(&self, shutdown: CancellationToken) {
        if self.deps.supply.is_none() {
            return;
        }
        let mut ticks = tokio::time::interval(DELIVER_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let delivering = async {
            loop {
                ticks.tick().await;
                self.late.deliver(&self.deps).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = delivering => {}
        }
    }

    /// Takes away what the rules do not keep, now and from time to time.
    pub async fn retain_until(&self, rules: Rules, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(rules.every);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let state = self.deps.state.clone();
            let applied = tokio::task::spawn_blocking(move || retain(&state, &rules)).await;
            if let Err(error) = applied {
                tracing::warn!(%error, "retention was not applied");
            }
            if let Some(engine) = self.deps.engine.found().await
                && let Err(error) = retain_images(&engine, &rules).await
            {
                tracing::warn!(%error, "retention was not applied to images");
            }
        }
    }

    /// One sweep; see [`attempt::sweep`].
    ///
    /// # Errors
    /// The engine does not answer or refuses.
    pub async fn sweep(&self) -> Result<(), attempt::SweepError> {
        attempt::sweep(&self.deps).await
    }

    /// Waits until no attempt is driven here any more.
    pub async fn idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    fn take(self: &Arc<Self>, dir: AttemptDir, accepted: Accepted, adopted: bool) -> Result<(), AdoptError> {
        let attempt = dir.attempt();
        let failed = |source| AdoptError::Damaged { attempt, source };
        let log = EventLog::open(&dir.file("events.jsonl")).map_err(failed)?;
        let (cancel, cancelled) = watch::channel(None);
        let terminal = Arc::new(AtomicBool::new(false));
        let driver =
            attempt::begin(self.deps.clone(), dir, &accepted, log.clone(), cancelled, adopted).map_err(failed)?;
        let durable = driver.durable();
        let entry = HeldAttempt { generation: accepted.generation, log, cancel, terminal: terminal.clone(), durable };
        self.lock().insert(attempt, entry);
        self.tasks.spawn(async move {
            driver.drive().await;
            terminal.store(true, Ordering::Release);
        });
        Ok(())
    }

    fn accept(self: &Arc<Self>, assignment: Assignment, generation: Generation) -> Result<(), Refusal> {
        let attempt = assignment.attempt;
        if let Some(held) = self.lock().get_mut(&attempt) {
            held.generation = generation.max(held.generation);
            return Ok(());
        }
        let state = &self.deps.state;
        if state.accepted(attempt).is_ok() {
            // Accepted by a process that is gone: it goes on where that one was.
            return self.adopt(attempt).map_err(|error| refusal(&error));
        }
        self.check_account(&assignment)?;
        let accepted = Accepted { generation, assignment };
        let taken = match state.accept(&accepted) {
            Ok(dir) => self.take(dir, accepted, false),
            Err(error) => Err(error.into()),
        };
        taken.map_err(|error| {
            // Nothing of a refused attempt may be found, and run, later.
            state.forget(attempt);
            refusal(&error)
        })
    }

    /// The account that the attempt names must be one of ours.
    fn check_account(&self, assignment: &Assignment) -> Result<(), Refusal> {
        let Some(id) = &assignment.instance else { return Ok(()) };
        match self.deps.instances.get(id) {
            // Another worker may have it.
            None => Err(Refusal::Busy(format!("instance {id} is not configured here"))),
            Some(instance) if instance.driver != assignment.provider => {
                let (theirs, ours) = (assignment.provider, instance.driver);
                Err(Refusal::Unfit(format!("instance {id} is an account of {ours}, not of {theirs}")))
            }
            Some(_) => Ok(()),
        }
    }

    fn holds(&self, attempt: AttemptId) -> bool {
        self.lock().contains_key(&attempt)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptId, HeldAttempt>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn retain(state: &StateDir, rules: &Rules) {
    attempts::sweep(state);
    let items = match attempts::plan(state, rules, std::time::SystemTime::now()) {
        Ok(items) => items,
        Err(error) => return tracing::warn!(%error, "retention was not applied"),
    };
    for item in items.into_iter().filter(|item| !item.kept) {
        match attempts::remove(state, &item) {
            Ok(true) => {
                tracing::info!(attempt = item.subject, kind = item.kind.as_str(), reason = item.reason, "removed");
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "retention was not applied to an attempt"),
        }
    }
}

async fn retain_images(engine: &Engine, rules: &Rules) -> Result<(), EngineError> {
    for item in images::plan(engine, rules, std::time::SystemTime::now()).await? {
        if images::remove(engine, &item).await? {
            tracing::info!(image = item.subject, reason = item.reason, "removed");
        }
    }
    Ok(())
}

/// An attempt could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("the records of attempt {attempt} cannot be used; its directory is left as it is")]
    Damaged { attempt: AttemptId, source: std::io::Error },
}

impl AdoptError {
    /// True when the same attempt may well be taken later: somebody holds it, or the disk is full now.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Directory(DirectoryError::Busy { .. }) => true,
            Self::Directory(DirectoryError::Io { source, .. }) | Self::Damaged { source, .. } => passes(source),
            Self::Directory(DirectoryError::Unknown { .. }) => false,
        }
    }
}

/// A disk that is full now, or a process that has too much open now.
fn passes(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, OutOfMemory, QuotaExceeded, ResourceBusy, StorageFull, WouldBlock};
    let kinds = [Interrupted, OutOfMemory, QuotaExceeded, ResourceBusy, StorageFull, WouldBlock];
    let open_files = [nix::libc::EMFILE, nix::libc::ENFILE];
    kinds.contains(&error.kind()) || error.raw_os_error().is_some_and(|code| open_files.contains(&code))
}

/// Shared handle of a worker: what the link talks to.
#[derive(Clone, Debug)]
pub struct LocalRunner(pub Arc<Worker>);

impl Runner for LocalRunner {
    fn offer(&self, assignment: Assignment, generation: Generation) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let attempt = assignment.attempt;
            self.0.accept(assignment, generation)?;
            // Its driver begins meanwhile, and makes nothing before. Should the device refuse, it ends the attempt.
            let durable = self.0.lock().get(&attempt).map(|held| held.durable.clone());
            if let Some(durable) = durable
                && let Err(error) = durable.wait().await
            {
                tracing::error!(%attempt, %error, "the acceptance is not known to be on the disk");
            }
            Ok(())
        })
    }

    fn cancel(&self, attempt: AttemptId, signal: CancelSignal) {
        if let Some(held) = self.0.lock().get(&attempt) {
            // The first request stays (runner section 9).
            held.cancel.send_if_modified(|asked| asked.is_none() && asked.replace(signal).is_none());
        }
    }

    fn release(&self, attempt: AttemptId) {
        // Said once the terminal event is durable elsewhere; what this process still removes, it goes on removing. A power
        // cut may take the marker: the attempt is then told once more.
        let marker = self.0.deps.state.attempt_path(attempt).join(RELEASED);
        match std::fs::File::create(&marker) {
            Ok(_) => {
                self.0.lock().remove(&attempt);
            }
            Err(error) => tracing::warn!(%attempt, %error, "the release could not be noted; it will be asked again"),
        }
    }

    fn delivered(&self, attempt: AttemptId, status: Status) {
        if let Err(error) = self.0.deps.state.note_delivered(attempt, status) {
            tracing::warn!(%attempt, %error, "what was delivered could not be noted");
        }
    }

    fn attempts(&self) -> Vec<Held> {
        let held = self.0.lock();
        held.iter()
            .map(|(attempt, held)| Held {
                attempt: *attempt,
                generation: held.generation,
                last_seq: held.log.last_seq(),
                terminal: held.terminal.load(Ordering::Acquire),
            })
            .collect()
    }

    fn damaged(&self) -> Vec<AttemptId> {
        let state = &self.0.deps.state;
        let mut left = state.unfinished().unwrap_or_else(|error| {
            tracing::error!(%error, "attempts left by a former process could not be listed");
            Vec::new()
        });
        left.retain(|attempt| !self.0.holds(*attempt) && !state.attempt_path(*attempt).join(RELEASED).exists());
        left
    }

    fn log(&self, attempt: AttemptId) -> Option<EventLog> {
        self.0.lock().get(&attempt).map(|held| held.log.clone())
    }

    fn answer(&self, attempt: AttemptId) -> Option<PathBuf> {
        let path = self.0.deps.state.attempt_path(attempt).join("answer");
        path.exists().then_some(path)
    }

    fn facts(&self) -> WorkerFacts {
        self.0.facts.clone()
    }
}

/// Only what may pass is asked for again.
fn refusal(error: &AdoptError) -> Refusal {
    if error.may_pass() { Refusal::Busy(describe(error)) } else { Refusal::Unfit(describe(error)) }
}

fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
