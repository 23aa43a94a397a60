//! The configuration as it is used: found, read, checked, every value present.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::controller::{ControllerAddress, Proof};
use super::raw::{
    RawAge, RawConfig, RawController, RawInstance, RawKeep, RawLimits, RawRetention, RawSnapshot, WorktreeWay,
};
use crate::assignment::{Assignment, Limits};
use crate::container::discover::EngineChoice;
use crate::container::image::Reference;
use crate::descriptor::{InnerSandbox, Provider};
use crate::egress::HostPort;
use crate::ids::InstanceId;
use crate::retention::{Keep, Rules};
use crate::snapshot::{History, LfsPolicy};
use crate::transport::Endpoint;

/// Everything that can be configured. Paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file it came from; `None` if there was none.
    pub file: Option<PathBuf>,
    /// `None`: the engine is looked for.
    pub engine: Option<EngineChoice>,
    pub state_dir: PathBuf,
    pub inner_sandbox: InnerSandbox,
    pub images: BTreeMap<Provider, Reference>,
    pub limits: Limits,
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Labels that the worker of every lane must carry.
    pub require: BTreeMap<String, String>,
    /// Labels of this machine as a worker.
    pub labels: BTreeMap<String, String>,
    /// Attempts at the same time of this machine as a worker; `None`: the agent's default.
    pub capacity: Option<u32>,
    pub retention: Rules,
    /// With a controller: how the working directory gets to the worker.
    pub worktree: WorktreeWay,
    pub snapshot: SnapshotSettings,
    /// `None`: embedded.
    pub controller: Option<ControllerAddress>,
}

/// What travels, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    pub history: History,
    /// Full names of refs that travel besides the base branch.
    pub refs: Vec<String>,
    pub lfs: LfsPolicy,
    /// Bytes of each cache of objects.
    pub cache: u64,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self { history: History::default(), refs: Vec::new(), lfs: LfsPolicy::Pointers, cache: 20 << 30 }
    }
}

/// Checks the name of a ref that is to travel.
///
/// # Errors
/// It is no full name.
pub fn check_ref(name: &str) -> Result<(), String> {
    let good = name.starts_with("refs/") && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    if good { Ok(()) } else { Err(format!("`{name}` is no full name of a ref, such as refs/heads/release")) }
}

/// One configured account of a driver.
#[derive(Clone, PartialEq, Eq)]
pub struct Instance {
    pub driver: Provider,
    pub home: Option<PathBuf>,
    pub environment: BTreeMap<String, String>,
    pub hosts: Vec<String>,
    /// Its attempts at the same time; `None`: the worker's limit.
    pub concurrency: Option<u32>,
}

impl Instance {
    /// The assignment as this account's attempt runs: its variables win over the caller's, its hosts come beside them.
    #[must_use]
    pub fn applied_to(&self, assignment: &Assignment) -> Assignment {
        let mut assignment = assignment.clone();
        assignment.environment.extend(self.environment.clone());
        for host in &self.hosts {
            if !assignment.extra_hosts.contains(host) {
                assignment.extra_hosts.push(host.clone());
            }
        }
        assignment
    }
}

impl std::fmt::Debug for Instance {
    /// Names of variables only: values may be credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("driver", &self.driver)
            .field("home", &self.home)
            .field("environment", &self.environment.keys())
            .field("hosts", &self.hosts)
            .field("concurrency", &self.concurrency)
            .finish()
    }
}

/// Variables of the process, as an argument so that a test can give its own.
pub type Environment = BTreeMap<String, String>;

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("could not read the configuration file `{}`: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration file `{}` is malformed\n{source}", path.display())]
    Parse { path: PathBuf, source: Box<toml::de::Error> },
    /// `path` is empty where a variable is at fault, whether there is a file or not.
    #[error("{}`{key}` {problem}", whence(path))]
    Value { path: PathBuf, key: String, problem: String },
}

fn whence(path: &Path) -> String {
    if path.as_os_str().is_empty() { String::new() } else { format!("the configuration file `{}`: ", path.display()) }
}

