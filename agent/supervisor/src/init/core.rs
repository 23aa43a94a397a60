//! What the loop knows, and how it answers. Nothing here waits.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use laneyard_supervisor::protocol::{
    Answer, Call, Exit, Hello, JournalLine, PROTOCOL, Phase, Report, Request, Start, StepId, StepState,
};
use nix::libc;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use tokio::sync::mpsc;

use super::feeder::Piece;
use super::files::{self, Uploads, failed};
use super::journal::Journal;
use super::link::Outgoing;
use super::step::{Feeding, Step};
use super::tree::{self, TreeKill};
use super::{Input, tree::health};

/// Progress is told this often at most.
const PROGRESS: Duration = Duration::from_millis(50);

/// A step that was asked to stop by the engine has this long; engines give ten seconds.
const STOP_GRACE: Duration = Duration::from_secs(8);

/// Output of a step that has ended is waited for this long when the supervisor ends.
const LAST_OUTPUT: Duration = Duration::from_millis(200);

/// Shall the loop go on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Go,
    Exit(u8),
}

#[derive(Debug)]
pub(super) struct Core {
    started: Instant,
    token: String,
    proxy: Option<String>,
    warnings: Vec<String>,
    inputs: mpsc::Sender<Input>,
    outgoing: Option<Outgoing>,
    steps: Vec<Step>,
    journal: Journal,
    uploads: Uploads,
    tree_kill: Option<TreeKill>,
    orphans: u64,
    /// Pieces of stdin so far.
    pieces: u64,
    progress_at: Option<Instant>,
    stopping: Option<Stopping>,
}

#[derive(Clone, Copy, Debug)]
struct Stopping {
    code: u8,
    until: Instant,
}

impl Core {
    pub(super) fn new(
        token: String,
        inputs: mpsc::Sender<Input>,
        proxy: Option<String>,
        warnings: Vec<String>,
    ) -> Self {
        Self {
            started: Instant::now(),
            token,
            proxy,
            warnings,
            inputs,
            outgoing: None,
            steps: Vec::new(),
            journal: Journal::default(),
            uploads: Uploads::default(),
            tree_kill: None,
            orphans: 0,
            pieces: 0,
            progress_at: None,
            stopping: None,
        }
    }

    /// Nothing more is reported.
    pub(super) fn hang_up(&mut self) {
        self.outgoing = None;
    }

    pub(super) fn next_wake(&self) -> tokio::time::Instant {
        let far = Instant::now() + Duration::from_secs(3600);
        let steps = self.steps.iter().filter_map(Step::next_wake);
        let others =
            [self.progress_at, self.tree_kill.as_ref().map(TreeKill::next_wake), self.stopping.map(|stop| stop.until)];
        steps.chain(others.into_iter().flatten()).min().unwrap_or(far).into()
    }

    pub(super) fn on_input(&mut self, input: Input, now: Instant) -> Flow {
        match input {
            Input::Connected(outgoing) => {
                self.outgoing = Some(outgoing);
                let hello = self.hello(now);
                self.report(Report::Hello { token: self.token.clone(), hello });
            }
            Input::Disconnected => {
                self.outgoing = None;
                self.uploads.abandon();
                self.tree_kill = None;
                self.steps.iter_mut().for_each(|step| step.feeding.clear());
            }
            Input::Call { request: Request { call: Call::Shutdown, id, .. }, .. } => {
                self.answer(id, Answer::Done);
                return Flow::Exit(0);
            }
            Input::Call { request, descriptors } => {
                if let Some(answer) = self.on_call(request.id, request.call, descriptors, now) {
                    self.answer(request.id, answer);
                }
            }
            Input::Children => self.collect(now),
            Input::Stop { signal } => self.on_stop(signal, now),
            Input::Grew => self.progress_at = self.progress_at.or(Some(now)),
            Input::StreamEnded { step } => self.on_stream_end(step),
            Input::Fed { step, piece, errno } => self.on_fed(step, piece, errno),
        }
        Flow::Go
    }

    /// Whatever is due.
    pub(super) fn on_time(&mut self, now: Instant) -> Flow {
        self.steps.iter_mut().for_each(|step| step.on_time(now));
        if self.progress_at.is_some_and(|at| at <= now) {
            self.tell_progress(now);
        }
        if let Some((id, mut end)) = self.tree_kill.as_mut().and_then(|kill| Some((kill.id, kill.on_time(now)?))) {
            self.tree_kill = None;
            self.collect(now);
            end.health = health(self.orphans);
            self.answer(id, Answer::Tree(end));
        }
        self.stop_if_due(now)
    }

