//! What a failed preflight means (runner 2.4). The text itself never leaves this file.

use super::{PreflightVerdict, StepResult, evidence};
use crate::descriptor::Provider;
use crate::receipt::Status;

/// Longest text that is looked at, in characters.
const TEXT_CAP: usize = 4_000;

/// The verdict of a preflight that did not pass.
pub(super) fn failed(provider: Provider, model: &str, result: &StepResult) -> PreflightVerdict {
    PreflightVerdict::Failed {
        status: classify(provider, model, result),
        message: "authentication or model preflight failed".to_owned(),
        evidence: evidence::of_captures(&result.stdout, &result.stderr),
    }
}

/// Trimmed stdout, newline, stderr.
pub(super) fn text_of(result: &StepResult) -> String {
    let text = format!("{}\n{}", String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    text.trim().to_owned()
}

fn classify(provider: Provider, model: &str, result: &StepResult) -> Status {
    let raw: String = text_of(result).chars().take(TEXT_CAP).collect();
    let text = raw.to_lowercase();
    if is_authentication(&text) {
        return Status::Unauthenticated;
    }
    let no_access = follows(&text, "upgrade to", "to access this model", 30);
    let states = ["not found", "unknown", "unavailable", "unsupported", "not supported", "invalid"];
    let no_model =
        states.iter().any(|state| follows(&text, "model", state, 40)) || follows(&text, "invalid", "model", 20);
    let lists_models = matches!(provider, Provider::Grok | Provider::Antigravity);
    if no_access || no_model || (lists_models && !raw.contains(model)) {
        return Status::UnavailableModel;
    }
    Status::Unauthenticated
}

fn is_authentication(text: &str) -> bool {
    let words = ["not logged in", "unauthenticated", "authentication", "sign in", "login required"];
    let keys = ["api key", "api-key", "api_key", "apikey"];
    words.iter().any(|word| text.contains(word))
        || ["401", "unauthorised", "unauthorized"].iter().any(|word| has_word(text, word))
        || keys.iter().any(|key| {
            follows(text, "invalid", key, 12) || follows(text, key, "invalid", 20) || follows(text, key, "expired", 20)
        })
}

/// True when `second` begins at most `gap` characters after the end of `first`, on the same line.
fn follows(text: &str, first: &str, second: &str, gap: usize) -> bool {
    text.match_indices(first).any(|(at, _)| {
        let rest = &text[at + first.len()..];
        let line = rest.split('\n').next().unwrap_or_default();
        line.match_indices(second).any(|(offset, _)| line[..offset].chars().count() <= gap)
    })
}

fn has_word(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// A stable version `X.Y.Z`: no prerelease, no build, no leading zeros to misread.
pub(super) fn stable_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(|part| {
        let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse::<u32>().ok()).flatten()
    });
    let version = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ChildExit;

    #[track_caller]
    fn case(provider: Provider, stdout: &str, expected: Status) {
        let result =
            StepResult { exit: ChildExit::Code(1), stdout: stdout.as_bytes().to_vec(), stderr: b"noise\n".to_vec() };
        assert_eq!(classify(provider, "grok-4.7", &result), expected, "{provider}: {stdout}");
    }

    #[test]
    fn the_first_matching_rule_names_the_status() {
        case(Provider::Codex, "Not logged in", Status::Unauthenticated);
        case(Provider::Codex, "error 401", Status::Unauthenticated);
        case(Provider::Codex, "model 4010 unknown", Status::UnavailableModel);
        case(Provider::Codex, "Invalid API-key for model unknown", Status::Unauthenticated);
        case(Provider::Codex, "your API key has expired", Status::Unauthenticated);
        case(Provider::Codex, "please upgrade to Pro to access this model", Status::UnavailableModel);
        case(Provider::Codex, "The model `x` is not supported", Status::UnavailableModel);
        case(Provider::Codex, "invalid value for model", Status::UnavailableModel);
        case(Provider::Codex, "something else", Status::Unauthenticated);
        case(Provider::Grok, "logged in\n- grok-3", Status::UnavailableModel);
        case(Provider::Grok, "logged in\n- grok-4.7", Status::Unauthenticated);
    }

    #[test]
    fn only_plain_three_part_versions_are_stable() {
        assert_eq!(stable_version("2.1.285"), Some((2, 1, 285)));
        for bad in ["2.1", "2.1.285-beta", "2.1.285.1", "v2.1.285", "", "2..1", "2.1.+5"] {
            assert_eq!(stable_version(bad), None, "{bad}");
        }
    }
}
