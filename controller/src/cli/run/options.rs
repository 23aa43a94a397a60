//! What a lane was asked for: the flags, read and checked one by one in the documented order (runner 1.2).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent::config::{Proof, WorktreeWay, check_ref};
use agent::container::discover::EngineChoice;
use agent::container::image::Reference;
use agent::descriptor::{ApiSpend, Contract, Effort, InnerSandbox, Mode, Parent, Provider, VocabularyError};
use agent::egress::HostPort;
use agent::ids::InstanceId;
use agent::snapshot::{History, LfsPolicy};
use agent::transport::Endpoint;
use bytesize::ByteSize;
use clap::ValueEnum as _;

use super::drive::OnLost;
use super::flags::{Flag, FlagError, Given, parse};

/// Flags of both names.
const RUNNER: &[Flag] = &[
    Flag { short: Some('h'), ..Flag::switch("help") },
    Flag::value("mode"),
    Flag::value("timeout"),
    Flag::value("api-spend"),
    Flag::value("contract"),
    Flag::value("parent"),
    Flag::value("provider"),
    Flag::value("model"),
    Flag::value("effort"),
    Flag::value("prompt"),
    Flag::value("cwd"),
    Flag::value("output"),
    Flag::value("receipt"),
    Flag::value("execution-id"),
    Flag::value("progress"),
    Flag::switch("opencode-chatgpt-subscription"),
];
/// Flags of `laneyard run` alone.
const OWN: &[Flag] = &[
    Flag::value("engine"),
    Flag::value("image"),
    Flag::value("instance"),
    Flag::value("inner-sandbox"),
    Flag::value("memory"),
    Flag::value("pids"),
    Flag::value("cpus"),
    Flag::value("output-limit"),
    Flag::value("scratch"),
    Flag::value("allow-host"),
    Flag::value("require"),
    Flag::value("on-lost"),
    Flag::value("worktree"),
    Flag::value("history"),
    Flag::value("ref"),
    Flag::value("lfs"),
    Flag::value("controller"),
    Flag::value("ca"),
    Flag::value("token-file"),
    Flag::value("client-cert"),
    Flag::value("client-key"),
    Flag::value("state-dir"),
    Flag::switch("verbose"),
    Flag::switch("quiet"),
    Flag::switch("json"),
];

/// Those of them that mean something only where a controller places the lane on a worker.
const FLEET: &[&str] = &["require", "on-lost", "worktree", "history", "ref", "lfs"];
/// Those of them that say what travels: nothing does to a worker that sees the directory itself.
const TRAVEL: &[&str] = &["history", "ref", "lfs"];

/// A refusal before anything exists: exit 64.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl From<FlagError> for UsageError {
    fn from(error: FlagError) -> Self {
        Self(error.to_string())
    }
}

impl From<VocabularyError> for UsageError {
    fn from(error: VocabularyError) -> Self {
        Self(error.to_string())
    }
}

/// A refusal with this text.
pub fn refuse<T>(text: impl Into<String>) -> Result<T, UsageError> {
    Err(UsageError(text.into()))
}

/// A lane as requested. Paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub mode: Mode,
    /// Milliseconds from wrapper entry.
    pub timeout_ms: Option<f64>,
    pub api_spend: Option<ApiSpend>,
    pub contract: Contract,
    pub parent: Parent,
    pub provider: Provider,
    pub model: String,
    pub effort: Effort,
    pub prompt: String,
    pub cwd: String,
    pub output: String,
    pub receipt: String,
    pub execution_id: String,
    pub progress: Option<String>,
    /// The ChatGPT subscription of OpenCode, for this attempt only.
    pub subscription: bool,
    pub own: Own,
}

