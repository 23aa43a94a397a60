//! The one model invocation, and the result that its end and its output prove.

use serde_json::json;

use super::course::{Attempt, Outcome};
use super::journal::{Ending, Entry};
use super::outcome::Judged;
use super::place::Gone;
use super::reader::Reader;
use super::step::{self, Ended, Plan, StepEnd};
use super::stop::Stop;
use crate::container::ContainerState;
use crate::container::cause::{self, Cause, ContainerEnd, End, Evidence, Kill};
use crate::container::cgroup::Cgroup;
use crate::driver::{ChildExit, InnerState, Judgement, Verdict};
use crate::event::{EventBody, Phase, StepRole};
use crate::receipt::{FailurePhase, Status};
use crate::supervisor::StepId;

impl Attempt<'_> {
    /// The one model invocation.
    pub(super) async fn workload(&mut self, executable: &str, inner: InnerState) -> Result<Outcome, Stop> {
        let command = self.complete(&self.driver.workload(&self.lane, executable, inner));
        let id = StepId::new("workload");
        self.record.phase(Phase::Running);
        self.course.process_started = true;
        let reader = Reader::start(
            self.driver.transcript(&self.lane),
            step::spool(self.record, &id, "out"),
            step::spool(self.record, &id, "err"),
            self.record.log().clone(),
        )?;
        let plan = Plan {
            id: id.clone(),
            role: StepRole::Workload,
            phase: Phase::Running,
            step: &command,
            output_limit: self.assignment.limits.output,
        };
        let log = self.record.log().clone();
        let mut shown = (0, 0);
        let Some(place) = &mut self.place else {
            return Err(Stop::Launcher { message: "no container".to_owned(), code: None });
        };
        let end = step::run(self.record, place, &mut self.endings, plan, |stdout, stderr| {
            reader.available(stdout, stderr);
            if shown != (stdout, stderr) && stdout != u64::MAX {
                shown = (stdout, stderr);
                let _ = log.append(EventBody::Activity { stdout_bytes: stdout, stderr_bytes: stderr });
            }
        })
        .await?;
        if let Some((errno, text)) = end.not_started {
            let message = format!("`{executable}` could not be started: {text}");
            return Err(Stop::Launcher { message, code: Some(errno) });
        }
        self.record.enter(Entry::Settling)?;
        self.record.phase(Phase::Settling);
        let Some(finished) = reader.finish(end.exit).await else {
            let message = "the output could not be read to its end: the reading thread died".to_owned();
            return Err(Stop::Launcher { message, code: None });
        };
        if let Some(fault) = finished.fault {
            self.facts.insert("eventFault".to_owned(), json!(fault.to_string()));
        }
        Ok(self.settle(end, finished.judgement))
    }

    /// From the workload's end and its output to the result.
    fn settle(&mut self, end: StepEnd, judgement: Judgement) -> Outcome {
        let cause = self.cause_of_death(&end);
        if cause != Cause::Normal {
            self.facts.insert("causeOfDeath".to_owned(), json!(cause));
        }
        let exit = end.exit.receipt_code();
        if let Some(Ended { why, signalled }) = end.ended {
            return (self.ended(why, signalled, &judgement, exit), None);
        }
        if end.exit == ChildExit::Unknown {
            let cause = word(cause);
            let message = format!("the attempt's container ended before the provider's end was known (cause: {cause})");
            return (self.course.clone().ended(Status::ChildFailed, message, &judgement, None), None);
        }
        if end.dropped > 0 || end.spool_errno.is_some() {
            let why = end.spool_errno.map(|errno| nix::errno::Errno::from_raw(errno).desc());
            self.facts.insert("outputMissing".to_owned(), json!({"bytes": end.dropped, "reason": why}));
            let message = "part of the provider's output could not be kept: free space, or raise --output-limit";
            return (self.course.clone().ended(Status::ChildFailed, message.to_owned(), &judgement, exit), None);
        }
        if sandbox_broke_everything(&judgement) {
            let mut judged = self.course.clone().ended(
                Status::ChildFailed,
                "every command of the run failed because the CLI's own sandbox could not start in the container: run with --inner-sandbox off, or on an engine that lets it start".to_owned(),
                &judgement,
                exit,
            );
            judged.failure_phase = Some(FailurePhase::Postprocess);
            return (judged, None);
        }
        self.course.clone().judged(judgement, exit)
    }

    fn ended(&mut self, why: Ending, signalled: bool, judgement: &Judgement, exit: Option<i32>) -> Judged {
        let (status, signal, message) = match why {
            Ending::Cancel { signal } => (
                Status::Cancelled,
                signal.as_str(),
                if signalled {
                    format!("launcher received {}; signal was sent to child", signal.as_str())
                } else {
                    format!("launcher received {} after child exited", signal.as_str())
                },
            ),
            Ending::Deadline => {
                let ms = crate::receipt::js_number(self.assignment.timeout_ms.unwrap_or_default());
                (Status::TimedOut, "SIGTERM", format!("launcher exceeded the explicit {ms}ms deadline"))
            }
            Ending::OutputLimit => {
                let limit = bytesize::ByteSize(self.assignment.limits.output);
                let message = format!("the provider wrote more than {limit}: raise --output-limit if that is wanted");
                (Status::ChildFailed, "SIGTERM", message)
            }
        };
        let mut judged = self.course.clone().ended(status, message, judgement, exit);
        judged.signal = signalled.then(|| signal.to_owned());
        judged
    }

    /// Why the provider died, by all that can be known (field lesson L15).
    pub(super) fn cause_of_death(&self, end: &StepEnd) -> Cause {
        let Some(place) = &self.place else { return Cause::Normal };
        let container = match place.gone() {
            None => ContainerEnd::Running,
            Some(Gone::Ended { state: ContainerState::Exited { code, oom_killed, .. } }) => {
                ContainerEnd::Exited { code: *code, oom_killed: *oom_killed }
            }
            Some(Gone::Ended { .. } | Gone::Removed | Gone::EngineLost { .. }) => ContainerEnd::Lost,
        };
        // A child that had ended by itself was not ended by us, whatever came after.
        let reached = end.ended.filter(|ended| ended.signalled || end.exit == ChildExit::Unknown);
        let ours = reached.map(|ended| match ended.why {
            Ending::Cancel { .. } => Kill::Cancel,
            Ending::Deadline => Kill::Deadline,
            Ending::OutputLimit => Kill::OutputLimit,
        });
        let provider = match end.exit {
            ChildExit::Code(code) => Some(End::Exited(code)),
            ChildExit::Signal(signal) => Some(End::Signaled(signal)),
            ChildExit::Unknown => None,
        };
        let oom_kills = place.cgroup().and_then(Cgroup::oom_kills);
        cause::cause(&Evidence { provider, container, oom_kills, ours })
    }
}

/// A run in which commands were tried and none could start is no success, whatever the CLI says (field lesson L29).
fn sandbox_broke_everything(judgement: &Judgement) -> bool {
    let failures = judgement.sandbox_failures;
    let delivered = matches!(judgement.verdict, Verdict::Delivered(_) | Verdict::HandoffMalformed { .. });
    delivered && failures.commands > 0 && failures.failed == failures.commands
}

/// The receipt's word for a cause.
pub(super) fn word(cause: Cause) -> String {
    json!(cause).as_str().unwrap_or_default().to_owned()
}
