//! `laneyard worker`: lets workers join, and throws them out.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent::config::Config;
use agent::ids::WorkerId;
use agent::wire::identity::{CreateCredential, Kind, RevokedWorker, Role};
use agent::wire::paths;
use anyhow::Context as _;

use super::administer::{self, Administration};
use super::run::options::UsageError;
use super::{life, output};

/// Let workers join this controller, or throw them out.
#[derive(Debug, clap::Args)]
pub struct Worker {
    /// The state directory of this machine's controller, instead of the configured controller.
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the command with which one worker joins, once.
    Token {
        /// How long it may be used, 30 days at most.
        #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = life::of_join)]
        expires: Duration,
        /// Good for this worker name only.
        #[arg(long)]
        name: Option<WorkerId>,
        /// How the worker reaches the controller, if not by its first name.
        #[arg(long)]
        url: Option<String>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// End everything that speaks for a worker, also on open connections. It may join anew with a new token.
    Revoke {
        worker: WorkerId,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

impl Worker {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The controller cannot be asked, or refuses.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let there = administer::open(config, self.dir).await?;
        let done = match self.command {
            Command::Token { expires, name, url, json } => token(&there, expires, name, url, json).await,
            Command::Revoke { worker, json } => revoke(&there, &worker, json).await,
        };
        there.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }
}

async fn token(
    there: &Administration,
    expires: Duration,
    name: Option<WorkerId>,
    url: Option<String>,
    json: bool,
) -> anyhow::Result<()> {
    let url = url.or_else(|| there.url.clone()).context("the controller has no name: pass --url https://HOST:PORT")?;
    if !url.starts_with("https://") {
        return Err(UsageError("workers join over TLS: pass --url https://HOST:PORT".to_owned()).into());
    }
    let name = name.map(|name| name.to_string()).unwrap_or_default();
    let expires_in_s = Some(expires.as_secs());
    let wanted = CreateCredential { kind: Kind::Join, name: name.clone(), role: Role::Worker, expires_in_s, csr: None };
    let made = there.make(&wanted).await?;
    let secret = made.secret.context("the controller's answer has no token: are both of the same version?")?;
    let pin =
        made.ca_fingerprint.context("the controller's answer has no fingerprint: are both of the same version?")?;
    let name = if name.is_empty() { name } else { format!(" --name {name}") };
    let command = format!("laneyard-agent join {url} --token {secret} --ca-fingerprint {pin}{name}");
    if json {
        let mut value = serde_json::to_value(&made.credential)?;
        value["secret"] = secret.into();
        value["caFingerprint"] = pin.into();
        value["url"] = url.into();
        value["command"] = command.into();
        output::data(&value.to_string());
        return Ok(());
    }
    output::data(&command);
    output::line(&format!(
        "Run it once on the worker within {}; after that `laneyard-agent run` needs no flags.",
        humantime::format_duration(expires)
    ));
    Ok(())
}

async fn revoke(there: &Administration, worker: &WorkerId, json: bool) -> anyhow::Result<()> {
    let done: RevokedWorker = there.post(&paths::worker_part(worker, "revoke"), &serde_json::json!({})).await?;
    anyhow::ensure!(
        !done.revoked.is_empty(),
        "worker `{worker}` has no credential that counts: `laneyard token list` shows the workers' names"
    );
    if json {
        output::data(&serde_json::to_string(&done)?);
    } else {
        output::line(&format!("worker `{worker}` is revoked: {}", done.revoked.join(", ")));
    }
    Ok(())
}
