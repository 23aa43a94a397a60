//! Which engine to use: what the user named, else what the environment names, else the sockets engines are known to have.
//!
//! A named engine is binding: when it does not answer, another one is only suggested. Falling back from a rootless engine
//! to root's behind the user's back would change what a lane may do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::container::{Engine, EngineError, Reached};

/// What the surroundings say about engines. Taken once at the edge, so that the search itself is testable.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `DOCKER_HOST`.
    pub docker_host: Option<String>,
    /// `CONTAINER_HOST` (Podman).
    pub container_host: Option<String>,
    /// `DOCKER_CONTEXT`.
    pub docker_context: Option<String>,
    /// `DOCKER_CONFIG`, else `~/.docker`.
    pub docker_config: Option<PathBuf>,
    pub xdg_runtime_dir: Option<PathBuf>,
    pub home: Option<PathBuf>,
    pub uid: u32,
    /// Parent of the system's sockets: `/` but for tests.
    pub root: PathBuf,
}

impl Surroundings {
    /// This process's own.
    #[must_use]
    pub fn from_env() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let home = text("HOME").map(PathBuf::from);
        Self {
            docker_host: text("DOCKER_HOST"),
            container_host: text("CONTAINER_HOST"),
            docker_context: text("DOCKER_CONTEXT"),
            docker_config: text("DOCKER_CONFIG").map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".docker"))),
            xdg_runtime_dir: text("XDG_RUNTIME_DIR").map(PathBuf::from),
            home,
            uid: nix::unistd::getuid().as_raw(),
            root: PathBuf::from("/"),
        }
    }
}

/// Where a candidate came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    DockerHost,
    ContainerHost,
    Context(String),
    Known,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--engine"),
            Self::DockerHost => f.write_str("DOCKER_HOST"),
            Self::ContainerHost => f.write_str("CONTAINER_HOST"),
            Self::Context(name) => write!(f, "docker context `{name}`"),
            Self::Known => f.write_str("known socket"),
        }
    }
}

/// One place to look, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub source: Source,
    pub address: String,
}

/// A candidate that did not become our engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    pub candidate: Candidate,
    pub why: String,
}

/// No engine. The message lists every candidate and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("no container engine answers:{}{}", lines(tried), suggestion(others))]
pub struct DiscoverError {
    pub tried: Vec<Tried>,
    /// Known sockets that do accept connections, but were not what was asked for.
    pub others: Vec<String>,
}

fn lines(tried: &[Tried]) -> String {
    use fmt::Write as _;
    tried.iter().fold(String::new(), |mut text, one| {
        let _ = write!(text, "\n  {} ({}): {}", one.candidate.address, one.candidate.source, one.why);
        text
    })
}

fn suggestion(others: &[String]) -> String {
    if others.is_empty() {
        "\nstart Docker or Podman (`systemctl start docker`, `systemctl --user start podman.socket`), or name its socket with --engine unix:///PATH".to_owned()
    } else {
        format!("\nanother engine answers at {}: choose it with --engine unix://{}", others.join(", "), others[0])
    }
}

/// What a user names: a family, or one socket of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EngineChoice {
    Docker,
    Podman,
    Socket(PathBuf),
}

/// The text names no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no engine: {why}")]
pub struct ChoiceError {
    text: String,
    why: String,
}

