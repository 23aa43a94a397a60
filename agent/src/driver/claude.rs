//! Claude Code in print mode (runner 3.2): one prompt on stdin, stream-json on stdout.

mod blocks; // content blocks as events
mod model; // which model was used
mod records; // one line of stream-json
mod settings; // the writer's session settings
mod transcript; // reads stream-json
mod variables; // what enters the container, which hosts are needed

use super::{
    Driver, Environment, InnerState, Lane, PreflightVerdict, Stdin, Step, StepResult, Transcript, billing, evidence,
    preflight,
};
use crate::descriptor::{ApiSpend, Mode, Provider};
use crate::ownership;
use crate::receipt::Status;

/// First version that was validated with the writer's sandbox settings.
const WRITER_MINIMUM: (u32, u32, u32) = (2, 1, 285);

pub(super) struct Claude;

impl Driver for Claude {
    fn provider(&self) -> Provider {
        Provider::Claude
    }

    fn executable(&self) -> &'static str {
        "claude"
    }

    fn passes(&self, name: &str) -> bool {
        variables::passes(name)
    }

    fn environment(&self, lane: &Lane) -> Environment {
        variables::environment(lane)
    }

    fn login_files(&self) -> &'static [&'static str] {
        &[".claude/.credentials.json"]
    }

    fn hosts(&self, lane: &Lane) -> Vec<String> {
        variables::hosts(lane)
    }

    fn billing_guard(&self, lane: &Lane) -> Option<String> {
        billing::guard(Provider::Claude, lane.api_spend, &lane.environment)
    }

    /// Writers only: Claude sandboxes its Bash with bubblewrap, which must be able to make namespaces.
    fn sandbox_probe(&self, lane: &Lane, _executable: &str) -> Option<Step> {
        lane.mode.writes().then(|| Step {
            argv: settings::PROBE.iter().map(|&word| word.to_owned()).collect(),
            environment: self.environment(lane),
            cwd: lane.cwd.clone(),
            stdin: Stdin::Null,
            files: Vec::new(),
        })
    }

    /// Writers ask for the version. Never `claude auth status`: it may spend a refresh token and lose its successor.
    fn preflight(&self, lane: &Lane, executable: &str) -> Option<Step> {
        lane.mode.writes().then(|| Step {
            argv: vec![executable.to_owned(), "--version".to_owned()],
            environment: self.environment(lane),
            cwd: lane.cwd.clone(),
            stdin: Stdin::Null,
            files: Vec::new(),
        })
    }

    fn preflight_not_run(&self) -> &'static str {
        "authentication deferred to invocation; billing route unverified"
    }

    fn judge_preflight(&self, _lane: &Lane, result: &StepResult) -> PreflightVerdict {
        let (major, minor, patch) = WRITER_MINIMUM;
        let stdout = String::from_utf8_lossy(&result.stdout);
        let banner = stdout.trim();
        let number = banner.strip_suffix(" (Claude Code)").unwrap_or(banner);
        match preflight::stable_version(number) {
            Some(version) if version >= WRITER_MINIMUM && result.exit == super::ChildExit::Code(0) => {
                PreflightVerdict::Passed {
                    evidence: format!(
                        "claude {number} meets the writer minimum {major}.{minor}.{patch}; {}",
                        self.preflight_not_run()
                    ),
                }
            }
            _ => PreflightVerdict::Failed {
                status: Status::UnavailableCli,
                message: format!(
                    "claude writers need a stable Claude Code version of at least {major}.{minor}.{patch}; \
                     `claude --version` did not report one"
                ),
                evidence: evidence::of_captures(&result.stdout, &result.stderr),
            },
        }
    }

    fn workload(&self, lane: &Lane, executable: &str, inner: InnerState) -> Step {
        Step {
            argv: argv(lane, executable, inner),
            environment: self.environment(lane),
            cwd: lane.cwd.clone(),
            stdin: Stdin::Bytes(ownership::prompt(lane.mode, None, &lane.prompt)),
            files: Vec::new(),
        }
    }

    fn transcript(&self, lane: &Lane) -> Box<dyn Transcript> {
        Box::new(transcript::ClaudeTranscript::new(&lane.model))
    }
}

fn argv(lane: &Lane, executable: &str, inner: InnerState) -> Vec<String> {
    let writes = lane.mode.writes();
    let (permission, tools, disallowed) = if writes {
        ("acceptEdits", "Read,Write,Edit,Grep,Glob,Bash", "Agent,Task,WebSearch,WebFetch")
    } else {
        ("plan", "Read,Grep,Glob,Bash", "Agent,Task,WebSearch,WebFetch,Edit,Write,NotebookEdit")
    };
    // Settings of the project could bring credentials under `deny` and widen what a writer's commands may do.
    let sources = if lane.mode == Mode::ReadOnly && lane.api_spend != Some(ApiSpend::Deny) { "project" } else { "" };
    let mut argv: Vec<String> = [
        executable,
        "-p",
        "--model",
        &lane.model,
        "--effort",
        lane.effort.as_str(),
        "--permission-mode",
        permission,
        "--setting-sources",
        sources,
        "--strict-mcp-config",
        "--tools",
        tools,
        "--no-session-persistence",
        "--disable-slash-commands",
        "--disallowed-tools",
        disallowed,
    ]
    .map(str::to_owned)
    .into();
    if writes {
        argv.extend(["--settings".to_owned(), settings::of_writer(inner)]);
    }
    argv.extend(["--output-format", "stream-json", "--verbose"].map(str::to_owned));
    argv
}
