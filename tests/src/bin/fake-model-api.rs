//! The fake model API as a program; see the library's `fake_model`.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use tests::fake_model::{FakeModel, Options};

/// A deterministic model API for driving real coding-agent CLIs offline. The prompt carries the script.
#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// 0 takes a free port.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Also listen on this unix socket.
    #[arg(long)]
    unix: Option<PathBuf>,
    /// Write the TCP port here once listening.
    #[arg(long)]
    port_file: Option<PathBuf>,
    /// JSON lines, one for each request.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Keep request bodies in this directory.
    #[arg(long)]
    bodies: Option<PathBuf>,
    /// Answer 401 to API calls without this key.
    #[arg(long)]
    require_key: Option<String>,
    /// End by itself after this time.
    #[arg(long, default_value_t = 3600)]
    max_seconds: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let model = FakeModel::start_with(Options {
        host: Some(arguments.host.clone()),
        port: arguments.port,
        unix: arguments.unix,
        log: arguments.log,
        bodies: arguments.bodies,
        require_key: arguments.require_key,
    })
    .context("could not start")?;
    if let Some(path) = arguments.port_file {
        let new = path.with_extension("tmp");
        std::fs::write(&new, model.port().to_string())
            .and_then(|()| std::fs::rename(&new, &path))
            .with_context(|| format!("could not write `{}`", path.display()))?;
    }
    writeln!(std::io::stdout(), "listening on {}:{}", arguments.host, model.port())?;
    std::thread::sleep(Duration::from_secs(arguments.max_seconds));
    Ok(())
}
