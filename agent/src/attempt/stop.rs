//! Why an attempt stops before its workload has a result, and the receipt's words for it (runner 2.7).

use std::io;

use super::course::Attempt;
use super::journal::Ending;
use super::outcome::{Course, Judged};
use super::place::PlaceError;
use super::plan::nothing_seen;
use super::step::{StepEnd, StepError};
use crate::receipt::{FAILURE_DETAIL, LAUNCHER_FAILED, Status, cap, launcher_evidence};

/// Why the course stops before a result of the workload.
pub(super) enum Stop {
    /// Cancelled or late while no child ran; the phase as runner 2.7 words it.
    Ending { why: Ending, phase: &'static str },
    /// A check failed.
    Failed { status: Status, message: String, evidence: String, child: Option<StepEnd> },
    /// Something of ours, or of the host, does not work.
    Launcher { message: String, code: Option<i32> },
}

impl From<StepError> for Stop {
    fn from(error: StepError) -> Self {
        let code = match &error {
            StepError::Record(source) | StepError::Place(PlaceError::Record { source, .. }) => source.raw_os_error(),
            StepError::Place(PlaceError::Supervisor(error)) => error.errno(),
            StepError::Place(_) => None,
        };
        Self::Launcher { message: describe(&error), code }
    }
}

impl From<PlaceError> for Stop {
    fn from(error: PlaceError) -> Self {
        StepError::Place(error).into()
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        StepError::Record(error).into()
    }
}

impl Attempt<'_> {
    /// The receipt of a course that stopped before a workload's result.
    pub(super) fn stopped(&mut self, stop: Stop) -> Judged {
        let course = self.course.clone();
        match stop {
            Stop::Ending { why, phase } => {
                let (status, message) = match why {
                    Ending::Cancel { signal } => {
                        (Status::Cancelled, format!("launcher received {} {phase}", signal.as_str()))
                    }
                    Ending::Deadline => (Status::TimedOut, format!("explicit deadline elapsed {phase}")),
                    Ending::OutputLimit => (Status::ChildFailed, format!("a step wrote too much {phase}")),
                };
                course.failed(status, &message, &nothing_seen())
            }
            Stop::Failed { status, message, evidence, child } => {
                let mut judged = course.failed(status, &message, &evidence);
                if let Some(child) = child {
                    judged.exit_code = child.exit.receipt_code();
                    judged.signal = child.ended.filter(|ended| ended.signalled).map(|ended| match ended.why {
                        Ending::Cancel { signal } => signal.as_str().to_owned(),
                        Ending::Deadline | Ending::OutputLimit => "SIGTERM".to_owned(),
                    });
                }
                judged
            }
            Stop::Launcher { message, code } => self.launcher_failed(course, &message, code),
        }
    }

    /// Runner 2.7: a fixed message that a signal or a passed deadline words differently; what happened is a fact beside it.
    fn launcher_failed(&self, course: Course, message: &str, code: Option<i32>) -> Judged {
        tracing::error!(attempt = %self.assignment.attempt, message, "the attempt could not be carried out");
        let (status, text) = match self.ending() {
            Some(Ending::Cancel { signal }) => {
                (Status::Cancelled, format!("launcher received {} after reserving output paths", signal.as_str()))
            }
            Some(Ending::Deadline) => {
                (Status::TimedOut, "explicit deadline elapsed after reserving output paths".to_owned())
            }
            Some(Ending::OutputLimit) | None => (Status::ChildFailed, LAUNCHER_FAILED.to_owned()),
        };
        let code = code.map_or_else(|| io::Error::other(""), io::Error::from_raw_os_error);
        let mut judged = course.failed(status, &text, &launcher_evidence(&code));
        judged.note(FAILURE_DETAIL, cap(message, 4_000).into());
        judged
    }
}

pub(super) fn failed(status: Status, message: String) -> Stop {
    Stop::Failed { status, message, evidence: String::new(), child: None }
}

pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