impl Config {
    /// The file that is read: `LANEYARD_CONFIG`, else `~/.config/laneyard/config.toml`, else
    /// `/etc/laneyard/config.toml`, the first that is there.
    #[must_use]
    pub fn find(environment: &Environment) -> Option<PathBuf> {
        if let Some(named) = nonblank(environment, "LANEYARD_CONFIG") {
            return Some(PathBuf::from(named));
        }
        let user = nonblank(environment, "XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| nonblank(environment, "HOME").map(|home| Path::new(home).join(".config")));
        user.map(|base| base.join("laneyard/config.toml"))
            .into_iter()
            .chain([PathBuf::from("/etc/laneyard/config.toml")])
            .find(|path| path.exists())
    }

    /// Finds, reads and resolves the configuration; without a file everything has its default.
    ///
    /// # Errors
    /// A named file that cannot be read, malformed TOML, unknown keys, values that cannot be used.
    pub fn load(environment: &Environment) -> Result<Self, ConfigError> {
        let Some(path) = Self::find(environment) else {
            return Self::resolve(RawConfig::default(), None, environment);
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        Self::parse(&text, &path, environment)
    }

    /// Resolves the text of a file that stands at `path`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, path: &Path, environment: &Environment) -> Result<Self, ConfigError> {
        let raw = toml::from_str(text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        Self::resolve(raw, Some(path), environment)
    }

    fn resolve(raw: RawConfig, file: Option<&Path>, environment: &Environment) -> Result<Self, ConfigError> {
        let place = Place { file, environment };
        let mut instances = BTreeMap::new();
        for (id, instance) in raw.instances {
            let resolved = place.instance(&id, instance)?;
            instances.insert(id, resolved);
        }
        if raw.worker.capacity.is_some_and(|places| !(1..=10_000).contains(&places)) {
            return Err(place.bad("worker.capacity", "must be 1 to 10000"));
        }
        let controller = place.controller(raw.controller)?;
        // The environment wins over the file, as a flag wins over both.
        let state_dir = match (nonblank(environment, "LANEYARD_STATE"), raw.state_dir) {
            (Some(path), _) => std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)),
            (None, Some(path)) => place.path(&path),
            (None, None) => default_state_dir(environment),
        };
        Ok(Self {
            file: file.map(Path::to_owned),
            engine: raw.engine,
            state_dir,
            inner_sandbox: raw.inner_sandbox.unwrap_or(InnerSandbox::Prefer),
            images: raw.images,
            limits: place.limits(&raw.limits)?,
            instances,
            require: raw.require,
            labels: raw.worker.labels,
            capacity: raw.worker.capacity,
            retention: place.retention(&raw.retention)?,
            worktree: raw.worktree.unwrap_or_default(),
            snapshot: place.snapshot(raw.snapshot)?,
            controller,
        })
    }
}

/// Where the file stands: for relative paths and for errors.
struct Place<'a> {
    file: Option<&'a Path>,
    environment: &'a Environment,
}

