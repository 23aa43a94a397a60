//! The container engine: found, asked and told what an attempt needs. Knows nothing of providers or of an attempt's states.
//!
//! Order of calls: [`discover::connect`] → [`image::resolve`] → [`prepare::prepare`] → [`Engine::create`] →
//! [`Engine::isolation`] → [`Engine::start`] → `Prepared::release` → … → [`cause::cause`] → [`teardown::remove_proven`].

pub mod cause; // why it died
pub mod cgroup; // counters of the kernel, read while it lives
pub mod discover; // which engine
mod docker; // the only place that names the client library
mod error;
pub mod identity; // as whom it runs
pub mod idmap; // mounts whose owners are translated
pub mod image; // what it runs
mod info;
pub mod isolation; // what is really in force
mod mounts;
pub mod prepare; // user, mounts and their clean-up
mod seccomp;
pub mod spec; // what it is
pub mod sweep; // leftovers, by label
pub mod teardown; // its end, with proof

pub use docker::{Engine, Reached};
pub use error::EngineError;
pub use info::{EngineInfo, EngineKind, LimitSupport};
pub use spec::{Access, ContainerId, ContainerSpec, Labels, Mount, SystemPaths};

use std::collections::BTreeMap;

use serde::Serialize;

/// An image as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// The name it was asked by.
    pub reference: String,
    /// Content id (`sha256:…`): what a container is created from.
    pub id: String,
    /// Digest in its registry, when it came from one.
    pub digest: Option<String>,
    pub arch: String,
    pub os: String,
    /// Bytes.
    pub size: u64,
}

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum ContainerState {
    Created,
    Running {
        /// Process id of PID 1 on the engine's host.
        pid: u32,
        started: String,
    },
    Exited {
        code: i64,
        /// The engine's own flag; Podman 4 never sets it on cgroup v1.
        oom_killed: bool,
        started: String,
        finished: String,
        /// The engine's reason when it could not start it.
        error: Option<String>,
    },
}

impl ContainerState {
    /// PID 1 on the engine's host, while it runs.
    #[must_use]
    pub const fn pid(&self) -> Option<u32> {
        match self {
            Self::Running { pid, .. } => Some(*pid),
            Self::Created | Self::Exited { .. } => None,
        }
    }
}

/// One look at a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    pub id: ContainerId,
    pub name: String,
    pub image: String,
    pub labels: BTreeMap<String, String>,
    pub state: ContainerState,
}

/// One of our containers, as listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    pub id: ContainerId,
    pub name: String,
    pub labels: Labels,
    /// True while it runs (or is paused).
    pub running: bool,
}

/// An image of a provider's CLI that nothing names any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superseded {
    pub id: String,
    /// When it was made, in seconds of Unix time.
    pub created: u64,
    pub bytes: u64,
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    Sent,
    /// It had already ended (or never ran).
    NotRunning,
}

/// A named observation that a reader of the receipt should see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable kebab-case name.
    pub name: &'static str,
    /// One sentence with the facts.
    pub detail: String,
}

impl Finding {
    pub(crate) fn new(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, detail: detail.into() }
    }
}
