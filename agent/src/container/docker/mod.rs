//! The engine's HTTP interface. Only this folder names the client library; every call has a deadline.

mod body;
mod images;
mod raw;
mod read;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters as query;
use bollard::{ClientVersion, Docker};
use futures_util::StreamExt;

use crate::container::info::{Ceilings, EngineInfo, EngineKind};
use crate::container::isolation::IsolationReport;
use crate::container::spec::{ContainerId, ContainerSpec, Labels};
use crate::container::{ContainerState, Delivered, EngineError, Found, Image, Inspection, seccomp};
use crate::ids::OwnerId;

/// A question; engines answer these at once unless they are in trouble.
const ASK: Duration = Duration::from_secs(15);
/// Work of the engine: create, start, remove. Slow disks and the vfs storage driver need their time.
const WORK: Duration = Duration::from_secs(120);
/// The waiting call has no deadline of its own: the caller drops it.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long an engine may be away (a restart) before a wait gives up and the end is unknown.
const OUTAGE: Duration = Duration::from_secs(60);
/// Bytes of a container's own log kept for diagnosis.
const LOG_TAIL: usize = 16 * 1024;

const OURS_MIN: ClientVersion = ClientVersion { major_version: 1, minor_version: 40 };

/// A connected engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    docker: Docker,
    waiting: Docker,
    info: Arc<EngineInfo>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("info", &self.info).finish_non_exhaustive()
    }
}

/// An engine that answers, and of which nothing more is known yet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reached {
    socket: PathBuf,
    kind: EngineKind,
    agreed: ClientVersion,
    pid: Option<i32>,
}

impl Reached {
    /// Reads what the engine is. It takes Docker some ten milliseconds to say it, and Podman some hundred.
    ///
    /// # Errors
    /// No answer, or one that cannot be read; an engine that has left our API versions behind says so here.
    pub async fn describe(&self) -> Result<Engine, EngineError> {
        let Self { socket, kind, agreed, pid } = self;
        let address = self.address();
        let asked = time::OffsetDateTime::now_utc();
        let path = format!("/v{}.{}/info", agreed.major_version, agreed.minor_version);
        let described = raw::get(&address, "describe itself", &path, ASK).await?;
        let mut info = read::info(socket, *kind, agreed, described, asked)?;
        info.ceilings = Ceilings::of(*pid);
        self.engine(info)
    }

    /// The engine as it described itself once, if that was this engine; what it is by now is not known.
    #[must_use]
    pub fn recall(&self, info: EngineInfo) -> Option<Engine> {
        let api = format!("{}.{}", self.agreed.major_version, self.agreed.minor_version);
        let is_it = info.address == self.address() && info.kind == self.kind && info.api == api;
        let info = EngineInfo { ceilings: Ceilings::of(self.pid), clock_skew_ms: None, ..info };
        is_it.then(|| self.engine(info).ok()).flatten()
    }

    fn engine(&self, info: EngineInfo) -> Result<Engine, EngineError> {
        let docker = self.connect()?;
        let waiting = docker.clone().with_timeout(FOREVER);
        Ok(Engine { docker, waiting, info: Arc::new(info) })
    }

    /// The engine's socket.
    #[must_use]
    pub fn address(&self) -> String {
        self.socket.display().to_string()
    }

    /// Looks at an image that is already on the engine, as [`Engine::image`].
    ///
    /// # Errors
    /// The engine could not be asked.
    pub async fn image(&self, reference: &str) -> Result<Option<Image>, EngineError> {
        images::look(&self.address(), &self.connect()?, reference).await
    }

    fn connect(&self) -> Result<Docker, EngineError> {
        let address = self.address();
        Docker::connect_with_unix(&address, WORK.as_secs(), &self.agreed).map_err(|source| EngineError::Unreachable {
            address,
            operation: "connect".to_owned(),
            reason: source.to_string(),
        })
    }
}

impl Engine {
    /// Connects to a unix socket and agrees on an API version. Answered at once by an engine that is well.
    ///
    /// # Errors
    /// Nobody answers, what answers is no engine, or it is too old.
    pub async fn reach(socket: &Path) -> Result<Reached, EngineError> {
        let address = socket.display().to_string();
        let unreachable = |reason: String| EngineError::Unreachable {
            address: address.clone(),
            operation: "connect".to_owned(),
            reason,
        };
        // By hand: HTTP libraries fold "refused", "no permission" and "no such file" into one text.
        let probe = tokio::time::timeout(ASK, tokio::net::UnixStream::connect(socket)).await;
        let pid = match probe {
            Ok(Ok(stream)) => stream.peer_cred().ok().and_then(|peer| peer.pid()),
            Ok(Err(source)) => return Err(unreachable(connect_reason(&source))),
            Err(_) => return Err(unreachable(format!("no connection within {} s", ASK.as_secs()))),
        };
        let pong = raw::ping(&address, "tell its version", ASK).await?;
        let agreed = read::agree(&address, &pong.api, OURS_MIN, *bollard::API_DEFAULT_VERSION)?;
        let kind = if pong.podman { EngineKind::Podman } else { EngineKind::Docker };
        Ok(Reached { socket: socket.to_owned(), kind, agreed, pid })
    }