/// What only `laneyard run` takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Own {
    pub engine: Option<EngineChoice>,
    pub image: Option<Reference>,
    pub instance: Option<InstanceId>,
    pub inner_sandbox: Option<InnerSandbox>,
    pub memory: Option<u64>,
    pub pids: Option<u32>,
    pub cpus: Option<f64>,
    pub output_limit: Option<u64>,
    pub scratch: Option<u64>,
    pub allow_hosts: Vec<String>,
    /// Labels that the worker must carry.
    pub require: BTreeMap<String, String>,
    pub on_lost: OnLost,
    pub worktree: Option<WorktreeWay>,
    pub history: Option<History>,
    pub refs: Vec<String>,
    pub lfs: Option<LfsPolicy>,
    pub controller: Option<String>,
    /// The first given flag that means nothing without a controller.
    pub fleet: Option<&'static str>,
    /// The first given flag that means nothing where no directory travels.
    pub travel: Option<&'static str>,
    pub proof: Proof,
    pub state_dir: Option<PathBuf>,
    pub verbose: bool,
    pub quiet: bool,
}

/// Reads the words of a lane; `None` asks for help. `here` is the process's working directory.
///
/// # Errors
/// The first mistake, in the documented order.
pub fn read(words: &[String], compatible: bool, here: &Path) -> Result<Option<Options>, UsageError> {
    let known: Vec<Flag> = if compatible { RUNNER.to_vec() } else { RUNNER.iter().chain(OWN).copied().collect() };
    let given = parse(words, &known)?;
    if given.has("help") {
        return Ok(None);
    }
    let mode = required(&given, "mode")?.parse()?;
    let timeout_ms = given.last("timeout").map(milliseconds).transpose()?;
    let api_spend = given.last("api-spend").map(str::parse).transpose()?;
    let contract = given.last("contract").map_or(Ok(Contract::Legacy), str::parse)?;
    let parent = required(&given, "parent")?.parse()?;
    let provider = required(&given, "provider")?.parse()?;
    let model = required(&given, "model")?.to_owned();
    let effort = required(&given, "effort")?.parse()?;
    let path = |name| required(&given, name).map(|text| absolute(here, text));
    let (prompt, cwd, output, receipt) = (path("prompt")?, path("cwd")?, path("output")?, path("receipt")?);
    let execution_id = given.last("execution-id").map_or_else(|| receipt.clone(), str::to_owned);
    let progress = if given.has("progress") { Some(path("progress")?) } else { None };
    Ok(Some(Options {
        mode,
        timeout_ms,
        api_spend,
        contract,
        parent,
        provider,
        model,
        effort,
        prompt,
        cwd,
        output,
        receipt,
        execution_id,
        progress,
        subscription: given.has("opencode-chatgpt-subscription"),
        own: own(&given, here)?,
    }))
}

fn required<'a>(given: &'a Given, name: &str) -> Result<&'a str, UsageError> {
    match given.last(name).filter(|value| !value.trim().is_empty()) {
        Some(value) => Ok(value),
        None => refuse(format!("{name} is required")),
    }
}

fn milliseconds(text: &str) -> Result<f64, UsageError> {
    let ms = text.trim().parse::<f64>().map(|seconds| seconds * 1_000.0);
    match ms {
        Ok(ms) if ms.is_finite() && ms > 0.0 => Ok(ms),
        _ => refuse("timeout must be a finite number of seconds greater than zero"),
    }
}