impl Place<'_> {
    fn bad(&self, key: &str, problem: &str) -> ConfigError {
        let path = self.file.map_or_else(PathBuf::new, Path::to_owned);
        ConfigError::Value { path, key: key.to_owned(), problem: problem.to_owned() }
    }

    /// Absolute: `~/` is the user's home, everything else relative to the file.
    fn path(&self, path: &Path) -> PathBuf {
        if let (Ok(rest), Some(home)) = (path.strip_prefix("~"), nonblank(self.environment, "HOME")) {
            return Path::new(home).join(rest);
        }
        self.file.and_then(Path::parent).map_or_else(|| path.to_owned(), |base| base.join(path))
    }

    /// The environment's controller, else the file's. A credential of one is never shown to the other.
    fn controller(&self, raw: Option<RawController>) -> Result<Option<ControllerAddress>, ConfigError> {
        let variable = |name: &str| nonblank(self.environment, name);
        let file = |name: &str| variable(name).map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
        let from_environment = Proof {
            ca: file("LANEYARD_CA"),
            token_file: file("LANEYARD_TOKEN_FILE"),
            client_cert: file("LANEYARD_CLIENT_CERT"),
            client_key: file("LANEYARD_CLIENT_KEY"),
        };
        let problem = |url: &str| url.parse::<Endpoint>().err().map(|error| format!("cannot be used: {error}"));
        match (variable("LANEYARD_CONTROLLER"), raw) {
            (Some(url), _) => {
                if let Some(problem) = problem(url) {
                    // No fault of the file, if there is one.
                    let key = "LANEYARD_CONTROLLER".to_owned();
                    return Err(ConfigError::Value { path: PathBuf::new(), key, problem });
                }
                Ok(Some(ControllerAddress::new(url, from_environment)))
            }
            (None, Some(raw)) => {
                if let Some(problem) = problem(&raw.url) {
                    return Err(self.bad("controller.url", &problem));
                }
                let path = |path: Option<PathBuf>| path.map(|path| self.path(&path));
                let proof = Proof {
                    ca: path(raw.ca),
                    token_file: path(raw.token_file),
                    client_cert: path(raw.client_cert),
                    client_key: path(raw.client_key),
                };
                Ok(Some(ControllerAddress::new(&raw.url, from_environment.or(proof))))
            }
            (None, None) => Ok(None),
        }
    }

    fn limits(&self, raw: &RawLimits) -> Result<Limits, ConfigError> {
        let standard = Limits::default();
        let limits = Limits {
            memory: raw.memory.map_or(standard.memory, |size| size.as_u64()),
            pids: raw.pids.unwrap_or(standard.pids),
            cpus: raw.cpus.or(standard.cpus),
            output: raw.output.map_or(standard.output, |size| size.as_u64()),
            scratch: raw.scratch.map_or(standard.scratch, |size| size.as_u64()),
        };
        check_limits(&limits).map_err(|(key, problem)| self.bad(&format!("limits.{key}"), problem))?;
        Ok(limits)
    }

    fn retention(&self, raw: &RawRetention) -> Result<Rules, ConfigError> {
        let standard = Rules::default();
        if raw.every.is_some_and(|every| every.is_zero()) {
            return Err(self.bad("retention.every", "must be longer than nothing"));
        }
        Ok(Rules {
            every: raw.every.unwrap_or(standard.every),
            logs: keep(&raw.logs, standard.logs),
            receipts: keep(&raw.receipts, standard.receipts),
            results: keep(&raw.results, standard.results),
            worktrees: keep(&raw.worktrees, standard.worktrees),
            images: keep(&raw.images, standard.images),
        })
    }

    fn snapshot(&self, raw: RawSnapshot) -> Result<SnapshotSettings, ConfigError> {
        let standard = SnapshotSettings::default();
        if let Some(problem) = raw.refs.iter().find_map(|name| check_ref(name).err()) {
            return Err(self.bad("snapshot.refs", &format!("cannot be used: {problem}")));
        }
        Ok(SnapshotSettings {
            history: raw.history.unwrap_or(standard.history),
            refs: raw.refs,
            lfs: raw.lfs.unwrap_or(standard.lfs),
            cache: raw.cache.map_or(standard.cache, |size| size.as_u64()),
        })
    }

    fn instance(&self, id: &InstanceId, raw: RawInstance) -> Result<Instance, ConfigError> {
        if let Some(name) = raw.environment.keys().find(|name| !is_variable(name)) {
            return Err(self.bad(&format!("instances.{id}.environment.{name}"), "is not the name of a variable"));
        }
        if let Some(error) = raw.hosts.iter().find_map(|host| HostPort::parse(host, 443).err()) {
            return Err(self.bad(&format!("instances.{id}.hosts"), &format!("cannot be used: {error}")));
        }
        if raw.concurrency == Some(0) {
            return Err(self.bad(&format!("instances.{id}.concurrency"), "must be at least 1"));
        }
        Ok(Instance {
            driver: raw.driver,
            home: raw.home.map(|path| self.path(&path)),
            environment: raw.environment,
            hosts: raw.hosts,
            concurrency: raw.concurrency,
        })
    }
}

fn keep(raw: &RawKeep, standard: Keep) -> Keep {
    let age = match raw.age {
        None => standard.age,
        Some(RawAge::Forever) => None,
        Some(RawAge::Most(age)) => Some(age),
    };
    Keep { age, size: raw.size.map_or(standard.size, |size| Some(size.as_u64())) }
}

/// Refuses limits under which no attempt could start; the key and what is wrong with it.
///
/// # Errors
/// The first limit that is too small.
pub fn check_limits(limits: &Limits) -> Result<(), (&'static str, &'static str)> {
    const MIB: u64 = 1 << 20;
    if limits.memory < 64 * MIB {
        return Err(("memory", "must be at least 64 MiB"));
    }
    if limits.pids < 16 {
        return Err(("pids", "must be at least 16"));
    }
    if limits.cpus.is_some_and(|cpus| !cpus.is_finite() || cpus < 0.01) {
        return Err(("cpus", "must be at least 0.01"));
    }
    if limits.output < MIB {
        return Err(("output", "must be at least 1 MiB"));
    }
    if limits.scratch < MIB {
        return Err(("scratch", "must be at least 1 MiB"));
    }
    Ok(())
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn nonblank<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
}

