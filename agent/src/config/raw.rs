//! The file as written. Unknown keys are refused, so that a typing error is found before anything is started.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytesize::ByteSize;
use serde::Deserialize;

use crate::container::discover::EngineChoice;
use crate::container::image::Reference;
use crate::descriptor::{InnerSandbox, Provider};
use crate::ids::InstanceId;

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
}

/// `[controller]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawController {
    /// Such as `http://127.0.0.1:7410`.
    pub url: String,
    /// File that holds the bearer token.
    pub token_file: Option<PathBuf>,
}
