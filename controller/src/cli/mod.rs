//! The command line. One file a command; `policy` and `contract` are routed before this module is reached.

pub mod administer; // the way to a controller for those who run it
pub mod adopt; // what a killed client left
pub mod attach;
pub mod attempts;
pub mod cancel;
pub mod completions;
pub mod connect; // the way to a controller
pub mod contract;
pub mod credential; // for an attempt whose client left a record
pub mod gc;
pub mod helper;
pub mod init;
pub mod later; // what the background tried in vain
pub mod life; // of a credential
pub mod policy;
pub mod doctor;
pub mod follow; // events, wherever they are
pub mod logs;
pub mod output; // the only place that prints
pub mod place; // where to look
pub mod queue;
pub mod reach; // a cancel to whoever drives an attempt
pub mod record; // what a client must not forget
pub mod result;
pub mod run;
pub mod serve;
pub mod status;
pub mod table;
pub mod tidy; // retention where nobody serves
pub mod token;
pub mod unsent; // words for a controller that were not heard
pub mod worker;
pub mod workers;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use agent::config::Environment;
use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use time::OffsetDateTime;
use tracing_subscriber::EnvFilter;

use self::connect::ConnectError;
use self::run::options::UsageError;
use crate::identity::AuthorityError;
use crate::serve::ListenError;

/// Exit code of a caller's mistake.
pub const USAGE: u8 = 64;
/// Exit code of a command that failed.
const FAILED: u8 = 70;

/// Runs coding-agent CLIs, each attempt in a container of its own.
#[derive(Debug, Parser)]
#[command(name = "laneyard", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    place: place::Place,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run one lane; see `laneyard run --help`.
    #[command(disable_help_flag = true)]
    Run(Words),
    /// Say what can be said about lanes from their progress and receipt files.
    #[command(disable_help_flag = true)]
    Status(Words),
    Logs(logs::Logs),
    Attach(attach::Attach),
    Cancel(cancel::Cancel),
    Attempts(attempts::Attempts),
    Queue(queue::Queue),
    Workers(workers::Workers),
    Gc(gc::Gc),
    Result(result::Results),
    Doctor(doctor::Doctor),
    Serve(serve::Serve),
    Init(init::Init),
    Token(token::Token),
    Worker(worker::Worker),
    /// Decide over model sheets; see `laneyard policy --help`.
    #[command(disable_help_flag = true)]
    Policy(Words),
    /// Prepare and interpret worker contracts; see `laneyard contract --help`.
    #[command(disable_help_flag = true)]
    Contract(Words),
    Completions(completions::Completions),
    #[command(name = adopt::COMMAND, hide = true)]
    Adopt,
    #[command(name = tidy::COMMAND, hide = true)]
    Tidy,
}

/// Words that another parser reads.
#[derive(Debug, clap::Args)]
struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

/// Everything but the policy and contract helpers. `name` is the program's file name, `words` what follows it.
pub fn lane_main(name: &str, mut words: Vec<OsString>) -> ExitCode {
    let entered = OffsetDateTime::now_utc();
    if words.first().is_some_and(|word| word == agent::egress::ENTRY) {
        return agent::egress::main(words.into_iter().skip(1));
    }
    let compatible = name == "pstack-runner";
    log(compatible, words.first().is_some_and(|word| word == "serve"));
    let environment = environment();
    let first = words.first().and_then(|word| word.to_str());
    match (compatible, first) {
        (true, Some("status")) => status::main(&words[1..], name, &[]),
        (false, Some("status"))
            if matches!(words[1..].first().and_then(|word| word.to_str()), Some("--help" | "-h")) =>
        {
            status::help("laneyard")
        }
        (false, Some("status")) => {
            let mut waiting = Vec::new();
            if let Ok(config) = agent::config::Config::load(&environment) {
                adopt::in_background(&config);
                waiting = later::waiting(&record::Records::of(&config.state_dir));
            }
            status::main(&words[1..], "laneyard", &waiting)
        }
        (true, _) => run::main(words, true, &environment, entered),
        (false, Some("help")) => help(words.get(1), &environment, entered),
        (false, Some("run")) => run::main(words.split_off(1), false, &environment, entered),
        (false, _) => command(words, &environment),
    }
}

/// `laneyard help [COMMAND]`.
fn help(command_name: Option<&OsString>, environment: &Environment, entered: OffsetDateTime) -> ExitCode {
    let flag = OsString::from("--help");
    match command_name.map(|name| (name.to_str(), name)) {
        None => command(vec![flag], environment),
        Some((Some("run"), _)) => run::main(vec![flag], false, environment, entered),
        Some((Some("status"), _)) => status::help("laneyard"),
        Some((Some("policy"), _)) => policy::command(&[flag]),
        Some((Some("contract"), _)) => contract::command(&[flag]),
        Some((_, name)) => command(vec![name.clone(), flag], environment),
    }
}

/// Commands that talk to no controller or engine, and the flags of [`place::Place`] that would mean nothing to them.
const WITHOUT_EFFECT: &[(&str, &[&str])] = &[
    ("serve", &["controller", "ca", "client_cert", "client_key", "engine"]),
    ("init", &["controller", "ca", "token_file", "client_cert", "client_key", "engine"]),
    ("completions", &["controller", "ca", "token_file", "client_cert", "client_key", "engine", "state_dir"]),
];