fn default_state_dir(environment: &Environment) -> PathBuf {
    if let Some(base) = nonblank(environment, "XDG_STATE_HOME") {
        return Path::new(base).join("laneyard");
    }
    match nonblank(environment, "HOME") {
        Some(home) => Path::new(home).join(".local/state/laneyard"),
        None => PathBuf::from("/var/lib/laneyard"), // a service without a home
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> Environment {
        Environment::from([("HOME".to_owned(), "/home/ada".to_owned())])
    }

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("/etc/laneyard/config.toml"), &home())
    }

    #[test]
    fn a_full_file_resolves_to_absolute_paths_and_bytes() {
        let config = parse(
            r#"
            engine = "podman"
            state-dir = "state"
            inner-sandbox = "off"
            [images]
            claude = "registry.example/claude:1"
            [limits]
            memory = "512 MiB"
            cpus = 1.5
            [instances.work]
            driver = "claude"
            home = "~/accounts/work"
            environment = { ANTHROPIC_BASE_URL = "http://gateway" }
            hosts = ["gateway:8080"]
            [snapshot]
            history = "full"
            refs = ["refs/heads/release"]
            cache = "1 GiB"
            [controller]
            url = "http://127.0.0.1:7410/"
            token-file = "token"
            ca = "ca.pem"
            "#,
        )
        .unwrap();
        assert_eq!(config.state_dir, Path::new("/etc/laneyard/state"));
        assert_eq!((config.limits.memory, config.limits.cpus), (512 << 20, Some(1.5)));
        let work = &config.instances[&"work".parse().unwrap()];
        assert_eq!(work.home.as_deref(), Some(Path::new("/home/ada/accounts/work")));
        assert_eq!((config.snapshot.history, config.snapshot.cache), (History::Full, 1 << 30));
        let controller = config.controller.unwrap();
        assert_eq!(controller.url, "http://127.0.0.1:7410");
        assert_eq!(controller.proof.token_file.as_deref(), Some(Path::new("/etc/laneyard/token")));
        assert_eq!(controller.proof.ca.as_deref(), Some(Path::new("/etc/laneyard/ca.pem")));
        assert!(!format!("{work:?}").contains("http://gateway"), "values stay out of debug output");
    }

    #[test]
    fn an_empty_file_has_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.state_dir, Path::new("/home/ada/.local/state/laneyard"));
        assert_eq!(config.inner_sandbox, InnerSandbox::Prefer);
    }

    #[test]
    fn the_environments_controller_wins_and_gets_no_credential_of_the_files() {
        let text = "[controller]\nurl = 'https://a.example'\ntoken-file = 'token'\nca = 'ca.pem'";
        let mut environment = home();
        let mut at = |name: &str, value: &str| {
            environment.insert(name.to_owned(), value.to_owned());
            let config = Config::parse(text, Path::new("/etc/laneyard/config.toml"), &environment).unwrap();
            config.controller.unwrap()
        };
        let same = at("LANEYARD_TOKEN_FILE", "/run/token");
        assert_eq!((same.url.as_str(), same.proof.ca), ("https://a.example", Some("/etc/laneyard/ca.pem".into())));
        assert_eq!(same.proof.token_file, Some("/run/token".into()));
        let other = at("LANEYARD_CONTROLLER", "https://b.example");
        assert_eq!((other.url.as_str(), other.proof.ca), ("https://b.example", None));
        let key = at("LANEYARD_CLIENT_CERT", "/run/me.pem").proof;
        assert_eq!((key.client_cert, key.client_key), (Some("/run/me.pem".into()), None));
        environment.remove("LANEYARD_CONTROLLER");
        environment.remove("LANEYARD_TOKEN_FILE");
        let config = Config::parse(text, Path::new("/etc/laneyard/config.toml"), &environment).unwrap();
        let alone = config.controller.unwrap().proof;
        assert_eq!(
            (alone.client_cert, alone.token_file),
            (Some("/run/me.pem".into()), None),
            "a token would win over it"
        );
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let message = parse(text).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn mistakes_name_the_file_and_the_key() {
        refused("engin = 'docker'", "unknown field `engin`");
        refused("[limits]\nmemory = '1 KiB'", "`limits.memory` must be at least 64 MiB");
        refused("[limits]\npids = 1", "`limits.pids` must be at least 16");
        refused("[limits]\nmemory = 'lots'", "config.toml");
        refused("engine = 'podmann'", "`podmann` names no engine");
        refused("[images]\nclaude = 'UPPER'", "`UPPER` is no image reference");
        refused("[instances.a]\ndriver = 'gpt'", "unknown variant `gpt`");
        refused(
            "[instances.a]\ndriver = 'codex'\nhosts = ['https://x']",
            "`instances.a.hosts` cannot be used: `https://x` is no exact host",
        );
        refused("[snapshot]\nrefs = ['release']", "`snapshot.refs` cannot be used: `release` is no full name");
        refused("[snapshot]\nhistory = 'some'", "history must be a number");
        refused("[controller]\nurl = 'localhost'", "`controller.url` cannot be used");
    }
}
