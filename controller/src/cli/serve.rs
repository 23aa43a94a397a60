//! `laneyard serve`: the controller as a process of its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use agent::config::Config;
use bytesize::ByteSize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::run::options::UsageError;
use super::{USAGE, life, output};
use crate::identity::IdentityDir;
use crate::serve::{Listen, ServeConfig, serve};

/// Heartbeats come four times as often.
const SHORTEST_LEASE: Duration = Duration::from_millis(200);
/// A third of it is left for renewals that fail at first.
const SHORTEST_LIFE: Duration = Duration::from_secs(60);

/// Run a controller that clients and agents can talk to: over TLS once `laneyard init` has made it an identity.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// ADDRESS:PORT, http://127.0.0.1:PORT for plaintext on this machine, or unix:/path/of/a/socket.
    #[arg(long, default_value = "127.0.0.1:7410", value_name = "ADDRESS")]
    listen: String,
    /// A worker that is silent for longer is unreachable.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = humantime::parse_duration)]
    lease: Duration,
    /// An attempt whose worker is unreachable for longer is interrupted; its late receipt still counts.
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = humantime::parse_duration)]
    interrupt_after: Duration,
    /// Space that is set aside for what admitted attempts still have to tell, and that must be free beside it for a new
    /// one to be admitted.
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    reserve: ByteSize,
    /// The controller's state directory; by default `controller` under the state directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Life of the certificates that workers and clients get, such as 30d. They renew at two thirds of it.
    #[arg(long, value_name = "DURATION", value_parser = life::of_certificate)]
    certificate_life: Option<Duration>,
}

impl Serve {
    /// Serves until SIGINT or SIGTERM. Prints the address on stdout when it is ready.
    ///
    /// # Errors
    /// It cannot listen, or its store cannot be used.
    pub async fn run(self, config: &Config, token_file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        let listen: Listen = self.listen.parse()?;
        if self.lease < SHORTEST_LEASE {
            return Err(UsageError(format!("--lease must be at least {} ms", SHORTEST_LEASE.as_millis())).into());
        }
        let dir = self.dir.unwrap_or_else(|| ServeConfig::dir_of(&config.state_dir));
        let mut settings = ServeConfig::new(listen, &dir);
        let identity = IdentityDir::of(&dir);
        settings.timing.lease = self.lease;
        settings.timing.heartbeat = settings.timing.heartbeat.min(self.lease / 4);
        settings.timing.interrupt_after = self.interrupt_after;
        settings.reserve = fitting(self.reserve, &dir)?;
        settings.retention = config.retention;
        settings.snapshots.cache = config.snapshot.cache;
        if let Some(file) = token_file {
            if identity.exists() {
                output::line(
                    "error: this controller has an identity, whose tokens come from `laneyard token create`: leave \
                     --token-file out",
                );
                return Ok(ExitCode::from(USAGE));
            }
            settings.token_file = file;
        }
        if let Some(life) = self.certificate_life {
            if life < SHORTEST_LIFE {
                let message = format!("--certificate-life must be at least {} s", SHORTEST_LIFE.as_secs());
                return Err(UsageError(message).into());
            }
            settings.lives.client = life;
        }
        let proof = if identity.exists() {
            format!("authority in {}", identity.ca().display())
        } else {
            format!("token in {}", settings.token_file.display())
        };
        let shutdown = CancellationToken::new();
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let stop = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            stop.cancel();
        });
        serve(settings, shutdown, |address| output::data(&format!("listening on {address}, {proof}"))).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// As much again stays free beside the reserve: one that the whole disk could not hold twice would keep every lane out.
fn fitting(reserve: ByteSize, dir: &Path) -> Result<u64, UsageError> {
    // It may still have to be made.
    let disk = dir.ancestors().find_map(|dir| nix::sys::statvfs::statvfs(dir).ok());
    let size = disk.map(|disk| disk.blocks().saturating_mul(disk.fragment_size()));
    match size {
        Some(size) if reserve.as_u64() > size / 2 => Err(UsageError(format!(
            "--reserve {reserve} cannot be set aside: the disk of `{}` has {} in all, and as much again stays free beside the \
             reserve; name a smaller one",
            dir.display(),
            ByteSize(size)
        ))),
        _ => Ok(reserve.as_u64()),
    }
}