    /// Connects to a unix socket, agrees on an API version and reads what the engine is.
    ///
    /// # Errors
    /// As [`Engine::reach`] and [`Reached::describe`].
    pub async fn open(socket: &Path) -> Result<Self, EngineError> {
        Self::reach(socket).await?.describe().await
    }

    /// What the engine is.
    #[must_use]
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    async fn call<T>(
        &self,
        operation: &str,
        deadline: Duration,
        future: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        within(&self.info.address, operation, deadline, future).await
    }

    async fn call_on<T>(
        &self,
        operation: &str,
        id: &ContainerId,
        deadline: Duration,
        future: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        let operation = format!("{operation} container {id}");
        match self.call(&operation, deadline, future).await {
            Err(EngineError::Refused { status: 404, .. }) => Err(EngineError::Gone { container: id.clone() }),
            other => other,
        }
    }

    /// Looks at an image that is already on the engine. `None` when it is not there. Never pulls.
    ///
    /// # Errors
    /// The engine could not be asked.
    pub async fn image(&self, reference: &str) -> Result<Option<Image>, EngineError> {
        images::look(&self.info.address, &self.docker, reference).await
    }

    /// Pulls an image. The deadline is for the whole pull.
    ///
    /// # Errors
    /// The registry or the engine refused, or it took longer than `deadline`.
    pub async fn pull(&self, reference: &str, deadline: Duration) -> Result<(), EngineError> {
        let operation = format!("pull image `{reference}`");
        let options = query::CreateImageOptionsBuilder::default().from_image(reference).build();
        self.call(&operation, deadline, async {
            let mut progress = self.docker.create_image(Some(options), None, None);
            while let Some(step) = progress.next().await {
                step?;
            }
            Ok(())
        })
        .await
    }

    /// Creates the container; a container of the same attempt that already exists is returned as it is, so that a repeat
    /// after a lost answer makes no second one.
    ///
    /// # Errors
    /// The engine refused, or a stranger's container has the name.
    pub async fn create(&self, spec: &ContainerSpec) -> Result<ContainerId, EngineError> {
        let name = spec.name();
        let operation = format!("create container {name}");
        let profile = self.seccomp_option(spec)?;
        let body = body::create(spec, &self.info, &profile)?;
        let options = query::CreateContainerOptionsBuilder::default().name(&name).build();
        match self.call(&operation, WORK, self.docker.create_container(Some(options), body)).await {
            Ok(created) => Ok(ContainerId::new(created.id)),
            // Docker says 409; Podman 500 on old versions.
            Err(EngineError::Refused { status: status @ (409 | 500), operation, message }) => {
                match self.inspect(&ContainerId::new(&name)).await {
                    Ok(found) if Labels::parse(&found.labels).as_ref() == Some(&spec.labels) => Ok(found.id),
                    _ => Err(EngineError::Refused { operation, status, message }),
                }
            }
            Err(EngineError::Refused { status: 400, operation, message }) => Err(match spec.limits.cpus {
                Some(asked) if self.info.cpus > 0 && asked > f64::from(self.info.cpus) => {
                    EngineError::Cpus { asked, has: self.info.cpus }
                }
                _ => EngineError::Refused { status: 400, operation, message },
            }),
            Err(error) => Err(error),
        }
    }

    /// Docker takes the profile's text, Podman the path of a file that it reads when the container is created.
    fn seccomp_option(&self, spec: &ContainerSpec) -> Result<String, EngineError> {
        if self.info.kind == EngineKind::Docker {
            return Ok(format!("seccomp={}", seccomp::PROFILE));
        }
        let path: PathBuf = spec.private_dir.join("seccomp.json");
        std::fs::write(&path, seccomp::PROFILE).map_err(|source| EngineError::File { path: path.clone(), source })?;
        Ok(format!("seccomp={}", path.display()))
    }

    /// Starts a created container. Starting a running one is no error.
    ///
    /// # Errors
    /// Gone, or the engine could not start it (the message has the runtime's reason).
    pub async fn start(&self, id: &ContainerId) -> Result<(), EngineError> {
        let options: Option<query::StartContainerOptions> = None;
        self.call_on("start", id, WORK, self.docker.start_container(id.as_str(), options)).await
    }

