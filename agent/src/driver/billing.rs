//! The spend policy's guard over known variables (runner section 6). It reports names, never values.

use super::Environment;
use crate::descriptor::{ApiSpend, Provider};

/// What selects a metered route by its mere presence.
struct Guard {
    /// Credentials: blocked when not blank.
    credentials: &'static [&'static str],
    /// Switches and routes: blocked unless empty, `0`, `false` or `no`.
    switches: &'static [&'static str],
    /// Switches by prefix.
    prefixes: &'static [&'static str],
}

const NONE: Guard = Guard { credentials: &[], switches: &[], prefixes: &[] };

const fn guard_of(provider: Provider) -> Guard {
    match provider {
        Provider::Claude => Guard {
            credentials: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_AWS_API_KEY"],
            switches: &[
                "CLAUDE_CODE_USE_BEDROCK",
                "CLAUDE_CODE_USE_VERTEX",
                "CLAUDE_CODE_USE_FOUNDRY",
                "ANTHROPIC_BASE_URL",
                "ANTHROPIC_CUSTOM_HEADERS",
            ],
            prefixes: &[],
        },
        Provider::Codex => Guard { credentials: &["OPENAI_API_KEY"], ..NONE },
        Provider::Grok => Guard { credentials: &["XAI_API_KEY", "GROK_CODE_XAI_API_KEY"], ..NONE },
        Provider::Devin => Guard { credentials: &["DEVIN_API_KEY"], switches: &["DEVIN_API_URL"], prefixes: &[] },
        Provider::Cursor => {
            Guard { credentials: &["CURSOR_API_KEY"], switches: &["CURSOR_API_ENDPOINT"], prefixes: &[] }
        }
        Provider::Antigravity => Guard {
            credentials: &["GEMINI_API_KEY"],
            switches: &["GOOGLE_GEMINI_BASE_URL", "AGY_ADC_AUTH"],
            prefixes: &["AGY_GATEWAY_", "AGY_LLM_GATEWAY_"],
        },
        Provider::OpenCode => NONE,
    }
}

/// The message of the block under `deny`, or `None` when nothing that is known selects a metered route.
/// OpenCode's general route is blocked unless spending is approved.
#[must_use]
pub fn guard(provider: Provider, api_spend: Option<ApiSpend>, environment: &Environment) -> Option<String> {
    if provider == Provider::OpenCode {
        return (api_spend != Some(ApiSpend::Approved)).then(|| {
            "opencode needs explicit --api-spend approved: subscription routing cannot be verified".to_owned()
        });
    }
    if api_spend != Some(ApiSpend::Deny) {
        return None;
    }
    let guard = guard_of(provider);
    let value = |name: &&&str| environment.get(**name).map_or("", String::as_str);
    let named = guard.credentials.iter().find(|name| !value(name).trim().is_empty()).copied();
    let switched = || guard.switches.iter().find(|name| is_truthy(value(name))).copied();
    let prefixed = || {
        environment
            .iter()
            .find(|(name, value)| guard.prefixes.iter().any(|prefix| name.starts_with(prefix)) && is_truthy(value))
            .map(|(name, _)| name.as_str())
    };
    let name = named.or_else(switched).or_else(prefixed)?;
    Some(format!(
        "the subscription-only policy (api spend deny) refuses {name} for {provider}; unset it or approve API spending"
    ))
}

/// Names that [`guard`] looks at; the attempt must see them to judge them.
#[must_use]
pub fn is_guarded(provider: Provider, name: &str) -> bool {
    let guard = guard_of(provider);
    guard.credentials.contains(&name)
        || guard.switches.contains(&name)
        || guard.prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Not empty, `0`, `false` or `no`, in any case.
pub(super) fn is_truthy(value: &str) -> bool {
    !matches!(value.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn case(provider: Provider, variables: &[(&str, &str)], blocked_by: Option<&str>) {
        let environment: Environment =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let message = guard(provider, Some(ApiSpend::Deny), &environment);
        assert_eq!(message.is_some(), blocked_by.is_some(), "{provider} {variables:?}: {message:?}");
        if let (Some(message), Some(name)) = (message, blocked_by) {
            assert!(message.contains(name), "{message}");
            for (_, value) in variables {
                assert!(value.len() < 4 || !message.contains(value), "{message} shows a value");
            }
        }
        if provider != Provider::OpenCode {
            assert_eq!(guard(provider, Some(ApiSpend::Approved), &environment), None);
            assert_eq!(guard(provider, None, &environment), None);
        }
    }

    #[test]
    fn credentials_block_when_not_blank_and_switches_when_truthy() {
        case(Provider::Claude, &[("ANTHROPIC_API_KEY", "sk-secret")], Some("ANTHROPIC_API_KEY"));
        case(Provider::Claude, &[("ANTHROPIC_API_KEY", "  ")], None);
        case(Provider::Claude, &[("CLAUDE_CODE_USE_BEDROCK", "0"), ("CLAUDE_CODE_USE_VERTEX", "False")], None);
        case(Provider::Claude, &[("ANTHROPIC_BASE_URL", "http://x.test")], Some("ANTHROPIC_BASE_URL"));
        case(Provider::Codex, &[("OPENAI_API_KEY", "sk-secret")], Some("OPENAI_API_KEY"));
        case(Provider::Codex, &[("ANTHROPIC_API_KEY", "sk-secret")], None);
        case(Provider::Grok, &[("GROK_CODE_XAI_API_KEY", "xai-1234")], Some("GROK_CODE_XAI_API_KEY"));
        case(Provider::Devin, &[("DEVIN_API_URL", "no")], None);
        case(Provider::Cursor, &[("CURSOR_API_ENDPOINT", "https://x.test")], Some("CURSOR_API_ENDPOINT"));
        case(Provider::Antigravity, &[("AGY_LLM_GATEWAY_URL", "https://x.test")], Some("AGY_LLM_GATEWAY_URL"));
        case(Provider::Antigravity, &[("AGY_GATEWAY_URL", "false")], None);
    }

    #[test]
    fn opencode_needs_approval_whatever_the_environment() {
        let nothing = Environment::new();
        assert!(guard(Provider::OpenCode, None, &nothing).is_some());
        assert!(guard(Provider::OpenCode, Some(ApiSpend::Deny), &nothing).is_some());
        assert_eq!(guard(Provider::OpenCode, Some(ApiSpend::Approved), &nothing), None);
    }
}
