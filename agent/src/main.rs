//! `laneyard-agent`: the worker side as a process of its own. Parses, starts logging, calls the library.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use agent::run::Cli;
use clap::Parser as _;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // Before any parser or runtime: the egress proxy of an attempt is this program too.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == agent::egress::ENTRY) {
        return agent::egress::main(arguments);
    }
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("LANEYARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    lines.with_ansi(std::io::stderr().is_terminal()).init();
    match agent::run::main(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
