//! Life of the first process. One loop owns everything: it takes one input, handles it without waiting, and goes on.
//! Threads only move output; tasks only move frames, stdin and proxied bytes. They report back as inputs.

mod bridge; // loopback port to the egress socket
mod config; // the container command
mod core; // what the loop knows and how it answers
mod feeder; // a step's stdin
mod files; // find, put, get
mod journal; // starts and ends, for when the container is gone
mod link; // the connection to the agent
mod signals; // children that ended, requests to stop
mod spool; // a step's output
mod step; // one process
mod tree; // all processes

use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Instant;

use laneyard_supervisor::protocol::Request;
use nix::sys::prctl;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use self::config::Config;
use self::core::{Core, Flow};

/// All that can happen.
#[derive(Debug)]
enum Input {
    /// The agent took our call; reports go here.
    Connected(link::Outgoing),
    Disconnected,
    Call {
        request: Request,
        descriptors: Vec<OwnedFd>,
    },
    /// A child has ended.
    Children,
    /// The engine (or a terminal) wants us to end.
    Stop {
        signal: i32,
    },
    /// A step's spools have grown.
    Grew,
    /// A stream is at end of file.
    StreamEnded {
        step: usize,
    },
    /// Stdin bytes were taken, or never will be (`errno`).
    Fed {
        step: usize,
        piece: u64,
        errno: Option<i32>,
    },
}

pub(crate) fn main() -> ExitCode {
    // Before anything else: from here on no process of the same user can trace us or read our memory, variables and
    // descriptors by way of /proc.
    let hidden = prctl::set_dumpable(false);
    let config = match hidden.map_err(|error| format!("cannot hide from other processes: {error}")) {
        Ok(()) => Config::parse(std::env::args().skip(1), |name| std::env::var(name).ok()),
        Err(error) => Err(error),
    };
    match config.and_then(start) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("laneyard supervisor: {error}");
            ExitCode::from(64)
        }
    }
}

fn start(config: Config) -> Result<ExitCode, String> {
    if !tree::is_first() {
        prctl::set_child_subreaper(true).map_err(|error| format!("cannot adopt orphans: {error}"))?;
    }
    let signals = signals::block().map_err(|error| format!("cannot receive signals: {error}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    Ok(runtime.block_on(run(config, signals)))
}

async fn run(config: Config, signals: signals::Blocked) -> ExitCode {
    let (inputs, mut queue) = mpsc::channel(256);
    let mut warnings = Vec::new();
    warnings.extend(config.home.as_deref().and_then(files::make_home));
    let proxy = match &config.proxy {
        Some(proxy) => bridge::open(proxy).map_err(|warning| warnings.push(warning)).ok(),
        None => None,
    };
    warnings.extend(bridge::loopback_warning());
    tokio::spawn(signals::watch(signals, inputs.clone()));
    let link = tokio::spawn(link::keep(config.socket, inputs.clone()));
    let mut core = Core::new(config.token, inputs, proxy, warnings);
    let code = loop {
        let input = tokio::select! {
            biased;
            input = queue.recv() => input,
            () = sleep_until(core.next_wake()) => None,
        };
        let now = Instant::now();
        let flow = match input {
            Some(input) => core.on_input(input, now),
            None => Flow::Go,
        };
        if let Flow::Exit(code) = flow {
            break code;
        }
        if let Flow::Exit(code) = core.on_time(now) {
            break code;
        }
    };
    core.hang_up();
    drop(queue);
    link::finish(link).await;
    tree::leave_nothing();
    ExitCode::from(code)
}
