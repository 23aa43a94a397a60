//! Variables of a child: identities that never reach it, and what every driver shares.

use super::Environment;
use crate::descriptor::Provider;

/// Retries of one model request, for every driver that can bound them; overrides the driver's own default.
/// Tests set it to `0`.
pub const MAX_RETRIES: &str = "LANEYARD_MAX_RETRIES";

const CODEX_IDENTITY: &[&str] = &[
    "CODEX_THREAD_ID",
    "CODEX_SESSION_ID",
    "CODEX_CI",
    "CODEX_SHELL",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
];
const CLAUDE_IDENTITY: &[&str] =
    &["CLAUDECODE", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS"];

/// True for a name that says which session the parent is; such a name must not reach this provider (runner 3.1).
/// Only codex keeps its own set.
#[must_use]
pub fn is_foreign_identity(provider: Provider, name: &str) -> bool {
    match provider {
        Provider::Codex => CLAUDE_IDENTITY.contains(&name),
        Provider::Devin if name == "DEVIN_REFUSAL_FALLBACK" => true,
        Provider::OpenCode if name.starts_with("OPENCODE_") => true,
        _ => CLAUDE_IDENTITY.contains(&name) || CODEX_IDENTITY.contains(&name),
    }
}

pub(super) fn is_codex_identity(name: &str) -> bool {
    CODEX_IDENTITY.contains(&name)
}

/// A variable's value, unless it is absent or blank.
pub(super) fn value<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
}

/// `host:port` of an absolute http or https URL; `None` when it has no host.
pub(super) fn host_of(url: &str) -> Option<String> {
    let uri: http::Uri = url.trim().parse().ok()?;
    let port = match (uri.port_u16(), uri.scheme_str()) {
        (Some(port), _) => port,
        (None, Some("https")) => 443,
        (None, Some("http")) => 80,
        _ => return None,
    };
    Some(format!("{}:{port}", uri.host()?.to_ascii_lowercase()))
}

/// The retry count that the environment asks for.
pub(super) fn max_retries(environment: &Environment) -> Option<u32> {
    value(environment, MAX_RETRIES)?.trim().parse().ok()
}
