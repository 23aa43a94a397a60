//! `laneyard-agent run`: wires state directory, engine, worker and link together, and ends them in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::attempt::directory::StateDir;
use crate::attempt::{Deps, EngineSource, Supply};
use crate::config::{Config, ControllerAddress, Instance, Proof};
use crate::container::discover::{EngineChoice, Surroundings};
use crate::container::image::PullPolicy;
use crate::identity::{self, Home, Identity, Joining};
use crate::ids::{InstanceId, WorkerId};
use crate::link;
use crate::moment::moment;
use crate::retention::Rules;
use crate::snapshot::Cache;
use crate::sole::Sole;
use crate::transport::{Endpoint, Fingerprint, Token, Transport};
use crate::wire::worker::{InstanceFacts, WorkerFacts};
use crate::worker::{LocalRunner, Worker};
use crate::worktree::git::Git;

/// Attempts at the same time, if nobody says.
const CAPACITY: u32 = 4;
/// How long a stopping agent waits for its tasks. Attempts go on without it.
const GRACE: Duration = Duration::from_secs(10);

/// The worker side of laneyard.
#[derive(Debug, clap::Parser)]
#[command(name = "laneyard-agent", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Serve a controller as a worker until SIGINT or SIGTERM. Attempts survive that.
    Run(Run),
    /// Join a controller, once, with the token that `laneyard worker token` printed; then `run` needs no flags.
    Join(Join),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The controller: https://HOST:PORT, http://127.0.0.1:PORT or unix:/PATH; by default the joined one.
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    /// File with a token of the controller, readable by its owner only; by default the joined identity counts.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The authority (PEM) that the controller's certificate must be of.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A client certificate (PEM) instead of a token.
    #[arg(long, value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// The certificate's key (PEM), if it is not in the same file.
    #[arg(long, value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// Directory of attempts; by default the configured one.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// This worker's name; by default the joined one, else the host's.
    #[arg(long, value_name = "NAME")]
    name: Option<WorkerId>,
    /// Labels that assignments may ask for, beside the configured ones.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// Attempts at the same time; by default the configured number, else 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    capacity: Option<u32>,
    /// The engine: docker, podman or its address; by default the configured one, else it is looked for.
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineChoice>,
}

#[derive(Debug, clap::Args)]
struct Join {
    /// The controller: https://HOST:PORT.
    controller: Endpoint,
    /// The single-use token.
    #[arg(long, env = "LANEYARD_JOIN_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: String,
    /// Fingerprint of the controller's authority.
    #[arg(long, value_name = "SHA256")]
    ca_fingerprint: Fingerprint,
    /// This worker's name; by default the host's.
    #[arg(long, value_name = "NAME")]
    name: Option<WorkerId>,
    /// The agent's state directory; by default the configured one.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Join although this worker has joined before.
    #[arg(long)]
    replace: bool,
}

/// What the caller wrote cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is no label: write KEY=VALUE")),
    }
}

impl Cli {
    /// True for the command that goes on and logs what happens; the other one answers its caller.
    #[must_use]
    pub const fn serves(&self) -> bool {
        matches!(self.command, Command::Run(_))
    }
}

/// Runs the command line.
///
/// # Errors
/// The configuration, the state directory, the engine or the controller cannot be used.
pub fn main(cli: Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start a runtime")?;
    match cli.command {
        Command::Run(run) => runtime.block_on(run.run()),
        Command::Join(join) => runtime.block_on(join.run()),
    }
}

fn config() -> anyhow::Result<Config> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    Ok(Config::load(&environment)?)
}

impl Join {
    async fn run(self) -> anyhow::Result<()> {
        let named = self.state_dir;
        let state_dir = named.clone().map_or_else(|| config().map(|config| config.state_dir), Ok)?;
        let worker = self.name.map_or_else(host_name, Ok)?;
        let token = Token::parse(&self.token)
            .ok_or_else(|| UsageError("--token is no token: copy the whole command".to_owned()))?;
        let (controller, pin) = (self.controller, self.ca_fingerprint);
        let say = |text: &str| say_to(&mut std::io::stderr(), text);
        let joining = Joining { controller, token, pin, worker, replace: self.replace, say };
        identity::join(&Home::of(&state_dir), &joining).await?;
        say_to(&mut std::io::stdout(), &format!("worker `{}` has joined {}", joining.worker, joining.controller));
        let place = named.map_or_else(String::new, |dir| format!(" --state-dir {}", dir.display()));
        say(&format!("Next: laneyard-agent run{place}"));
        Ok(())
    }
}

/// One line for whoever called. A closed pipe is the reader's choice.
fn say_to(to: &mut dyn std::io::Write, text: &str) {
    let _ = writeln!(to, "{text}").and_then(|()| to.flush());
}

/// The way to the controller, and who we are on it.
struct Way {
    transport: Transport,
    name: WorkerId,
    /// Kept renewed, if it is the joined one.
    identity: Option<(Home, Identity)>,
}