fn own(given: &Given, here: &Path) -> Result<Own, UsageError> {
    let file = |name| given.last(name).map(|text| PathBuf::from(absolute(here, text)));
    let allow_hosts: Vec<String> = given.all("allow-host").map(str::to_owned).collect();
    for host in &allow_hosts {
        host.parse::<HostPort>().map_err(|error| UsageError(format!("allow-host: {error}")))?;
    }
    let refs: Vec<String> = given.all("ref").map(str::to_owned).collect();
    refs.iter().try_for_each(|name| check_ref(name)).map_err(|error| UsageError(format!("ref: {error}")))?;
    if let Some(url) = given.last("controller") {
        url.parse::<Endpoint>().map_err(|error| UsageError(format!("controller: {error}")))?;
    }
    Ok(Own {
        engine: parsed(given, "engine")?,
        image: parsed(given, "image")?,
        instance: parsed(given, "instance")?,
        inner_sandbox: given.last("inner-sandbox").map(str::parse).transpose()?,
        memory: size(given, "memory")?,
        pids: number(given, "pids")?,
        cpus: number(given, "cpus")?,
        output_limit: size(given, "output-limit")?,
        scratch: size(given, "scratch")?,
        allow_hosts,
        require: given.all("require").map(label).collect::<Result<_, _>>()?,
        on_lost: given.last("on-lost").map_or(Ok(OnLost::Wait), on_lost)?,
        worktree: word(given, "worktree")?,
        history: word(given, "history")?,
        refs,
        lfs: word(given, "lfs")?,
        fleet: FLEET.iter().copied().find(|name| given.has(name)),
        travel: TRAVEL.iter().copied().find(|name| given.has(name)),
        controller: given.last("controller").map(|url| url.trim_end_matches('/').to_owned()),
        proof: Proof {
            ca: file("ca"),
            token_file: file("token-file"),
            client_cert: file("client-cert"),
            client_key: file("client-key"),
        },
        state_dir: file("state-dir"),
        verbose: given.has("verbose"),
        quiet: given.has("quiet"),
    })
}

/// A value of a type of its own; the message names the flag.
fn parsed<T>(given: &Given, name: &str) -> Result<Option<T>, UsageError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let read = |text: &str| text.parse().map_err(|error| UsageError(format!("{name}: {error}")));
    given.last(name).map(read).transpose()
}

fn label(text: &str) -> Result<(String, String), UsageError> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => refuse(format!("require must be a label such as zone=eu, not `{text}`")),
    }
}

fn on_lost(text: &str) -> Result<OnLost, UsageError> {
    OnLost::from_str(text, false).map_err(|_| UsageError("on-lost must be one of: wait, fail".to_owned()))
}

fn word<T: std::str::FromStr<Err = String>>(given: &Given, name: &str) -> Result<Option<T>, UsageError> {
    given.last(name).map(|text| text.parse().map_err(UsageError)).transpose()
}

fn size(given: &Given, name: &str) -> Result<Option<u64>, UsageError> {
    let read = |text: &str| match text.parse::<ByteSize>() {
        Ok(size) => Ok(size.as_u64()),
        Err(_) => refuse(format!("{name} must be a size such as 512MiB or 4GiB, not `{text}`")),
    };
    given.last(name).map(read).transpose()
}

fn number<T: std::str::FromStr>(given: &Given, name: &str) -> Result<Option<T>, UsageError> {
    let read = |text: &str| match text.trim().parse() {
        Ok(number) => Ok(number),
        Err(_) => refuse(format!("{name} must be a number, not `{text}`")),
    };
    given.last(name).map(read).transpose()
}

