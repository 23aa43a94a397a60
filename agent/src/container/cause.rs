//! Why a provider ended: one cause out of the engine's flag, the kernel's counters, the exit and our own kills.

use serde::{Deserialize, Serialize};

/// A reason for which we ended something ourselves. Journal it before the signal is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kill {
    Deadline,
    Cancel,
    OutputLimit,
}

/// The cause of a provider's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// By itself, whatever its exit code.
    Normal,
    /// The kernel killed the provider for memory.
    Oom,
    /// The kernel killed a descendant for memory; the provider went on and ended by itself.
    OomOfChild,
    OurDeadline,
    OurCancel,
    OutputLimit,
    /// Somebody else killed it.
    ExternalKill,
    /// The engine or the container is gone and the end was not seen.
    EngineLost,
    Unknown,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Exited(i32),
    Signaled(i32),
}

/// What is known of the container at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerEnd {
    /// PID 1 still lives, as it should when a step ends.
    Running,
    Exited {
        code: i64,
        oom_killed: bool,
    },
    /// Absent, or the engine cannot be asked.
    Lost,
}

/// All evidence.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// The provider's own end as the supervisor reported it; `None` when no report came.
    pub provider: Option<End>,
    pub container: ContainerEnd,
    /// `oom_kill` of the container's control group, read last while it was there; `None` when it could not be read.
    pub oom_kills: Option<u64>,
    /// The first kill of our own, when there was one.
    pub ours: Option<Kill>,
}

const SIGKILL: i32 = 9;
/// 128 + SIGKILL: how engines and shells spell a kill.
const KILLED: i64 = 137;

/// Combines the evidence. A kill of our own explains any end (many CLIs answer TERM with an ordinary exit), so give
/// `ours` only when the signal went to a process that had not been reported as ended.
#[must_use]
pub fn cause(evidence: &Evidence) -> Cause {
    let flag = matches!(evidence.container, ContainerEnd::Exited { oom_killed: true, .. });
    let oom = flag || evidence.oom_kills.is_some_and(|count| count > 0);
    let killed = match (evidence.provider, evidence.container) {
        (Some(End::Signaled(signal)), _) => signal == SIGKILL,
        (Some(End::Exited(code)), _) => i64::from(code) == KILLED,
        (None, ContainerEnd::Exited { code, .. }) => code == KILLED,
        (None, ContainerEnd::Running | ContainerEnd::Lost) => false,
    };
    if let Some(kill) = evidence.ours {
        return match kill {
            Kill::Deadline => Cause::OurDeadline,
            Kill::Cancel => Cause::OurCancel,
            Kill::OutputLimit => Cause::OutputLimit,
        };
    }
    match (evidence.provider, evidence.container) {
        (None, ContainerEnd::Lost) => Cause::EngineLost,
        (None, ContainerEnd::Running) => Cause::Unknown,
        _ if killed && oom => Cause::Oom,
        // Without a counter a kill could have been either.
        _ if killed && evidence.oom_kills.is_none() => Cause::Unknown,
        _ if killed => Cause::ExternalKill,
        (Some(End::Signaled(_)), _) => Cause::ExternalKill,
        (None, ContainerEnd::Exited { .. }) => Cause::Unknown,
        _ if oom => Cause::OomOfChild,
        (Some(End::Exited(_)), _) => Cause::Normal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(provider: Option<End>, container: ContainerEnd, oom_kills: Option<u64>, ours: Option<Kill>) -> Cause {
        cause(&Evidence { provider, container, oom_kills, ours })
    }

    #[test]
    fn a_kill_is_explained_by_the_counter_before_anybody_is_blamed() {
        let killed = Some(End::Signaled(9));
        assert_eq!(evidence(killed, ContainerEnd::Running, Some(1), None), Cause::Oom);
        assert_eq!(evidence(killed, ContainerEnd::Running, Some(0), None), Cause::ExternalKill);
        assert_eq!(evidence(killed, ContainerEnd::Running, None, None), Cause::Unknown);
        assert_eq!(evidence(killed, ContainerEnd::Running, Some(0), Some(Kill::Cancel)), Cause::OurCancel);
    }

    #[test]
    fn the_engines_flag_alone_does_not_mean_that_the_provider_died_of_it() {
        let flagged = ContainerEnd::Exited { code: 0, oom_killed: true };
        assert_eq!(evidence(Some(End::Exited(0)), flagged, None, None), Cause::OomOfChild);
        assert_eq!(evidence(Some(End::Exited(1)), ContainerEnd::Running, Some(3), None), Cause::OomOfChild);
    }

    #[test]
    fn a_supervisor_that_died_with_everything_is_judged_by_the_container() {
        let oom = ContainerEnd::Exited { code: 137, oom_killed: true };
        assert_eq!(evidence(None, oom, None, None), Cause::Oom);
        let silent = ContainerEnd::Exited { code: 137, oom_killed: false };
        assert_eq!(evidence(None, silent, Some(0), None), Cause::ExternalKill);
        assert_eq!(evidence(None, silent, None, Some(Kill::Deadline)), Cause::OurDeadline);
    }

    #[test]
    fn nothing_seen_is_never_an_invented_end() {
        assert_eq!(evidence(None, ContainerEnd::Lost, None, None), Cause::EngineLost);
        assert_eq!(evidence(None, ContainerEnd::Running, Some(0), None), Cause::Unknown);
        assert_eq!(evidence(Some(End::Exited(3)), ContainerEnd::Lost, None, None), Cause::Normal);
    }
}
