//! What an engine is and what it can enforce.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The two engines we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    Docker,
    Podman,
}

impl EngineKind {
    /// The name in messages and receipts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// Facts about one engine, read once per connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineInfo {
    pub kind: EngineKind,
    pub version: String,
    /// Negotiated API version.
    pub api: String,
    /// Path of the engine's unix socket.
    pub address: String,
    /// Owner of the socket: the user of a rootless engine.
    pub socket_uid: Option<u32>,
    pub rootless: bool,
    /// Docker's daemon-wide `userns-remap`.
    pub userns_remap: bool,
    /// 1 or 2; `None` when the engine does not say.
    pub cgroup: Option<u8>,
    pub seccomp: bool,
    pub selinux: bool,
    pub apparmor: bool,
    /// As Go spells it: `amd64`, `arm64`.
    pub arch: String,
    pub os: String,
    pub operating_system: String,
    pub kernel: String,
    pub storage_driver: String,
    /// Where the engine keeps images and containers (in its virtual machine, where it has one).
    pub storage_root: PathBuf,
    pub cpus: u32,
    /// Bytes.
    pub memory: u64,
    pub limits: LimitSupport,
    pub ceilings: Ceilings,
    /// Engine clock minus our clock in milliseconds; `None` when the engine does not tell the time.
    pub clock_skew_ms: Option<i64>,
    pub warnings: Vec<String>,
}

/// Which limits the engine really applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitSupport {
    pub memory: bool,
    pub swap: bool,
    pub pids: bool,
    pub cpus: bool,
}

/// The highest `ulimit`s that a container can be given: neither we nor the engine's process can go above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ceilings {
    pub open_files: u64,
    pub processes: u64,
}

impl Ceilings {
    /// Ours, and the engine's where its process can be seen.
    pub(crate) fn of(engine: Option<i32>) -> Self {
        let own = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let theirs =
            engine.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()).unwrap_or_default();
        let hard = |name: &str| hard_limit(&own, name).min(hard_limit(&theirs, name));
        Self { open_files: hard("Max open files"), processes: hard("Max processes") }
    }
}

/// The hard limit of one row; no row, or `unlimited`, is no limit.
fn hard_limit(table: &str, name: &str) -> u64 {
    let row = table.lines().find_map(|line| line.strip_prefix(name));
    row.and_then(|row| row.split_whitespace().nth(1)?.parse().ok()).unwrap_or(u64::MAX)
}

impl LimitSupport {
    /// Rootless on cgroup v1: limits are taken and ignored.
    pub const NONE: Self = Self { memory: false, swap: false, pids: false, cpus: false };
}

impl EngineInfo {
    /// True if both say the same of the engine itself; clocks drift.
    #[must_use]
    pub fn describes_the_same(&self, other: &Self) -> bool {
        let timeless = |info: &Self| Self { clock_skew_ms: None, ..info.clone() };
        timeless(self) == timeless(other)
    }

    /// `linux/amd64`.
    #[must_use]
    pub fn platform(&self) -> String {
        format!("{}/{}", self.os, self.arch)
    }
}

/// One spelling per CPU: engines and kernels use several.
#[must_use]
pub(crate) fn normal_arch(text: &str) -> String {
    match text {
        "x86_64" | "x86-64" => "amd64",
        "aarch64" | "arm64/v8" => "arm64",
        "i386" | "i686" => "386",
        other => other,
    }
    .to_owned()
}
