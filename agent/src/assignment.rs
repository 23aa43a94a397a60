//! Everything frozen about an attempt before it starts. What is not in here cannot influence the attempt.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::container::image::Reference;
use crate::descriptor::{ApiSpend, Contract, Effort, InnerSandbox, Mode, Parent, Provider};
use crate::ids::{AttemptId, InstanceId};
use crate::wire::snapshot::SnapshotRef;

/// One attempt, as submitted. Sizes in bytes, times UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    pub attempt: AttemptId,
    /// The caller's identity of the execution; by default the absolute receipt path.
    pub execution_id: String,
    pub parent: Parent,
    pub provider: Provider,
    /// The model as requested, passed to the CLI as the driver maps it.
    pub model: String,
    pub effort: Effort,
    pub mode: Mode,
    pub contract: Contract,
    /// `None` is the `legacy` of the receipt.
    pub api_spend: Option<ApiSpend>,
    /// Paths on the caller's machine, for the receipt; at most `paths.cwd` is opened on the worker.
    pub paths: CallerPaths,
    /// The caller's prompt, byte for byte.
    #[serde(with = "crate::wire::base64_bytes")]
    pub prompt: Vec<u8>,
    /// Wrapper entry on the caller's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// The explicit deadline in milliseconds from `started_at`; `None` means no deadline at all.
    pub timeout_ms: Option<f64>,
    /// The same on the clock of the worker that has the attempt, which sets it from what its controller says is left: clocks
    /// of two machines are never compared. `None`: `started_at` is taken as of this machine's clock.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub deadline: Option<OffsetDateTime>,
    pub instance: Option<InstanceId>,
    /// Driver-allowlisted environment of the caller (credentials and endpoints of this provider only).
    pub environment: BTreeMap<String, String>,
    /// Image reference; `None` means the configured image of the provider.
    pub image: Option<Reference>,
    pub limits: Limits,
    pub inner_sandbox: InnerSandbox,
    /// Hosts allowed beside the driver's own, as `host` or `host:port`.
    pub extra_hosts: Vec<String>,
    /// The working directory as a snapshot that the worker fetches; `None`: the worker opens `paths.cwd` on its own disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotRef>,
}

/// Absolute paths on the caller's machine. Text, because the receipt is JSON: other paths are refused at the edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallerPaths {
    pub cwd: String,
    pub prompt: String,
    pub output: String,
    pub receipt: String,
    pub progress: Option<String>,
    pub canonical: CanonicalPaths,
}

/// Real paths taken at start (runner 2.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanonicalPaths {
    pub cwd: String,
    pub output: String,
    pub receipt: String,
}

impl CallerPaths {
    /// The working directory's real path.
    #[must_use]
    pub fn real_cwd(&self) -> PathBuf {
        PathBuf::from(&self.canonical.cwd)
    }
}

/// Resource limits of the attempt container.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Memory and swap together, in bytes.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u32,
    /// CPUs, fractions allowed; `None` means no limit.
    pub cpus: Option<f64>,
    /// Bytes of stdout plus stderr of one step.
    pub output: u64,
    /// Bytes of each temporary file system (HOME, /tmp); they count against memory.
    pub scratch: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self { memory: 4 * GIB, pids: 2048, cpus: None, output: 2 * GIB, scratch: 2 * GIB }
    }
}

impl Assignment {
    /// What a client keeps of it: enough for a receipt, nothing that is secret or large.
    #[must_use]
    pub fn to_remember(&self) -> Self {
        Self { prompt: Vec::new(), environment: BTreeMap::new(), ..self.clone() }
    }

    /// Time between `started_at` and the explicit deadline.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(|ms| Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(Duration::MAX))
    }
}
