//! Codex in exec mode (runner 3.3): one prompt on stdin, JSON lines on stdout.

mod config; // the private configuration of the container
mod items; // items as events
mod transcript; // reads exec's JSON lines

mod turns; // which text is final

use super::{
    ChildExit, Driver, Environment, InnerState, Lane, PreflightVerdict, Stdin, Step, StepResult, Transcript, billing,
    preflight,
};
use crate::descriptor::{ApiSpend, Mode, Provider};
use crate::ownership;

pub(super) struct Codex;

impl Driver for Codex {
    fn provider(&self) -> Provider {
        Provider::Codex
    }

    fn executable(&self) -> &'static str {
        "codex"
    }

    fn passes(&self, name: &str) -> bool {
        config::passes(name)
    }

    fn environment(&self, lane: &Lane) -> Environment {
        config::environment(lane)
    }

    fn login_files(&self) -> &'static [&'static str] {
        &[".codex/auth.json"]
    }

    fn hosts(&self, lane: &Lane) -> Vec<String> {
        config::hosts(lane)
    }

    fn billing_guard(&self, lane: &Lane) -> Option<String> {
        billing::guard(Provider::Codex, lane.api_spend, &lane.environment)
    }

    fn sandbox_probe(&self, lane: &Lane, executable: &str) -> Option<Step> {
        Some(step(lane, [executable, "sandbox", "--", "true"].map(str::to_owned).into(), Stdin::Null))
    }

    fn preflight(&self, lane: &Lane, executable: &str) -> Option<Step> {
        Some(step(lane, [executable, "login", "status"].map(str::to_owned).into(), Stdin::Null))
    }

    fn judge_preflight(&self, lane: &Lane, result: &StepResult) -> PreflightVerdict {
        let text = preflight::text_of(result).to_lowercase();
        // Newer versions say `API key configured` where older ones said `Logged in using an API key`.
        let logged_in = text.contains("logged in") || text.contains("api key configured");
        if result.exit != ChildExit::Code(0) || !logged_in {
            return preflight::failed(Provider::Codex, &lane.model, result);
        }
        let evidence = "authenticated".to_owned();
        if lane.api_spend != Some(ApiSpend::Deny) {
            return PreflightVerdict::Passed { evidence };
        }
        let reason = if ["api key", "api-key", "apikey"].iter().any(|key| text.contains(key)) {
            "it is an API key"
        } else if matches!(text.as_str(), "logged in using chatgpt" | "logged in using chatgpt.") {
            return PreflightVerdict::Passed { evidence };
        } else {
            "it is not proven to be a ChatGPT login"
        };
        PreflightVerdict::BillingBlocked {
            evidence,
            message: format!(
                "the subscription-only policy (api spend deny) refused the observed codex authentication: {reason}"
            ),
        }
    }

    fn workload(&self, lane: &Lane, executable: &str, inner: InnerState) -> Step {
        step(lane, argv(lane, executable, inner), Stdin::Bytes(ownership::prompt(lane.mode, None, &lane.prompt)))
    }

    fn transcript(&self, _lane: &Lane) -> Box<dyn Transcript> {
        Box::new(transcript::CodexTranscript::new())
    }
}

fn step(lane: &Lane, argv: Vec<String>, stdin: Stdin) -> Step {
    Step { argv, environment: config::environment(lane), cwd: lane.cwd.clone(), stdin, files: config::files(lane) }
}

fn argv(lane: &Lane, executable: &str, inner: InnerState) -> Vec<String> {
    let sandbox = match (inner, lane.mode) {
        (InnerState::ContainerOnly, _) => "danger-full-access",
        (InnerState::Enforced, Mode::ReadOnly) => "read-only",
        (InnerState::Enforced, Mode::IsolatedWrite) => "workspace-write",
    };
    let effort = format!("model_reasoning_effort=\"{}\"", lane.effort);
    [
        executable,
        "exec",
        "--model",
        &lane.model,
        "--config",
        &effort,
        "--sandbox",
        sandbox,
        "--cd",
        &lane.cwd,
        "--skip-git-repo-check",
        "--ephemeral",
        "--disable",
        "plugins",
        "--disable",
        "multi_agent",
        "--disable",
        "hooks",
        "--disable",
        "memories",
        "--json",
        "-",
    ]
    .map(str::to_owned)
    .into()
}
