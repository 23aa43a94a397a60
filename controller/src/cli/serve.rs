//! `laneyard serve`: the controller as a process of its own.

use std::process::ExitCode;

use agent::config::Config;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::output;
use crate::serve::{Listen, ServeConfig, serve};

/// Run a controller that lanes and agents on this machine can talk to.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// A loopback address, or unix:/path/of/a/socket.
    #[arg(long, default_value = "127.0.0.1:7410", value_name = "ADDRESS")]
    listen: String,
}

impl Serve {
    /// Serves until SIGINT or SIGTERM. Prints the address on stdout when it is ready.
    ///
    /// # Errors
    /// It cannot listen, or its store cannot be used.
    pub async fn run(self, config: &Config, token_file: Option<std::path::PathBuf>) -> anyhow::Result<ExitCode> {
        let listen: Listen = self.listen.parse()?;
        let mut settings = ServeConfig::new(listen, &config.state_dir.join("controller"));
        if let Some(file) = token_file {
            settings.token_file = file;
        }
        let token = settings.token_file.clone();
        let shutdown = CancellationToken::new();
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let stop = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            stop.cancel();
        });
        serve(settings, shutdown, |address| {
            output::data(&format!("listening on {address}, token in {}", token.display()));
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
