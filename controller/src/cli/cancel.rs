//! `laneyard cancel`: asks an attempt to end, as an interrupt to its own client would.

use std::process::ExitCode;

use agent::config::Config;
use agent::ids::AttemptId;
use agent::wire::attempt::CancelSignal;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::record::{RecordError, Records};
use super::run::signals::Latch;
use super::{adopt, connect, output};

/// End an attempt; its receipt will say `cancelled`.
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// Id of the attempt.
    attempt: AttemptId,
    /// Ask with SIGTERM instead of SIGINT.
    #[arg(long)]
    term: bool,
}

impl Cancel {
    /// Asks and returns; for an attempt whose client was killed, finishes it here.
    ///
    /// # Errors
    /// The attempt is unknown, or its client or controller cannot be reached.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let signal = if self.term { CancelSignal::Terminate } else { CancelSignal::Interrupt };
        let records = Records::of(&config.state_dir);
        match records.look(self.attempt) {
            Ok(record) if record.controller.is_some() => {
                let mut there = config.clone();
                there.controller = record
                    .controller
                    .map(|url| agent::config::ControllerAddress { url, token_file: record.token_file });
                connect::remote(&there)?.cancel(self.attempt, signal).await?;
                Ok(ExitCode::SUCCESS)
            }
            Ok(_) => self.local(config, &records, signal).await,
            Err(RecordError::Unknown { .. }) if config.controller.is_some() => {
                connect::remote(config)?.cancel(self.attempt, signal).await?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn local(self, config: &Config, records: &Records, signal: CancelSignal) -> anyhow::Result<ExitCode> {
        match records.take(self.attempt) {
            // The record's lock proves that the process is the one that wrote it.
            Err(RecordError::Busy { pid, .. }) if pid > 1 => {
                let number = if self.term { Signal::SIGTERM } else { Signal::SIGINT };
                kill(Pid::from_raw(i32::try_from(pid)?), number)?;
                Ok(ExitCode::SUCCESS)
            }
            Ok(held) => {
                let (_keep, asked) = tokio::sync::watch::channel(Some(signal));
                let mut latch = Latch::of(asked);
                let settled = adopt::finish(config, held, &mut latch, output::Talk::SILENT).await?;
                output::data(&settled.receipt.to_string());
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Err(error.into()),
        }
    }
}