    /// One look at the container.
    ///
    /// # Errors
    /// Gone, or the engine could not be asked.
    pub async fn inspect(&self, id: &ContainerId) -> Result<Inspection, EngineError> {
        read::inspection(&self.look(id).await?)
    }

    async fn look(&self, id: &ContainerId) -> Result<bollard::models::ContainerInspectResponse, EngineError> {
        let operation = format!("inspect container {id}");
        let path = format!("/v{}/containers/{}/json", self.info.api, id.as_str());
        match raw::get(&self.info.address, &operation, &path, ASK).await {
            Ok(mut json) => {
                if let Some(status) = json.pointer_mut("/State/Status") {
                    raw::docker_words(status);
                }
                serde_json::from_value(json)
                    .map_err(|error| EngineError::Answer { operation, reason: error.to_string() })
            }
            Err(EngineError::Refused { status: 404, .. }) => Err(EngineError::Gone { container: id.clone() }),
            Err(error) => Err(error),
        }
    }

    /// What is really in force on a created (better: a started) container, read back from the engine in the same look
    /// as its state.
    ///
    /// # Errors
    /// Gone, or the engine could not be asked.
    pub async fn isolation(
        &self,
        id: &ContainerId,
        spec: &ContainerSpec,
    ) -> Result<(Inspection, IsolationReport), EngineError> {
        let seen = self.look(id).await?;
        Ok((read::inspection(&seen)?, read::isolation(&seen, spec, &self.info)))
    }