impl FromStr for EngineChoice {
    type Err = ChoiceError;
    /// `docker`, `podman`, `unix:///PATH` or `/PATH`.
    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        match text {
            "docker" => Ok(Self::Docker),
            "podman" => Ok(Self::Podman),
            _ => socket_path(text).map(Self::Socket).map_err(|why| ChoiceError { text: text.to_owned(), why }),
        }
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Docker => f.write_str("docker"),
            Self::Podman => f.write_str("podman"),
            Self::Socket(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl TryFrom<String> for EngineChoice {
    type Error = ChoiceError;
    fn try_from(text: String) -> Result<Self, ChoiceError> {
        text.parse()
    }
}

impl From<EngineChoice> for String {
    fn from(choice: EngineChoice) -> Self {
        choice.to_string()
    }
}

/// Connects to the first engine that fits.
///
/// # Errors
/// None answers; every candidate is named.
pub async fn connect(explicit: Option<&EngineChoice>, around: &Surroundings) -> Result<Engine, DiscoverError> {
    connect_and_tell(explicit, around, |_| ()).await
}

/// As [`connect`]. `answered` is called as soon as a candidate answers, before it has said what it is: that takes an engine
/// its time.
///
/// # Errors
/// As [`connect`], also after a candidate that answered.
pub async fn connect_and_tell(
    explicit: Option<&EngineChoice>,
    around: &Surroundings,
    answered: impl Fn(&Reached),
) -> Result<Engine, DiscoverError> {
    let candidates = candidates(explicit, around);
    let mut tried = Vec::new();
    for candidate in candidates {
        match open(&candidate.address, &answered).await {
            Ok(engine) => return Ok(engine),
            Err(why) => tried.push(Tried { candidate, why }),
        }
    }
    let others = known_sockets(around, Family::Any)
        .into_iter()
        .filter(|path| !tried.iter().any(|one| socket_path(&one.candidate.address).is_ok_and(|tried| tried == *path)))
        .filter(|path| std::os::unix::net::UnixStream::connect(path).is_ok())
        .map(|path| path.display().to_string())
        .collect();
    Err(DiscoverError { tried, others })
}

async fn open(address: &str, answered: &impl Fn(&Reached)) -> Result<Engine, String> {
    let path = socket_path(address)?;
    let described = async {
        let reached = Engine::reach(&path).await?;
        answered(&reached);
        reached.describe().await
    };
    described.await.map_err(|error| match error {
        EngineError::Unreachable { reason, .. } => reason,
        other => other.to_string(),
    })
}

/// Only this machine's unix sockets: an engine elsewhere has other files under the same paths.
fn socket_path(address: &str) -> Result<PathBuf, String> {
    let path = match address.split_once("://") {
        None => address,
        Some(("unix", path)) => path,
        Some((scheme, _)) => {
            return Err(format!(
                "{scheme}:// is not supported: the engine mounts this machine's directories, so laneyard needs its unix socket here (run a laneyard agent on the other machine instead)"
            ));
        }
    };
    if path.starts_with('/') {
        Ok(PathBuf::from(path))
    } else {
        Err("not an absolute path: write unix:///PATH, `docker` or `podman`".to_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Any,
    Docker,
    Podman,
}

/// Where to look, in order (field lesson 28). Public for the doctor.
#[must_use]
pub fn candidates(explicit: Option<&EngineChoice>, around: &Surroundings) -> Vec<Candidate> {
    let family = match explicit {
        Some(EngineChoice::Docker) => Family::Docker,
        Some(EngineChoice::Podman) => Family::Podman,
        Some(socket) => return vec![Candidate { source: Source::Flag, address: socket.to_string() }],
        None => Family::Any,
    };
    let mut named = Vec::new();
    if family != Family::Podman {
        let host = around.docker_host.clone().map(|address| Candidate { source: Source::DockerHost, address });
        named.extend(host.or_else(|| current_context(around)));
    }
    if family != Family::Docker
        && let Some(address) = &around.container_host
    {
        named.push(Candidate { source: Source::ContainerHost, address: address.clone() });
    }
    if !named.is_empty() {
        return named;
    }
    let known = known_sockets(around, family).into_iter();
    known.map(|path| Candidate { source: Source::Known, address: path.display().to_string() }).collect()
}

/// The Docker CLI's current context, unless it is the default one. A context that cannot be read is a candidate too, so
/// that the error names it.
fn current_context(around: &Surroundings) -> Option<Candidate> {
    let config = around.docker_config.as_ref()?;
    let name = match &around.docker_context {
        Some(name) => name.clone(),
        None => {
            let text = std::fs::read(config.join("config.json")).ok()?;
            let json: Value = serde_json::from_slice(&text).ok()?;
            json.get("currentContext")?.as_str()?.to_owned()
        }
    };
    if name.is_empty() || name == "default" {
        return None;
    }
    let id: String = Sha256::digest(name.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let meta = config.join("contexts/meta").join(id).join("meta.json");
    let host = std::fs::read(&meta).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let host = host.and_then(|json| json.pointer("/Endpoints/docker/Host")?.as_str().map(str::to_owned));
    let address = host.unwrap_or_else(|| format!("no endpoint in {}", meta.display()));
    Some(Candidate { source: Source::Context(name), address })
}

fn known_sockets(around: &Surroundings, family: Family) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        if !found.contains(&path) {
            found.push(path);
        }
    };
    let system = |path: &str| around.root.join(path);
    let runtime = around.xdg_runtime_dir.clone();
    let user_runtime = system(&format!("run/user/{}", around.uid));
    if family != Family::Podman {
        add(system("var/run/docker.sock"));
        for dir in runtime.iter().chain([&user_runtime]) {
            add(dir.join("docker.sock"));
        }
        if let Some(home) = &around.home {
            // Desktop, Colima's two layouts, OrbStack, Rancher Desktop, Lima.
            for tail in [
                ".docker/run/docker.sock",
                ".docker/desktop/docker.sock",
                ".colima/default/docker.sock",
                ".config/colima/default/docker.sock",
                ".orbstack/run/docker.sock",
                ".rd/docker.sock",
            ] {
                add(home.join(tail));
            }
        }
    }
    if family != Family::Docker {
        if around.uid == 0 {
            add(system("run/podman/podman.sock"));
        }
        for dir in runtime.iter().chain([&user_runtime]) {
            add(dir.join("podman/podman.sock"));
        }
        if around.uid != 0 {
            add(system("run/podman/podman.sock"));
        }
        if let Some(home) = &around.home {
            for tail in [
                ".local/share/containers/podman/machine/podman.sock",
                ".local/share/containers/podman/machine/podman-machine-default/podman.sock",
                ".local/share/containers/podman/machine/qemu/podman.sock",
                ".colima/default/podman.sock",
            ] {
                add(home.join(tail));
            }
        }
    }
    found
}

/// True when a path is, or contains, a socket of an engine: never mount that into a lane.
#[must_use]
pub fn covers_engine_socket(path: &Path, address: &str) -> bool {
    let socket = Path::new(address);
    let real = socket.canonicalize().unwrap_or_else(|_| socket.to_owned());
    socket.starts_with(path) || real.starts_with(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(dir: &Path) -> Surroundings {
        Surroundings { root: dir.to_owned(), home: Some(dir.join("home")), uid: 501, ..Default::default() }
    }

    #[test]
    fn the_order_is_flag_environment_context_known_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let mut around = around(dir.path());
        assert_eq!(candidates(Some(&EngineChoice::Socket("/x".into())), &around)[0].source, Source::Flag);
        assert!(candidates(None, &around).len() > 8);
        around.container_host = Some("unix:///p".into());
        assert_eq!(candidates(Some(&EngineChoice::Docker), &around)[0].source, Source::Known);
        around.docker_host = Some("unix:///d".into());
        let both: Vec<String> = candidates(None, &around).into_iter().map(|one| one.address).collect();
        assert_eq!(both, ["unix:///d", "unix:///p"]);
    }

    #[test]
    fn a_choice_is_a_family_or_a_socket_of_this_machine() {
        for (text, expected) in [
            ("docker", EngineChoice::Docker),
            ("podman", EngineChoice::Podman),
            ("unix:///run/x.sock", EngineChoice::Socket("/run/x.sock".into())),
            ("/run/x.sock", EngineChoice::Socket("/run/x.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        for (text, part) in [
            ("podmann", "`podmann` names no engine: not an absolute path: write unix:///PATH, `docker` or `podman`"),
            ("", "`` names no engine"),
            ("tcp://1.2.3.4:2375", "tcp:// is not supported"),
        ] {
            let message = text.parse::<EngineChoice>().unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn the_current_docker_context_is_read_as_the_docker_program_stores_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("docker");
        let id = "dea45b0cbc4c7c5d2d9f8ccf5b4dd4b2d4a4bb1ed9ae7e0fb2d5b8d6df4d97b1";
        let id_of: String = Sha256::digest(b"colima").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(id_of.len(), id.len());
        std::fs::create_dir_all(config.join("contexts/meta").join(&id_of)).unwrap();
        std::fs::write(config.join("config.json"), r#"{"currentContext":"colima"}"#).unwrap();
        let meta = r#"{"Name":"colima","Endpoints":{"docker":{"Host":"unix:///c.sock"}}}"#;
        std::fs::write(config.join("contexts/meta").join(&id_of).join("meta.json"), meta).unwrap();
        let around = Surroundings { docker_config: Some(config), ..around(dir.path()) };
        let found = candidates(None, &around);
        assert_eq!(found, [Candidate { source: Source::Context("colima".into()), address: "unix:///c.sock".into() }]);
    }

    #[tokio::test]
    async fn every_candidate_and_its_reason_is_in_the_message() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join("var/run/docker.sock");
        std::fs::create_dir_all(dead.parent().unwrap()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let text = connect(None, &around(dir.path())).await.unwrap_err().to_string();
        assert!(text.contains(&format!("{} (known socket): the socket is dead", dead.display())), "{text}");
        assert!(text.contains(".colima/default/docker.sock (known socket): no such socket"), "{text}");
        assert!(text.contains("podman/podman.sock"), "{text}");
    }

    #[tokio::test]
    async fn a_named_engine_is_binding_and_another_is_only_suggested() {
        let dir = tempfile::tempdir().unwrap();
        let live = dir.path().join("var/run/docker.sock");
        std::fs::create_dir_all(live.parent().unwrap()).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&live).unwrap();
        let around = Surroundings { docker_host: Some("ssh://me@host".into()), ..around(dir.path()) };
        let text = connect(None, &around).await.unwrap_err().to_string();
        assert!(text.contains("ssh://me@host (DOCKER_HOST): ssh:// is not supported"), "{text}");
        assert!(text.contains(&format!("another engine answers at {}", live.display())), "{text}");
    }
}
