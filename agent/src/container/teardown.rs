//! The end of a container, proven: the engine says "not found" and the kernel has nobody left in its control group.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::container::cgroup::{Cgroup, GroupState};
use crate::container::{ContainerId, ContainerState, Delivered, Engine, EngineError};

/// How a container was brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// It had ended, or was absent, before we asked.
    ByItself,
    AfterTerm,
    AfterKill,
}

/// The proof for the receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Teardown {
    pub container: ContainerId,
    /// The engine answered "not found" after the removal.
    pub removed: bool,
    /// `None` when the group was never seen (another machine's kernel).
    pub processes: Option<GroupState>,
    pub millis: u64,
    /// Why `removed` is false.
    pub error: Option<String>,
}

impl Teardown {
    /// Removed, and nobody known to be left.
    #[must_use]
    pub const fn proven(&self) -> bool {
        self.removed && !matches!(self.processes, Some(GroupState::Populated(_)))
    }
}

/// The one kill ladder: TERM to PID 1 (the supervisor passes it on), `grace`, KILL. The whole container ends with PID 1.
///
/// # Errors
/// The engine could not be asked; a container that is gone is [`Stopped::ByItself`].
pub async fn stop(engine: &Engine, id: &ContainerId, grace: Duration) -> Result<Stopped, EngineError> {
    match engine.signal(id, "SIGTERM").await {
        Ok(Delivered::NotRunning) | Err(EngineError::Gone { .. }) => return Ok(Stopped::ByItself),
        Ok(Delivered::Sent) => {}
        Err(error) => return Err(error),
    }
    match tokio::time::timeout(grace, engine.wait(id)).await {
        Ok(Ok(_) | Err(EngineError::Gone { .. })) => return Ok(Stopped::AfterTerm),
        Ok(Err(error)) => return Err(error),
        Err(_) => {}
    }
    match engine.signal(id, "SIGKILL").await {
        Ok(Delivered::NotRunning) | Err(EngineError::Gone { .. }) => return Ok(Stopped::AfterTerm),
        Ok(Delivered::Sent) => {}
        Err(error) => return Err(error),
    }
    let ended = tokio::time::timeout(Duration::from_secs(30), engine.wait(id)).await;
    match ended {
        Ok(Ok(ContainerState::Exited { .. } | ContainerState::Created | ContainerState::Running { .. })) => {}
        Ok(Err(error)) if error.is_gone() => {}
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            return Err(EngineError::Deadline {
                address: engine.info().address.clone(),
                operation: format!("end container {id} after SIGKILL"),
                after: Duration::from_secs(30),
            });
        }
    }
    Ok(Stopped::AfterKill)
}

/// Removes the container and looks for what could be left. Never fails: what went wrong is in the proof.
pub async fn remove_proven(engine: &Engine, id: &ContainerId, cgroup: Option<&Cgroup>) -> Teardown {
    let began = Instant::now();
    let mut proof = Teardown { container: id.clone(), removed: false, processes: None, millis: 0, error: None };
    let removal = engine.remove(id).await;
    match engine.inspect(id).await {
        Err(EngineError::Gone { .. }) => proof.removed = true,
        Ok(found) => {
            let why = removal.as_ref().err().map(|error| format!(": {error}")).unwrap_or_default();
            proof.error = Some(format!("still there, state {:?}{why}", found.state));
        }
        Err(error) => proof.error = Some(error.to_string()),
    }
    if let Err(error) = removal {
        proof.error.get_or_insert_with(|| error.to_string());
    }
    if let Some(cgroup) = cgroup {
        let mut state = cgroup.state();
        // The kernel removes the directory a moment after the last process.
        for _ in 0..20 {
            if !matches!(state, GroupState::Populated(_)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            state = cgroup.state();
        }
        proof.processes = Some(state);
    }
    proof.millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    proof
}
