//! What an attempt container is. The safe defaults live here and nowhere else.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::assignment::Limits;
use crate::container::identity::Identity;
use crate::ids::{AttemptId, Generation, OwnerId, WorkerId};

/// Where the run directory (sockets, supervisor) is seen inside.
pub const RUN_DIR: &str = "/run/laneyard";
/// The first process of every attempt container.
pub const SUPERVISOR: &str = "/run/laneyard/supervisor";
/// HOME inside: a private tmpfs at a path that no image has.
pub const HOME: &str = "/lane";
/// The host name inside.
pub const HOSTNAME: &str = "lane";

/// The engine's full id of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(String);

impl ContainerId {
    /// An id as the engine gave it, or as a journal kept it.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The full id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get(..12).unwrap_or(&self.0))
    }
}

/// May the container write through a mount?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// One bind mount. Both paths are absolute and already resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub access: Access,
}

impl Mount {
    /// Mounts a path where it is on the host.
    #[must_use]
    pub fn same(path: &Path, access: Access) -> Self {
        Self { source: path.to_owned(), target: path.to_owned(), access }
    }
}

/// Labels of an attempt container, set before it starts: the sweep and the adoption find it by them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// Identity of the state directory.
    pub owner: OwnerId,
    pub worker: WorkerId,
    pub attempt: AttemptId,
    pub generation: Generation,
}

impl Labels {
    /// Label key of the owner.
    pub const OWNER: &'static str = "laneyard.owner";
    /// Label key of the worker.
    pub const WORKER: &'static str = "laneyard.worker";
    /// Label key of the attempt.
    pub const ATTEMPT: &'static str = "laneyard.attempt";
    /// Label key of the lease generation.
    pub const GENERATION: &'static str = "laneyard.generation";

    pub(crate) fn to_map(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (Self::OWNER.to_owned(), self.owner.to_string()),
            (Self::WORKER.to_owned(), self.worker.to_string()),
            (Self::ATTEMPT.to_owned(), self.attempt.to_string()),
            (Self::GENERATION.to_owned(), self.generation.0.to_string()),
        ])
    }

    /// The labels of a listed container; `None` when one is absent or unreadable.
    #[must_use]
    pub fn parse(map: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            owner: map.get(Self::OWNER)?.parse().ok()?,
            worker: map.get(Self::WORKER)?.parse().ok()?,
            attempt: map.get(Self::ATTEMPT)?.parse().ok()?,
            generation: Generation(map.get(Self::GENERATION)?.parse().ok()?),
        })
    }
}

/// How much of /proc and /sys the engine hides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemPaths {
    /// The engine's masked and read-only paths.
    #[default]
    Masked,
    /// Nothing masked, so that a nested sandbox can mount a /proc of its own.
    ///
    /// # Security
    /// An unprivileged process can then read what the kernel lets any user read in /proc and /sys; it gains no right to write.
    Unmasked,
}

/// Everything about one attempt container. What is not here is fixed: read-only root, no capability, no new privileges,
/// our seccomp profile, no network, private namespaces, tmpfs at /tmp and HOME, no engine-side init, no restart.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    pub labels: Labels,
    /// Image id or reference; give the id of [`crate::container::Image`] so that what was checked is what runs.
    pub image: String,
    pub entrypoint: Vec<String>,
    pub args: Vec<String>,
    /// The whole environment besides what the image sets. `HOME` and `TMPDIR` are added when absent.
    pub env: BTreeMap<String, String>,
    pub workdir: PathBuf,
    pub identity: Identity,
    pub mounts: Vec<Mount>,
    pub limits: Limits,
    pub system_paths: SystemPaths,
    /// A private directory of the attempt on the host, for files that the engine itself reads (Podman's seccomp profile).
    pub private_dir: PathBuf,
}

impl ContainerSpec {
    /// `laneyard-<attempt short>`: unique on an engine, so a repeated create finds the first one.
    #[must_use]
    pub fn name(&self) -> String {
        container_name(self.labels.attempt)
    }
}

/// The name of an attempt's container.
#[must_use]
pub fn container_name(attempt: AttemptId) -> String {
    format!("laneyard-{}", attempt.short())
}