/// The path made absolute against `here` and cleaned of `.`, `..` and doubled slashes, without looking at any link.
#[must_use]
pub fn absolute(here: &Path, text: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let base = here.to_string_lossy();
    let start = if text.starts_with('/') { "" } else { base.as_ref() };
    for part in start.split('/').chain(text.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "--mode read-only --parent codex --provider claude --model opus --effort high --prompt p --cwd . \
                        --output o --receipt r";

    fn read_line(line: &str, compatible: bool) -> Result<Option<Options>, UsageError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        read(&words, compatible, Path::new("/srv/repo"))
    }

    fn options(line: &str) -> Options {
        read_line(line, true).unwrap().unwrap()
    }

    #[track_caller]
    fn refused(line: &str, expected: &str) {
        assert_eq!(read_line(line, true).unwrap_err().to_string(), expected, "{line}");
    }

    #[test]
    fn a_full_line_gives_absolute_paths_and_defaults() {
        let lane = options(FULL);
        assert_eq!((lane.prompt.as_str(), lane.cwd.as_str()), ("/srv/repo/p", "/srv/repo"));
        assert_eq!((lane.execution_id.as_str(), lane.contract), ("/srv/repo/r", Contract::Legacy));
        assert_eq!((lane.timeout_ms, lane.api_spend, lane.progress), (None, None, None));
        assert_eq!(options(&format!("{FULL} --timeout 5400")).timeout_ms, Some(5_400_000.0));
        assert_eq!(options(&format!("{FULL} --timeout 1.5e-1")).timeout_ms, Some(150.0));
        assert_eq!(options(&format!("{FULL} --execution-id any/thing")).execution_id, "any/thing");
    }

    #[test]
    fn help_wins_over_missing_flags_but_not_over_unknown_ones() {
        assert_eq!(read_line("--help", true), Ok(None));
        assert_eq!(read_line("--mode nonsense -h", true), Ok(None));
        refused("--help --nope", "Unknown option '--nope'");
    }

    #[test]
    fn flags_are_checked_in_the_documented_order() {
        let steps = [
            ("", "mode is required"),
            ("--mode rw --timeout 0", "mode must be one of: read-only, isolated-write"),
            (
                "--mode read-only --timeout 0 --api-spend x",
                "timeout must be a finite number of seconds greater than zero",
            ),
            (
                "--mode read-only --timeout -1",
                "Option '--timeout' argument is ambiguous.\nDid you forget to specify the option argument for '--timeout'?\nTo specify an option argument starting with a dash use '--timeout=-XYZ'.",
            ),
            ("--mode read-only --timeout=inf", "timeout must be a finite number of seconds greater than zero"),
            ("--mode read-only --api-spend x --contract y", "api-spend must be one of: deny, approved"),
            ("--mode read-only --contract y --parent z", "contract must be one of: legacy, strict"),
            ("--mode read-only --provider z", "parent is required"),
            ("--mode read-only --parent grok", "parent must be one of: claude, codex"),
            (
                "--mode read-only --parent claude --provider toString",
                "provider must be one of: claude, codex, grok, devin, cursor, antigravity, opencode",
            ),
            ("--mode read-only --parent claude --provider codex --effort z --model=", "model is required"),
            (
                "--mode read-only --parent claude --provider codex --model m --effort z",
                "effort must be one of: low, medium, high, xhigh, max, default",
            ),
            ("--mode read-only --parent claude --provider codex --model m --effort max", "prompt is required"),
            ("--mode read-only --parent claude --provider codex --model m --effort max --prompt p", "cwd is required"),
        ];
        for (line, expected) in steps {
            refused(line, expected);
        }
    }

    #[test]
    fn our_own_flags_exist_under_our_own_name_only() {
        let line = format!("{FULL} --memory 512MiB --pids 64 --allow-host gateway:8080 --inner-sandbox off");
        refused(&line, "Unknown option '--memory'");
        let own = read_line(&line, false).unwrap().unwrap().own;
        assert_eq!((own.memory, own.pids, own.inner_sandbox), (Some(512 << 20), Some(64), Some(InnerSandbox::Off)));
        assert_eq!(own.allow_hosts, ["gateway:8080"]);
        for (flags, part) in [
            ("--memory lots", "memory must be a size"),
            ("--pids many", "pids must be a number"),
            ("--allow-host https://x/", "allow-host: "),
            ("--controller localhost", "controller: "),
            ("--image=", "image: `` is no image reference"),
            ("--image UPPER", "image: `UPPER` is no image reference"),
            ("--engine podmann", "engine: `podmann` names no engine"),
            ("--engine tcp://10.0.0.1:2375", "engine: `tcp://10.0.0.1:2375` names no engine: tcp:// is not supported"),
            ("--instance a/b", "instance: `a/b` is not an id"),
            ("--require zone", "require must be a label such as zone=eu, not `zone`"),
            ("--on-lost maybe", "on-lost must be one of: wait, fail"),
        ] {
            let message = read_line(&format!("{FULL} {flags}"), false).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn paths_become_absolute_without_looking_at_links() {
        for (text, expected) in [
            ("a/../b", "/srv/repo/b"),
            ("../x/", "/srv/x"),
            ("/a//b/./c", "/a/b/c"),
            ("/../..", "/"),
            (".", "/srv/repo"),
        ] {
            assert_eq!(absolute(Path::new("/srv/repo"), text), expected);
        }
    }
}
