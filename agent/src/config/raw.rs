//! The file as written. Unknown keys are refused, so that a typing error is found before anything is started.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytesize::ByteSize;
use serde::Deserialize;

use crate::container::discover::EngineChoice;
use crate::container::image::Reference;
use crate::descriptor::{InnerSandbox, Provider};
use crate::ids::InstanceId;
use crate::snapshot::{History, LfsPolicy};

/// `config.toml`. Relative paths are relative to the file's directory.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawConfig {
    /// Container engine: `docker`, `podman`, or the address of its socket. Absent: found by `DOCKER_HOST`, the current
    /// context and the known sockets.
    pub engine: Option<EngineChoice>,
    /// Where attempts are kept while they run, and their logs afterwards.
    pub state_dir: Option<PathBuf>,
    /// What is asked of the CLI's own sandbox.
    pub inner_sandbox: Option<InnerSandbox>,
    /// Image of each provider.
    #[serde(default)]
    pub images: BTreeMap<Provider, Reference>,
    /// Limits of every attempt container.
    #[serde(default)]
    pub limits: RawLimits,
    /// Accounts, by id.
    #[serde(default)]
    pub instances: BTreeMap<InstanceId, RawInstance>,
    /// Labels that the worker of every lane must carry.
    #[serde(default)]
    pub require: BTreeMap<String, String>,
    /// This machine as a worker.
    #[serde(default)]
    pub worker: RawWorker,
    /// How long what is over is kept.
    #[serde(default)]
    pub retention: RawRetention,
    /// With a controller: how the working directory gets to the worker.
    pub worktree: Option<WorktreeWay>,
    /// What travels, and how much of it is kept.
    #[serde(default)]
    pub snapshot: RawSnapshot,
    /// The controller that lanes are sent to; absent: this machine's own engine.
    pub controller: Option<RawController>,
}

/// `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawLimits {
    /// Memory and swap together, such as `"4 GiB"`.
    pub memory: Option<ByteSize>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// CPUs, fractions allowed.
    pub cpus: Option<f64>,
    /// Output of one step.
    pub output: Option<ByteSize>,
    /// Each temporary file system.
    pub scratch: Option<ByteSize>,
}

/// `[snapshot]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawSnapshot {
    /// Generations of history that travel, such as `"100"`, or `"full"`.
    pub history: Option<History>,
    /// Full names of refs that travel besides the base branch.
    #[serde(default)]
    pub refs: Vec<String>,
    /// What becomes of pointers to large files.
    pub lfs: Option<LfsPolicy>,
    /// Size of each cache of objects (a client's, a worker's, a controller's), such as `"20 GiB"`.
    pub cache: Option<ByteSize>,
}

/// `[instances.<id>]`: one account of one provider.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawInstance {
    /// The provider whose account it is.
    pub driver: Provider,
    /// The account profile: the CLI's HOME, a directory of mode 0700.
    pub home: Option<PathBuf>,
    /// Variables of its attempts.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Hosts allowed beside the driver's own, as `host` or `host:port`.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Its attempts at the same time; absent: as many as the worker takes.
    pub concurrency: Option<u32>,
}

/// `[worker]`: what `laneyard-agent run` announces; its flags win.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawWorker {
    /// Labels that lanes may require.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Attempts at the same time.
    pub capacity: Option<u32>,
}

/// `[retention]`: absent keys have the documented defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawRetention {
    /// How often the rules are applied, such as `"1h"`.
    #[serde(default, deserialize_with = "humantime_text::deserialize")]
    pub every: Option<std::time::Duration>,
    #[serde(default)]
    pub logs: RawKeep,
    #[serde(default)]
    pub receipts: RawKeep,
    #[serde(default)]
    pub results: RawKeep,
    #[serde(default)]
    pub worktrees: RawKeep,
    #[serde(default)]
    pub images: RawKeep,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawKeep {
    /// Such as `"14 days"`, or `"forever"`.
    pub age: Option<RawAge>,
    /// Of all of them together, such as `"10 GiB"`.
    pub size: Option<ByteSize>,
}

/// A duration, or no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawAge {
    Forever,
    Most(std::time::Duration),
}

impl<'de> Deserialize<'de> for RawAge {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "forever" {
            return Ok(Self::Forever);
        }
        humantime::parse_duration(&text).map(Self::Most).map_err(|error| {
            serde::de::Error::custom(format!("`{text}` is no age such as `14 days` or `forever`: {error}"))
        })
    }
}

mod humantime_text {
    use serde::{Deserialize as _, Deserializer};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<std::time::Duration>, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
    }
}

/// `[controller]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawController {
    /// Such as `https://build.example:7410`.
    pub url: String,
    /// The authority (PEM) that its certificate must be of.
    pub ca: Option<PathBuf>,
    /// File that holds the bearer token.
    pub token_file: Option<PathBuf>,
    /// Client certificate (PEM).
    pub client_cert: Option<PathBuf>,
    /// Its key (PEM); absent: in the same file.
    pub client_key: Option<PathBuf>,
}

/// How a working directory gets to the worker of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorktreeWay {
    /// As a snapshot that travels; a writer's result comes back.
    #[default]
    Snapshot,
    /// The worker opens the same path: it shares the caller's file system.
    Direct,
}

impl std::str::FromStr for WorktreeWay {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "snapshot" => Ok(Self::Snapshot),
            "direct" => Ok(Self::Direct),
            _ => Err(format!("worktree must be snapshot or direct, not `{text}`")),
        }
    }
}