impl Run {
    /// What the flags name, else what this worker joined, else what is configured.
    fn way(&self, config: &Config, state_dir: &Path) -> anyhow::Result<Way> {
        let proof = Proof {
            ca: self.ca.clone(),
            token_file: self.token_file.clone(),
            client_cert: self.client_cert.clone(),
            client_key: self.client_key.clone(),
        };
        let name = || self.name.clone().map_or_else(host_name, Ok);
        let home = Home::of(state_dir);
        let named = proof.token_file.is_some() || proof.client_cert.is_some();
        if !named && let Some(identity) = home.load()? {
            if let Some(name) = self.name.as_ref().filter(|name| **name != identity.worker) {
                let joined = &identity.worker;
                let message = format!("this worker joined as `{joined}`, not as `{name}`: leave --name out");
                return Err(UsageError(message).into());
            }
            if identity.is_over() {
                anyhow::bail!(
                    "the certificate of worker `{}` ended at {}: set the clock if it is wrong, else join anew with \
                     --replace",
                    identity.worker,
                    moment(identity.validity.not_after)
                );
            }
            let url = self.controller.as_ref().unwrap_or(&identity.controller);
            let transport = Transport::with(&url.parse()?, identity.credentials.clone())?;
            return Ok(Way { transport, name: identity.worker.clone(), identity: Some((home, identity)) });
        }
        let address = match (&self.controller, &config.controller) {
            (Some(url), Some(known)) if known.url == url.trim_end_matches('/') => {
                ControllerAddress::new(url, proof.or(known.proof.clone()))
            }
            (Some(url), _) => ControllerAddress::new(url, proof),
            (None, Some(known)) => ControllerAddress::new(&known.url, proof.or(known.proof.clone())),
            (None, None) => {
                let message = "this worker has not joined a controller: run the command that `laneyard worker token` \
                               prints on the controller, or pass --controller and --token-file";
                return Err(UsageError(message.to_owned()).into());
            }
        };
        Ok(Way { transport: address.transport()?, name: name()?, identity: None })
    }
}

impl Run {
    async fn run(self) -> anyhow::Result<()> {
        let config = config()?;
        let state_dir = self.state_dir.as_ref().unwrap_or(&config.state_dir);
        let Way { transport, name, identity } = self.way(&config, state_dir)?;
        let state = StateDir::open(state_dir)?;
        let _sole = Sole::claim(state.root())?;
        let engine = EngineSource::new(self.engine.or(config.engine), Surroundings::from_env());
        // A worker without an engine would only collect attempts that fail.
        let found = engine.get().await?;
        let capacity = self.capacity.or(config.capacity).unwrap_or(CAPACITY);
        let facts = WorkerFacts {
            store: state.owner()?.to_string().parse().context("the state directory's identity is damaged")?,
            labels: config.labels.into_iter().chain(self.labels).collect(),
            capacity,
            engine: format!("{} {}", found.info().kind.as_str(), found.info().version),
            arch: std::env::consts::ARCH.to_owned(),
            os: std::env::consts::OS.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            images: config.images.values().map(ToString::to_string).collect(),
            instances: announce(&config.instances, capacity),
        };
        let cache = Cache::open(&state.root().join("objects"), config.snapshot.cache, &Git::new())?;
        let deps = Deps {
            state,
            worker: name.clone(),
            engine,
            images: config.images,
            pull: PullPolicy::default(),
            instances: config.instances,
            supply: Some(Supply { transport: transport.clone(), cache }),
        };
        let worker = Worker::new(deps, facts);
        // First everything that a killed agent left: the registration must name all of it.
        worker.adopt_all(|_| true);
        let shutdown = CancellationToken::new();
        if let Some((home, identity)) = identity {
            tokio::spawn(identity::keep_renewed(home, identity, transport.clone(), shutdown.clone()));
        }
        serve(transport, worker, name, config.retention, shutdown).await
    }
}

/// The configured accounts as a controller sees them. Without a limit of its own, the worker's holds.
#[must_use]
pub fn announce(instances: &BTreeMap<InstanceId, Instance>, capacity: u32) -> Vec<InstanceFacts> {
    let facts = |(id, instance): (&InstanceId, &Instance)| InstanceFacts {
        instance: id.clone(),
        provider: instance.driver,
        concurrency: instance.concurrency.unwrap_or(capacity).min(capacity),
    };
    instances.iter().map(facts).collect()
}

async fn serve(
    transport: Transport,
    worker: Arc<Worker>,
    name: WorkerId,
    rules: Rules,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (sweeper, stop) = (Arc::clone(&worker), shutdown.clone());
    let sweeping = tokio::spawn(async move {
        tokio::join!(
            sweeper.sweep_until(stop.clone()),
            sweeper.retain_until(rules, stop.clone()),
            sweeper.let_go_until(stop.clone()),
            sweeper.deliver_late_until(stop.clone()),
        );
    });
    let link = link::run(transport, Arc::new(LocalRunner(worker)), name.clone(), shutdown.clone());
    tokio::pin!(link);
    let outcome = tokio::select! {
        outcome = &mut link => outcome,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    info!(worker = %name, "stopping; attempts go on and are taken over at the next start");
    shutdown.cancel();
    if outcome.is_ok() {
        // Not in time is no harm: everything under way is on disk.
        let _ = tokio::time::timeout(GRACE, &mut link).await;
    }
    let _ = tokio::time::timeout(GRACE, sweeping).await;
    Ok(outcome?)
}

/// The kernel's idea of the host's name; where it has no file for that, the shell's.
fn host_name() -> anyhow::Result<WorkerId> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let name = name.context("cannot read the host's name: pass --name")?;
    let name = name.trim();
    name.parse().with_context(|| format!("the host's name `{name}` cannot name a worker: pass --name"))
}
