//! `laneyard-agent run`: wires state directory, engine, worker and link together, and ends them in order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::attempt::directory::StateDir;
use crate::attempt::{Deps, EngineSource};
use crate::config::{Config, Instance};
use crate::container::discover::{EngineChoice, Surroundings};
use crate::container::image::PullPolicy;
use crate::ids::{InstanceId, WorkerId};
use crate::link;
use crate::retention::Rules;
use crate::transport::{Endpoint, Token, Transport};
use crate::wire::worker::{InstanceFacts, WorkerFacts};
use crate::worker::{LocalRunner, Worker};

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
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The controller: http://127.0.0.1:PORT or unix:/PATH.
    #[arg(long, env = "LANEYARD_CONTROLLER", value_name = "URL")]
    controller: Endpoint,
    /// File with the controller's token, readable by its owner only.
    #[arg(long, env = "LANEYARD_TOKEN_FILE", value_name = "FILE")]
    token_file: PathBuf,
    /// Directory of attempts; by default the configured one.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// This worker's name; by default the host's.
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

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is no label: write KEY=VALUE")),
    }
}

/// Runs the command line.
///
/// # Errors
/// The configuration, the state directory, the engine or the controller cannot be used.
pub fn main(cli: Cli) -> anyhow::Result<()> {
    let Command::Run(run) = cli.command;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start a runtime")?;
    runtime.block_on(run.run())
}

impl Run {
    async fn run(self) -> anyhow::Result<()> {
        let environment: BTreeMap<String, String> = std::env::vars().collect();
        let config = Config::load(&environment)?;
        let name = match self.name {
            Some(name) => name,
            None => host_name()?,
        };
        let token = Token::read(&self.token_file)?;
        let transport = Transport::http(&self.controller, Some(token))?;
        let state = StateDir::open(self.state_dir.as_ref().unwrap_or(&config.state_dir))?;
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
        let deps = Deps {
            state,
            worker: name.clone(),
            engine,
            images: config.images,
            pull: PullPolicy::default(),
            instances: config.instances,
        };
        let worker = Worker::new(deps, facts);
        // First everything that a killed agent left: the registration must name all of it.
        worker.adopt_all(|_| true);
        serve(transport, worker, name, config.retention).await
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

async fn serve(transport: Transport, worker: Arc<Worker>, name: WorkerId, rules: Rules) -> anyhow::Result<()> {
    let shutdown = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (sweeper, stop) = (Arc::clone(&worker), shutdown.clone());
    let sweeping = tokio::spawn(async move {
        tokio::join!(sweeper.sweep_until(stop.clone()), sweeper.retain_until(rules, stop));
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