    fn on_call(&mut self, id: u64, call: Call, descriptors: Vec<OwnedFd>, now: Instant) -> Option<Answer> {
        let done = |result: std::io::Result<()>| Some(result.map_or_else(|error| failed(&error), |()| Answer::Done));
        match call {
            Call::Find { name, path, cwd } => Some(Answer::Found { path: files::find(&name, &path, &cwd) }),
            Call::PutFile(put) => done(self.uploads.begin(&put)),
            Call::PutMore { upload, bytes, last } => done(self.uploads.more(upload, &bytes, last)),
            Call::GetFile { path, max } => match (files::open_result(&path, max), self.outgoing.clone()) {
                (Ok(file), Some(outgoing)) => {
                    tokio::spawn(files::send_result(file, max, id, outgoing));
                    None
                }
                (Err(error), _) => Some(failed(&error)),
                (Ok(_), None) => None,
            },
            Call::Start(start) => Some(self.start(start, descriptors, now)),
            Call::Stdin { step, offset, bytes, close } => self.on_stdin(id, &step, offset, bytes, close),
            Call::Signal { step, signal } => match self.find(&step) {
                Some(index) => done(self.steps[index].signal(signal)),
                None => Some(no_such_step(&step)),
            },
            Call::KillTree { .. } if self.tree_kill.is_some() => Some(refused(libc::EBUSY, "another one is at work")),
            Call::KillTree { grace_ms } => {
                self.tree_kill = Some(TreeKill::begin(id, Duration::from_millis(grace_ms), now));
                None
            }
            Call::Journal => match descriptors.into_iter().next() {
                Some(descriptor) => {
                    self.journal.attach(descriptor);
                    Some(Answer::Done)
                }
                None => Some(refused(libc::EINVAL, "the descriptor is missing")),
            },
            Call::Shutdown => None, // handled by the caller
        }
    }

