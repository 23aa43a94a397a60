//! Proof that an account's quota is used up (runner section 5). Only canonical sentences in the place where the
//! provider itself puts them count; everything else fails closed.

pub(super) const CLAUDE: &str = "claude_usage_limit_exceeded";
pub(super) const CODEX: &str = "codex_usage_limit_exceeded";

/// Lower case, as compared. The `5-hour limit` is what newer versions say for the session limit.
const CLAUDE_LITERALS: &[&str] = &[
    "you've hit your session limit",
    "you've hit your 5-hour limit",
    "you've hit your weekly limit",
    "you've hit your opus limit",
    "you've hit your sonnet limit",
    "you've hit your fable limit",
    "you've hit your usage credit limit",
    "you've hit your usage limit",
    "you've hit your limit",
    "you've hit your team's shared budget",
    "you've hit your monthly spend limit",
    "you've hit your org's monthly spend limit",
    "you've hit your org's monthly usage limit",
    "you're out of usage credits",
];

const CODEX_LITERALS: &[&str] = &[
    "you've hit your usage limit",
    "your workspace is out of credits.",
    "you hit your spend cap set",
    "quota exceeded. check your plan and billing details.",
];

/// The one retry wrapper that is proven to carry the provider's own sentence.
const CODEX_WRAPPER: &str = "stream disconnected after retries: ";

/// What Claude's last result says about the refused request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaudeError<'a> {
    pub terminal_reason: &'a str,
    pub status: Option<f64>,
    /// Machine code of newer versions.
    pub api_error: &'a str,
    pub result: &'a str,
}

/// True when an error result proves exhaustion: a refused model request with 429 and either the provider's own machine
/// code or a canonical sentence that ends or goes on with ` · `.
pub(super) fn claude(error: ClaudeError<'_>) -> bool {
    if error.terminal_reason != "api_error" || error.status != Some(429.0) {
        return false;
    }
    let text = comparable(error.result);
    error.api_error == "usage_limit_reached"
        || CLAUDE_LITERALS
            .iter()
            .filter_map(|literal| text.strip_prefix(literal))
            .any(|rest| rest.is_empty() || rest.starts_with(" \u{b7} "))
}

/// True when the message of Codex' last terminal event proves exhaustion.
pub(super) fn codex(message: &str) -> bool {
    let text = comparable(message);
    let text = text.strip_prefix(CODEX_WRAPPER).unwrap_or(&text);
    CODEX_LITERALS
        .iter()
        .filter_map(|literal| text.strip_prefix(literal))
        .any(|rest| rest.is_empty() || rest.starts_with(['.', ' ']))
}

fn comparable(text: &str) -> String {
    crate::blank::trim(text).to_lowercase().replace('\u{2019}', "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn claude_case(result: &str, expected: bool) {
        let error = ClaudeError { terminal_reason: "api_error", status: Some(429.0), api_error: "", result };
        assert_eq!(claude(error), expected, "{result}");
        assert!(!claude(ClaudeError { status: Some(500.0), ..error }), "status 500: {result}");
        assert!(!claude(ClaudeError { status: Some(403.0), ..error }), "status 403: {result}");
        assert!(!claude(ClaudeError { terminal_reason: "completed", ..error }), "other reason: {result}");
    }

    #[test]
    fn claude_proves_it_with_a_canonical_sentence() {
        claude_case("You've hit your session limit · resets 4pm (America/New_York)", true);
        claude_case("You\u{2019}ve hit your 5-hour limit · resets 10:04pm (UTC)", true);
        claude_case(" You've hit your limit\n", true);
        claude_case("You've hit your org's monthly spend limit · ask your admin", true);
        claude_case("You're out of usage credits", true);
    }

    #[test]
    fn claude_fails_closed_on_other_texts() {
        for text in [
            "API Error: Request rejected (429) · limit",
            "\"You've hit your session limit\"",
            "Note: You've hit your session limit",
            "You've hit your Haiku limit · resets 4pm",
            "You've hit your limitless",
            "You've hit your session limit, resets 4pm",
            "You've hit your session limit.",
            "",
        ] {
            claude_case(text, false);
        }
    }

    #[test]
    fn claude_proves_it_with_its_machine_code() {
        let error = ClaudeError {
            terminal_reason: "api_error",
            status: Some(429.0),
            api_error: "usage_limit_reached",
            result: "You've hit your individual spend limit · x",
        };
        assert!(claude(error));
        assert!(!claude(ClaudeError { status: None, ..error }));
    }

    #[track_caller]
    fn codex_case(message: &str, expected: bool) {
        assert_eq!(codex(message), expected, "{message}");
    }

    #[test]
    fn codex_proves_it_with_a_canonical_sentence() {
        codex_case("You\u{2019}ve hit your usage limit. Visit https://x.test or try again at 11:12 PM.", true);
        codex_case("You've hit your usage limit", true);
        codex_case("Your workspace is out of credits. Ask", true);
        codex_case("You hit your spend cap set in your workspace.", true);
        codex_case("Quota exceeded. Check your plan and billing details.", true);
        codex_case("stream disconnected after retries: You've hit your usage limit.", true);
    }

    #[test]
    fn codex_fails_closed_on_other_texts() {
        for text in [
            "stream disconnected after retries: stream disconnected after retries: You've hit your usage limit.",
            "Authentication required: You've hit your usage limit.",
            "rate limit: You've hit your usage limit.",
            "model x: You've hit your usage limit.",
            "\"You've hit your usage limit.\"",
            "You've hit your usage limitless",
            "You've hit your usage limit, sorry",
            "To use Codex with your ChatGPT plan, upgrade to Plus: https://x.test",
            "exceeded retry limit, last status: 429 Too Many Requests",
        ] {
            codex_case(text, false);
        }
    }
}
