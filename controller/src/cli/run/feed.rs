//! Events of the attempt as changes of its progress (runner 7.1).

use agent::event::{EventBody, Phase, StepRole, StepStatus};
use agent::progress::{Change, ChildRole};

/// Remembers what was told already, so that repeated facts say nothing new.
#[derive(Debug, Default)]
pub struct Feed {
    child: Option<StepStatus>,
    retrying: bool,
    settled: bool,
}

impl Feed {
    /// The changes that an event brings.
    pub fn changes(&mut self, body: &EventBody) -> Vec<Change> {
        let mut changes = Vec::new();
        match body {
            EventBody::Activity { stdout_bytes, stderr_bytes } => {
                changes.push(Change::Bytes { stdout: *stdout_bytes, stderr: *stderr_bytes });
            }
            EventBody::Status { phase, step, settled, .. } => {
                if let Some(step) = step {
                    self.step(step, &mut changes);
                }
                if *phase == Phase::Settling {
                    self.settle(&mut changes);
                }
                let retrying = *phase == Phase::PreflightRetryWait;
                if std::mem::replace(&mut self.retrying, retrying) != retrying {
                    changes.push(Change::RetryWait(retrying));
                }
                if let Some(settled) = settled.filter(|_| !self.settled) {
                    self.settled = true;
                    changes.push(Change::ChildSettled(settled));
                }
            }
            _ => {}
        }
        changes
    }

    /// Settling begins when the workload's output is read to its end.
    fn settle(&mut self, changes: &mut Vec<Change>) {
        if let Some(child) = &mut self.child
            && child.role == StepRole::Workload
            && !child.running
            && !std::mem::replace(&mut child.drained, true)
        {
            changes.push(Change::Drained { role: ChildRole::Workload });
        }
    }

    fn step(&mut self, step: &StepStatus, changes: &mut Vec<Change>) {
        let role = match step.role {
            StepRole::Preflight => ChildRole::Preflight,
            StepRole::Workload => ChildRole::Workload,
            StepRole::Probe | StepRole::Export => return, // not children in the sense of the snapshot
        };
        let known = self.child.as_ref().filter(|child| child.role == step.role && child.pid == step.pid);
        if known.is_none() {
            changes.push(Change::Spawned { role, pid: u64::from(step.pid.max(1)) });
        }
        let (ran, was_drained) = known.map_or((true, false), |child| (child.running, child.drained));
        if ran && !step.running {
            let exit_code = step.exit_code.and_then(|code| u64::try_from(code).ok());
            changes.push(Change::Exited { role, exit_code });
        }
        if step.drained && !step.running && !was_drained {
            changes.push(Change::Drained { role });
        }
        self.child = Some(step.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(phase: Phase, role: StepRole, pid: u32, exit_code: Option<i32>, drained: bool) -> EventBody {
        let step = StepStatus { role, pid, running: exit_code.is_none(), exit_code, drained };
        EventBody::Status { phase, step: Some(step), settled: None, note: None }
    }

    #[test]
    fn each_fact_is_told_once() {
        let mut feed = Feed::default();
        let role = ChildRole::Workload;
        let running = status(Phase::Running, StepRole::Workload, 9, None, false);
        assert_eq!(feed.changes(&running), [Change::Spawned { role, pid: 9 }]);
        assert_eq!(feed.changes(&running), []);
        let exited = status(Phase::Running, StepRole::Workload, 9, Some(3), false);
        assert_eq!(feed.changes(&exited), [Change::Exited { role, exit_code: Some(3) }]);
        let drained = status(Phase::Settling, StepRole::Workload, 9, Some(3), true);
        assert_eq!(feed.changes(&drained), [Change::Drained { role }]);
        assert_eq!(feed.changes(&drained), []);
    }

    #[test]
    fn settling_means_that_the_output_was_read_to_its_end() {
        let mut feed = Feed::default();
        feed.changes(&status(Phase::Running, StepRole::Workload, 9, Some(0), false));
        let settling = EventBody::Status { phase: Phase::Settling, step: None, settled: None, note: None };
        assert_eq!(feed.changes(&settling), [Change::Drained { role: ChildRole::Workload }]);
        assert_eq!(feed.changes(&settling), []);
    }

    #[test]
    fn a_child_that_was_only_seen_dead_was_spawned_too() {
        let role = ChildRole::Preflight;
        let gone = status(Phase::Preflight, StepRole::Preflight, 7, Some(0), true);
        let all =
            [Change::Spawned { role, pid: 7 }, Change::Exited { role, exit_code: Some(0) }, Change::Drained { role }];
        assert_eq!(Feed::default().changes(&gone), all);
    }

    #[test]
    fn a_retry_wait_begins_and_ends_and_an_export_is_no_child() {
        let mut feed = Feed::default();
        let phase = |phase| EventBody::Status { phase, step: None, settled: None, note: None };
        assert_eq!(feed.changes(&phase(Phase::PreflightRetryWait)), [Change::RetryWait(true)]);
        assert_eq!(feed.changes(&phase(Phase::Preflight)), [Change::RetryWait(false)]);
        assert_eq!(feed.changes(&status(Phase::Settling, StepRole::Export, 5, None, false)), []);
    }
}