    fn start(&mut self, start: Start, descriptors: Vec<OwnedFd>, now: Instant) -> Answer {
        if let Some(index) = self.find(&start.step) {
            return Answer::Step(self.steps[index].state());
        }
        let Ok(spools) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return refused(libc::EINVAL, "two spools are needed");
        };
        if self.stopping.is_some() {
            return refused(libc::ESHUTDOWN, "the container is stopping");
        }
        self.journal.write(&JournalLine::Starting { step: start.step.clone() });
        let step = Step::launch(start, spools, self.steps.len(), &self.inputs, now);
        let (id, state) = (step.id.clone(), step.state());
        self.steps.push(step);
        match &state.phase {
            Phase::NotStarted { errno, .. } => self.journal.write(&JournalLine::NotStarted { step: id, errno: *errno }),
            Phase::Running { pid } | Phase::Exited { pid, .. } => {
                self.journal.write(&JournalLine::Started { step: id.clone(), pid: *pid });
                self.report(Report::Started { step: id, pid: *pid });
            }
        }
        Answer::Step(state)
    }

    fn on_stdin(&mut self, id: u64, step: &StepId, offset: u64, mut bytes: Vec<u8>, close: bool) -> Option<Answer> {
        let Some(index) = self.find(step) else { return Some(no_such_step(step)) };
        let step = &mut self.steps[index];
        let Some(known) = step.stdin_bytes.checked_sub(offset) else {
            return Some(refused(libc::EINVAL, "bytes before these are missing"));
        };
        bytes.drain(..bytes.len().min(usize::try_from(known).unwrap_or(usize::MAX)));
        let Some(feeder) = step.feeder.as_ref().filter(|_| bytes.is_empty() || !step.stdin_closed) else {
            return Some(refused(libc::EPIPE, "nobody reads it any more"));
        };
        let taken = bytes.len() as u64;
        self.pieces += 1;
        if !feeder.push(Piece { number: self.pieces, bytes, close }) {
            return Some(refused(libc::EAGAIN, "too many pieces wait already"));
        }
        step.stdin_bytes += taken;
        step.stdin_closed |= close;
        step.feeding.push(Feeding { piece: self.pieces, request: id });
        None
    }

    fn on_fed(&mut self, step: usize, piece: u64, errno: Option<i32>) {
        let feeding = &mut self.steps[step].feeding;
        let Some(position) = feeding.iter().position(|waiting| waiting.piece == piece) else { return };
        let request = feeding.remove(position).request;
        let answer = errno.map_or(Answer::Done, |errno| refused(errno, "nobody reads it any more"));
        self.answer(request, answer);
    }

    /// Takes the status of every child that has ended.
    fn collect(&mut self, now: Instant) {
        loop {
            let (pid, exit) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => continue,
            };
            let pid = pid.as_raw().cast_unsigned();
            match self.steps.iter().position(|step| step.pid() == Some(pid)) {
                Some(index) => self.on_exit(index, pid, exit, now),
                None => self.orphans += 1,
            }
        }
    }

    fn on_exit(&mut self, index: usize, pid: u32, exit: Exit, now: Instant) {
        self.tell_step_progress(index);
        let step = &mut self.steps[index];
        let end = step.on_exit(pid, exit, now);
        let id = step.id.clone();
        for Feeding { request, .. } in std::mem::take(&mut step.feeding) {
            self.answer(request, refused(libc::EPIPE, "the step has ended"));
        }
        self.journal.write(&JournalLine::Exited { step: id.clone(), end });
        self.report(Report::Exited { step: id, end });
    }

    fn on_stream_end(&mut self, index: usize) {
        if !self.steps[index].on_stream_end() {
            return;
        }
        self.tell_step_progress(index);
        let (step, streams) = (self.steps[index].id.clone(), self.steps[index].counters.streams());
        self.journal.write(&JournalLine::Drained { step: step.clone(), streams });
        self.report(Report::Drained { step, streams });
    }

    fn on_stop(&mut self, signal: i32, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        let code = u8::try_from(128 + signal).unwrap_or(u8::MAX);
        self.stopping = Some(Stopping { code, until: now + STOP_GRACE });
        for step in &self.steps {
            let _ = step.signal(signal); // most have ended long ago
        }
    }

    fn stop_if_due(&mut self, now: Instant) -> Flow {
        let Some(stopping) = &mut self.stopping else { return Flow::Go };
        if stopping.until <= now || self.steps.iter().all(|step| step.pid().is_none() && step.is_drained()) {
            return Flow::Exit(stopping.code);
        }
        if self.steps.iter().all(|step| step.pid().is_none()) {
            stopping.until = stopping.until.min(now + LAST_OUTPUT);
        }
        Flow::Go
    }

    fn tell_progress(&mut self, now: Instant) {
        // What grows from here on is announced anew. Looking again in a while costs nothing when nothing did.
        let grown = (0..self.steps.len()).filter(|&index| self.tell_step_progress(index)).count();
        self.progress_at = (grown > 0).then(|| now + PROGRESS);
    }

    /// True when there was something to tell.
    fn tell_step_progress(&mut self, index: usize) -> bool {
        let step = &mut self.steps[index];
        step.counters.seen();
        let (id, streams) = (step.id.clone(), step.counters.streams());
        if streams == step.reported {
            return false;
        }
        step.reported = streams;
        let limit = step.counters.limit_reached() && !std::mem::replace(&mut step.limit_reported, true);
        let failure = step.counters.errno().filter(|_| !std::mem::replace(&mut step.failure_reported, true));
        self.report(Report::Output { step: id.clone(), streams });
        if limit {
            self.report(Report::OutputLimit { step: id.clone() });
        }
        if let Some(errno) = failure {
            self.report(Report::SpoolFailed { step: id, errno });
        }
        true
    }

    fn hello(&self, now: Instant) -> Hello {
        Hello {
            protocol: PROTOCOL,
            pid: std::process::id(),
            uptime_ms: u64::try_from(now.duration_since(self.started).as_millis()).unwrap_or(u64::MAX),
            steps: self.states(),
            journal: self.journal.is_attached(),
            health: tree::health(self.orphans),
            proxy: self.proxy.clone(),
            warnings: self.warnings.clone(),
        }
    }

    fn states(&self) -> Vec<StepState> {
        self.steps.iter().map(Step::state).collect()
    }

    fn find(&self, step: &StepId) -> Option<usize> {
        self.steps.iter().position(|known| known.id == *step)
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        self.report(Report::Reply { id, answer });
    }

    /// An agent that does not read is hung up on: its next hello tells all, and a provider never waits for it.
    fn report(&mut self, report: Report) {
        if self.outgoing.as_ref().is_some_and(|outgoing| outgoing.try_send(report).is_err()) {
            self.outgoing = None;
        }
    }
}

fn refused(errno: i32, message: &str) -> Answer {
    Answer::Failed { errno, message: message.to_owned() }
}

fn no_such_step(step: &StepId) -> Answer {
    refused(libc::ENOENT, &format!("no step {step} was started"))
}
