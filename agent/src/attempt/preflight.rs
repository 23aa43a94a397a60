//! The driver's own checks, inside the container and under the one deadline (runner 2.4).

use std::time::Duration;

use time::OffsetDateTime;

use super::course::{Attempt, SHORT_OUTPUT};
use super::journal::{Ending, Entry};
use super::plan::nothing_seen;
use super::step::{self, Ended, Plan, StepEnd};
use super::stop::{Stop, failed};
use super::workload::word;
use crate::descriptor::Provider;
use crate::driver::{ChildExit, PreflightVerdict, Step};
use crate::event::{Phase, StepRole};
use crate::receipt::{PreflightStatus, Status, cap};
use crate::supervisor::StepId;

const RETRY_DELAY: &str = "during authentication preflight retry delay";

/// Wait before Grok's one preflight retry (runner 3.4).
const RETRY_AFTER: Duration = Duration::from_millis(5_000);

impl Attempt<'_> {
    /// The driver's preflight, with Grok's one retry.
    pub(super) async fn preflight(&mut self, executable: &str) -> Result<(), Stop> {
        let Some(command) = self.driver.preflight(&self.lane, executable) else { return Ok(()) };
        self.course.preflight.argv = command.argv.clone();
        let first = self.preflight_once("preflight", &command).await?;
        let retry = self.assignment.provider == Provider::Grok
            && matches!(first, PreflightVerdict::Failed { status: Status::Unauthenticated, .. });
        if !retry {
            return self.conclude(first, None);
        }
        let first_evidence = evidence_of(&first);
        self.wait_for_retry(&first_evidence).await?;
        let second = self.preflight_once("preflight-2", &command).await?;
        self.conclude(second, Some(first_evidence))
    }

    async fn preflight_once(&mut self, id: &str, command: &Step) -> Result<PreflightVerdict, Stop> {
        let end = self.short_step(id, StepRole::Preflight, command).await?;
        if let Some(Ended { why, signalled }) = end.ended {
            return Err(self.preflight_ended(&end, why, signalled));
        }
        let result = step::capture(self.record, &StepId::new(id), end.exit)?;
        let verdict = self.driver.judge_preflight(&self.lane, &result);
        if let PreflightVerdict::Failed { status, message, evidence } = verdict {
            self.course.preflight.status = PreflightStatus::Failed;
            self.course.preflight.evidence.clone_from(&evidence);
            if self.assignment.provider == Provider::Grok && status == Status::Unauthenticated {
                return Ok(PreflightVerdict::Failed { status, message, evidence });
            }
            return Err(Stop::Failed { status, message, evidence, child: Some(end) });
        }
        Ok(verdict)
    }

    fn preflight_ended(&mut self, end: &StepEnd, why: Ending, signalled: bool) -> Stop {
        let (status, word, message) = match why {
            Ending::Cancel { signal } => (
                Status::Cancelled,
                PreflightStatus::Cancelled,
                format!("launcher received {} during preflight", signal.as_str()),
            ),
            Ending::Deadline => {
                (Status::TimedOut, PreflightStatus::TimedOut, "authentication preflight timed out".to_owned())
            }
            Ending::OutputLimit => {
                (Status::Unauthenticated, PreflightStatus::Failed, "the preflight wrote more than it may".to_owned())
            }
        };
        let evidence = nothing_seen();
        self.course.preflight.status = word;
        self.course.preflight.evidence.clone_from(&evidence);
        let ended = Some(Ended { why, signalled });
        Stop::Failed { status, message, evidence, child: Some(StepEnd { ended, ..end.clone() }) }
    }

    async fn wait_for_retry(&mut self, first: &str) -> Result<(), Stop> {
        if self.record.standing().preflight_retry.is_none() {
            let not_before = OffsetDateTime::now_utc() + RETRY_AFTER;
            self.record.enter(Entry::PreflightRetry { not_before, first: first.to_owned() })?;
        }
        self.record.phase(Phase::PreflightRetryWait);
        let not_before = self.record.standing().preflight_retry.as_ref().map(|(at, _)| *at);
        let left = not_before.map(|at| at - OffsetDateTime::now_utc()).and_then(|left| Duration::try_from(left).ok());
        tokio::select! {
            biased;
            why = self.endings.wait() => {
                self.record.enter(Entry::Ending { why, role: None })?;
                Err(Stop::Ending { why, phase: RETRY_DELAY })
            }
            () = tokio::time::sleep(left.unwrap_or_default()) => {
                self.record.phase(Phase::Preflight);
                Ok(())
            }
        }
    }

    /// Writes the preflight's verdict down; `first` is the evidence of a first try that failed.
    fn conclude(&mut self, verdict: PreflightVerdict, first: Option<String>) -> Result<(), Stop> {
        let both = |word: &str, second: &str| match &first {
            None => second.to_owned(),
            Some(first) => {
                let half = 1_950;
                format!("attempt 1 failed:\n{}\n\nattempt 2 {word}:\n{}", cap(first, half), cap(second, half))
            }
        };
        match verdict {
            PreflightVerdict::Passed { evidence } => {
                self.course.preflight.status = PreflightStatus::Passed;
                self.course.preflight.evidence = both("passed", &evidence);
                Ok(())
            }
            PreflightVerdict::BillingBlocked { evidence, message } => {
                self.course.preflight.status = PreflightStatus::Passed;
                self.course.preflight.evidence = both("passed", &evidence);
                Err(failed(Status::BillingPolicyBlocked, message))
            }
            PreflightVerdict::Failed { status, message, evidence } => {
                let evidence = both("failed", &evidence);
                self.course.preflight.status = PreflightStatus::Failed;
                self.course.preflight.evidence.clone_from(&evidence);
                Err(Stop::Failed { status, message, evidence, child: None })
            }
        }
    }

    pub(super) async fn short_step(&mut self, id: &str, role: StepRole, step: &Step) -> Result<StepEnd, Stop> {
        let step = self.complete(step);
        let plan = Plan { id: StepId::new(id), role, phase: Phase::Preflight, step: &step, output_limit: SHORT_OUTPUT };
        let Some(place) = &mut self.place else {
            return Err(Stop::Launcher { message: "no container".to_owned(), code: None });
        };
        let end = step::run(self.record, place, &mut self.endings, plan, |_, _| {}).await?;
        if place.is_gone() && end.exit == ChildExit::Unknown {
            let cause = word(self.cause_of_death(&end));
            let message = format!("the attempt's container ended during preflight (cause: {cause})");
            return Err(Stop::Launcher { message, code: None });
        }
        if let Some((errno, text)) = &end.not_started {
            let message = format!("`{}` could not be started: {text}", step.argv.first().map_or("", String::as_str));
            return Err(Stop::Launcher { message, code: Some(*errno) });
        }
        Ok(end)
    }
}

fn evidence_of(verdict: &PreflightVerdict) -> String {
    match verdict {
        PreflightVerdict::Passed { evidence }
        | PreflightVerdict::Failed { evidence, .. }
        | PreflightVerdict::BillingBlocked { evidence, .. } => evidence.clone(),
    }
}
