//! `laneyard-agent`: the worker side as a process of its own. Parses, starts logging, calls the library.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use agent::config::ConfigError;
use agent::run::{Cli, UsageError};
use agent::transport::EndpointError;
use clap::Parser as _;
use tracing_subscriber::EnvFilter;

/// The exit codes of `laneyard`: a caller's mistake, and a command that failed.
const USAGE: u8 = 64;
const FAILED: u8 = 70;

/// An error and its causes on one line, each once: many name their cause themselves.
fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let more = cause.to_string();
        match text.is_empty() {
            true => more,
            false if text.contains(&more) => text,
            false => format!("{text}: {more}"),
        }
    })
}

/// What the caller wrote, in words, files or variables, cannot be followed.
fn is_usage(error: &anyhow::Error) -> bool {
    let address = error.downcast_ref::<EndpointError>();
    error.is::<UsageError>()
        || error.is::<ConfigError>()
        || address.is_some_and(|error| !matches!(error, EndpointError::Client(_)))
}

fn main() -> ExitCode {
    // Before any parser or runtime: the egress proxy of an attempt is this program too.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == agent::egress::ENTRY) {
        return agent::egress::main(arguments);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print(); // a closed pipe is the reader's choice
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let serves = cli.serves();
    let unasked = if serves { "info" } else { "off" };
    let filter = EnvFilter::try_from_env("LANEYARD_LOG").unwrap_or_else(|_| EnvFilter::new(unasked));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    lines.with_ansi(std::io::stderr().is_terminal()).init();
    match agent::run::main(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if serves {
                tracing::error!("{}", told(&error));
            } else {
                let _ = writeln!(std::io::stderr(), "error: {}", told(&error)); // a closed pipe is the reader's choice
            }
            ExitCode::from(if is_usage(&error) { USAGE } else { FAILED })
        }
    }
}