/// The command line. Flags without effect are in no help, and understood only so that their refusal can say so.
fn words_known() -> clap::Command {
    let whole = Cli::command();
    let shared: Vec<clap::Arg> = whole.get_arguments().filter(|flag| flag.is_global_set()).cloned().collect();
    WITHOUT_EFFECT.iter().fold(whole, |whole, (name, flags)| {
        let hidden = shared.iter().filter(|flag| flags.contains(&flag.get_id().as_str()));
        let hidden: Vec<clap::Arg> = hidden.map(|flag| flag.clone().global(false).hide(true)).collect();
        // Of a controller it is the file that it makes, of everybody else one that exists.
        let made = shared.iter().find(|flag| *name == "serve" && flag.get_id() == "token_file");
        let made = made
            .map(|flag| flag.clone().global(false).help("File for the one token of a controller without an identity"));
        whole.mut_subcommand(name, |command| command.args(hidden).args(made))
    })
}

fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut known = words_known();
    let found = known.try_get_matches_from_mut(std::iter::once(OsString::from("laneyard")).chain(words))?;
    if let Some((name, own)) = found.subcommand()
        && let Some((_, flags)) = WITHOUT_EFFECT.iter().find(|(command, _)| *command == name)
        && let Some(flag) = flags
            .iter()
            .find(|flag| [&found, own].iter().any(|words| words.value_source(flag) == Some(ValueSource::CommandLine)))
    {
        let message = format!("--{} has no effect on `laneyard {name}`: leave it out", flag.replace('_', "-"));
        let of = known.find_subcommand_mut(name).cloned();
        return Err(of.unwrap_or(known).error(clap::error::ErrorKind::ArgumentConflict, message));
    }
    Cli::from_arg_matches(&found).map_err(|error| error.format(&mut known))
}

fn command(words: Vec<OsString>, environment: &Environment) -> ExitCode {
    let cli = match parse(words) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print(); // a closed pipe is the reader's choice
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match dispatch(cli, environment) {
        Ok(code) => code,
        Err(error) => {
            output::failure(error.as_ref());
            ExitCode::from(if is_of_the_caller(&error) { USAGE } else { FAILED })
        }
    }
}

/// True for what the caller wrote, which no second try mends.
fn is_of_the_caller(error: &anyhow::Error) -> bool {
    error.is::<UsageError>()
        || matches!(error.downcast_ref(), Some(ListenError::Address { .. } | ListenError::Plaintext { .. }))
        || matches!(error.downcast_ref(), Some(ConnectError::NoController))
        || matches!(error.downcast_ref(), Some(AuthorityError::Name { .. }))
}

fn dispatch(cli: Cli, environment: &Environment) -> anyhow::Result<ExitCode> {
    if let Command::Completions(completions) = &cli.command {
        return Ok(completions.run());
    }
    let mut place = cli.place;
    let token_file = if matches!(cli.command, Command::Serve(_)) { place.token_file.take() } else { None };
    let proof = place.proof();
    let found = match &cli.command {
        Command::Attach(attach::Attach { attempt, .. }) | Command::Cancel(cancel::Cancel { attempt, .. }) => {
            place.config_for(environment, *attempt)
        }
        _ => place.config(environment),
    };
    let config = match found {
        Ok(config) => config,
        Err(error) => {
            output::failure(&error);
            return Ok(ExitCode::from(USAGE));
        }
    };
    runtime()?.block_on(async {
        let alone = matches!(
            cli.command,
            Command::Adopt
                | Command::Tidy
                | Command::Attach(_)
                | Command::Cancel(_)
                | Command::Gc(_)
                | Command::Serve(_)
                | Command::Init(_)
                | Command::Token(_)
                | Command::Worker(_)
        );
        if !alone {
            adopt::in_background(&config);
        }
        let tidies = !alone || matches!(cli.command, Command::Attach(_));
        let ended = match cli.command {
            Command::Logs(logs) => logs.run(&config).await,
            Command::Attach(mut attach) => {
                attach.proof = proof;
                attach.run(&config).await
            }
            Command::Cancel(cancel) => cancel.run(&config, &proof).await,
            Command::Attempts(attempts) => attempts.run(&config).await,
            Command::Queue(queue) => queue.run(&config).await,
            Command::Gc(gc) => gc.run(&config).await,
            Command::Workers(workers) => workers.run(&config).await,
            Command::Result(results) => results.run(&config).await,
            Command::Doctor(doctor) => doctor.run(&config).await,
            Command::Serve(serve) => serve.run(&config, token_file).await,
            Command::Init(init) => init.run(&config).await,
            Command::Token(token) => token.run(&config).await,
            Command::Worker(worker) => worker.run(&config).await,
            Command::Adopt => Ok(adopt::main(&config).await),
            Command::Tidy => Ok(tidy::main(&config).await),
            // Their own words come first, so that no flag may stand before them.
            Command::Run(_) | Command::Status(_) | Command::Policy(_) | Command::Contract(_) => {
                output::line("error: `run`, `status`, `policy` and `contract` take their flags after the command");
                Ok(ExitCode::from(USAGE))
            }
            Command::Completions(completions) => Ok(completions.run()),
        };
        if tidies {
            tidy::in_background(&config);
        }
        ended
    })
}

/// The runtime of one command.
pub(crate) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// The runtime of one lane. Its steps follow each other: handing them from thread to thread costs more than it gives.
pub(crate) fn lane_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn environment() -> Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Log lines on stderr, if `LANEYARD_LOG` asks for them; never as `pstack-runner`, whose stderr is a receipt. A server warns
/// unasked: a refused credential must be found in its log.
fn log(compatible: bool, serves: bool) {
    if compatible {
        return;
    }
    let filter = match EnvFilter::try_from_env("LANEYARD_LOG") {
        Ok(filter) => filter,
        Err(_) if serves => EnvFilter::new("warn"),
        Err(_) => return,
    };
    // A second subscriber is a test's; its own stays.
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let _ = lines.with_ansi(io::stderr().is_terminal()).try_init();
}