    /// Waits until a started container has ended, and returns its final state. Survives an engine that is away for
    /// up to a minute. No deadline: drop the future to give up.
    ///
    /// # Errors
    /// Gone (removed by somebody), or the engine stayed unreachable: then nothing is known about the end.
    pub async fn wait(&self, id: &ContainerId) -> Result<ContainerState, EngineError> {
        let mut away_since: Option<tokio::time::Instant> = None;
        loop {
            match self.inspect(id).await {
                Ok(Inspection { state: state @ ContainerState::Exited { .. }, .. }) => return Ok(state),
                Ok(_) => away_since = None,
                Err(error) if error.is_unreachable() => {
                    let since = *away_since.get_or_insert_with(tokio::time::Instant::now);
                    if since.elapsed() > OUTAGE {
                        return Err(error);
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            // Its result is only a hint (a non-zero exit is an "error" of the client library): the inspection decides.
            let began = tokio::time::Instant::now();
            let options = query::WaitContainerOptionsBuilder::default().condition("not-running").build();
            let mut ended = std::pin::pin!(self.waiting.wait_container(id.as_str(), Some(options)));
            let _ = ended.next().await;
            if began.elapsed() < Duration::from_millis(20) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Gives Docker up to `patience` to see a container end that was told to: one that has ended is removed in two thirds
    /// of the time that ending it by force takes. Podman looks only four times a second, and is not waited for.
    pub async fn let_end(&self, id: &ContainerId, patience: Duration) {
        if self.info.kind == EngineKind::Docker {
            let options = query::WaitContainerOptionsBuilder::default().condition("not-running").build();
            let mut ended = std::pin::pin!(self.waiting.wait_container(id.as_str(), Some(options)));
            let _ = tokio::time::timeout(patience, ended.next()).await; // the removal decides, whatever this says
        }
    }

    /// Sends a signal to PID 1.
    ///
    /// # Errors
    /// Gone, or the engine could not be asked.
    pub async fn signal(&self, id: &ContainerId, signal: &str) -> Result<Delivered, EngineError> {
        let options = query::KillContainerOptionsBuilder::default().signal(signal).build();
        let sent = self.call_on("signal", id, ASK, self.docker.kill_container(id.as_str(), Some(options))).await;
        match sent {
            Ok(()) => Ok(Delivered::Sent),
            // Podman answers 500 for an ended container; ask instead of reading the text.
            Err(error @ EngineError::Refused { status: 409 | 500, .. }) => match self.inspect(id).await?.state {
                ContainerState::Running { .. } => Err(error),
                ContainerState::Created | ContainerState::Exited { .. } => Ok(Delivered::NotRunning),
            },
            Err(error) => Err(error),
        }
    }

    /// Removes the container by its exact id, running or not, with its anonymous volumes. Removing an absent one is no error.
    ///
    /// # Errors
    /// The engine refused or could not be asked.
    pub async fn remove(&self, id: &ContainerId) -> Result<(), EngineError> {
        match self.remove_once(id).await {
            Err(error @ EngineError::Refused { status: 409 | 500, .. }) => self.remove_again(id, error).await,
            other => other,
        }
    }

    async fn remove_once(&self, id: &ContainerId) -> Result<(), EngineError> {
        let options = query::RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let removed = self.call_on("remove", id, WORK, self.docker.remove_container(id.as_str(), Some(options))).await;
        match removed {
            Err(EngineError::Gone { .. }) => Ok(()),
            other => other,
        }
    }

    /// "Removal already in progress" ends by waiting; what Podman refuses while it still stops the container, or while
    /// another of its commands holds the storage, only ends by asking again.
    async fn remove_again(&self, id: &ContainerId, mut error: EngineError) -> Result<(), EngineError> {
        for look in 1..=200 {
            if let Err(EngineError::Gone { .. }) = self.inspect(id).await {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            if look % 5 == 0 {
                match self.remove_once(id).await {
                    Ok(()) => return Ok(()),
                    Err(again) => error = again,
                }
            }
        }
        Err(error)
    }

    /// All containers, ended ones too, that carry this owner's label and complete labels of ours.
    ///
    /// # Errors
    /// The engine could not be asked.
    pub async fn list(&self, owner: &OwnerId) -> Result<Vec<Found>, EngineError> {
        let operation = "list containers";
        // An owner id is letters, digits and `._-`, so only the JSON around it needs the percent signs.
        let filters = format!("%7B%22label%22%3A%5B%22{}%3D{owner}%22%5D%7D", Labels::OWNER);
        let path = format!("/v{}/containers/json?all=true&filters={filters}", self.info.api);
        let mut json = raw::get(&self.info.address, operation, &path, ASK).await?;
        for state in json.as_array_mut().into_iter().flatten().filter_map(|one| one.get_mut("State")) {
            raw::docker_words(state);
        }
        let listed: Vec<bollard::models::ContainerSummary> = serde_json::from_value(json)
            .map_err(|error| EngineError::Answer { operation: operation.to_owned(), reason: error.to_string() })?;
        // The filter is the engine's; the check is ours.
        Ok(listed.iter().filter_map(read::found).filter(|found| found.labels.owner == *owner).collect())
    }

    /// The last 16 KiB of what PID 1 printed, both streams: for the diagnosis of a start that failed.
    ///
    /// # Errors
    /// Gone, or the engine could not be asked.
    pub async fn log_tail(&self, id: &ContainerId) -> Result<String, EngineError> {
        let options = query::LogsOptionsBuilder::default().stdout(true).stderr(true).tail("200").build();
        self.call_on("read the log of", id, ASK, async {
            let mut kept: Vec<u8> = Vec::new();
            let mut lines = self.docker.logs(id.as_str(), Some(options));
            while let Some(line) = lines.next().await {
                kept.extend_from_slice(&line?.into_bytes());
                if kept.len() > 2 * LOG_TAIL {
                    kept.drain(..kept.len() - LOG_TAIL);
                }
            }
            Ok(String::from_utf8_lossy(&kept[kept.len().saturating_sub(LOG_TAIL)..]).into_owned())
        })
        .await
    }
}

fn connect_reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such socket".to_owned(),
        std::io::ErrorKind::ConnectionRefused => {
            "the socket is dead: nobody listens (is the engine running?)".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "permission denied (is this user in the engine's group, or is it another user's engine?)".to_owned()
        }
        _ => error.to_string(),
    }
}

async fn within<T>(
    address: &str,
    operation: &str,
    deadline: Duration,
    future: impl Future<Output = Result<T, bollard::errors::Error>>,
) -> Result<T, EngineError> {
    match tokio::time::timeout(deadline, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(translate(address, operation, error, deadline)),
        Err(_) => {
            Err(EngineError::Deadline { address: address.to_owned(), operation: operation.to_owned(), after: deadline })
        }
    }
}

fn translate(address: &str, operation: &str, error: bollard::errors::Error, deadline: Duration) -> EngineError {
    use bollard::errors::Error as E;
    let (address, operation) = (address.to_owned(), operation.to_owned());
    match error {
        E::DockerResponseServerError { status_code, message } => {
            let message = if message.trim().is_empty() { "no reason given".to_owned() } else { message };
            EngineError::Refused { operation, status: status_code, message }
        }
        E::DockerStreamError { error } => EngineError::Refused { operation, status: 200, message: error },
        E::RequestTimeoutError => EngineError::Deadline { address, operation, after: deadline },
        E::JsonDataError { message, .. } => EngineError::Answer { operation, reason: message },
        E::JsonSerdeError { err } => EngineError::Answer { operation, reason: err.to_string() },
        other => EngineError::Unreachable { address, operation, reason: chain(&other) },
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
