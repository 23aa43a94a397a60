//! One attempt of a seat: an alias or a `provider:model@effort` descriptor (policy-and-contract 2.3; dispatch document,
//! model matrix and optional models).

use std::fmt;

use agent::descriptor::{Effort, Provider};
use agent::route;
use serde::Serialize;

use super::issue::IssueKind;
use crate::policy::words::Alias;

/// What an attempt starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Attempt {
    /// The parent's own model and effort.
    Alias {
        /// Which of the two spellings.
        alias: Alias,
    },
    /// A model of a provider.
    Descriptor(Descriptor),
}

/// A provider's model at an effort. A stale Claude pin is already read as its family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    pub provider: Provider,
    pub model: String,
    pub effort: Effort,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alias { alias } => alias.fmt(f),
            Self::Descriptor(Descriptor { provider, model, effort }) => write!(f, "{provider}:{model}@{effort}"),
        }
    }
}

impl Attempt {
    /// The provider named by a descriptor; `None` for an alias.
    #[must_use]
    pub const fn provider(&self) -> Option<Provider> {
        match self {
            Self::Alias { .. } => None,
            Self::Descriptor(descriptor) => Some(descriptor.provider),
        }
    }

    /// Reads one trimmed, nonempty attempt.
    ///
    /// # Errors
    /// The issue of the attempt, without its row.
    pub fn read(text: &str) -> Result<Self, IssueKind> {
        if let Ok(alias) = text.parse() {
            return Ok(Self::Alias { alias });
        }
        let bad = || IssueKind::BadAttempt { text: text.to_owned() };
        let (provider, rest) = text.split_once(':').ok_or_else(bad)?;
        let provider: Provider = provider.parse().map_err(|_| bad())?;
        let (model, effort) = rest.rsplit_once('@').ok_or_else(bad)?;
        if effort.is_empty() || !effort.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Err(bad());
        }
        let shaped = if provider == Provider::OpenCode { is_path_model(model) } else { is_segment(model, false) };
        if !shaped || (provider == Provider::OpenCode && effort != "default") {
            return Err(bad());
        }
        let unsupported = || IssueKind::UnsupportedEffort { text: text.to_owned(), effort: effort.to_owned() };
        let effort: Effort = effort.parse().map_err(|_| unsupported())?;
        if needs_exact_id(provider) && (is_auto(model) || effort != Effort::Default) {
            return Err(IssueKind::ExactIdRequired { text: text.to_owned(), provider });
        }
        if provider == Provider::Devin && !devin_efforts(model).contains(&effort) {
            return Err(unsupported());
        }
        let family = if provider == Provider::Claude { route::stale_pin(model) } else { None };
        Ok(Self::Descriptor(Descriptor { provider, model: family.unwrap_or(model).to_owned(), effort }))
    }
}

/// Providers whose model slug holds the effort: only `default`, and never a selector.
const fn needs_exact_id(provider: Provider) -> bool {
    matches!(provider, Provider::Antigravity | Provider::OpenCode | Provider::Cursor)
}

/// Devin's effort is part of the model id, except for its one family with a selectable effort.
const fn devin_efforts(model: &str) -> &'static [Effort] {
    match model.as_bytes() {
        b"swe-2" => &[Effort::Medium, Effort::High, Effort::Max, Effort::Default],
        _ => &[Effort::Default],
    }
}

fn is_auto(model: &str) -> bool {
    model.split('/').any(|segment| segment.eq_ignore_ascii_case("auto"))
}

fn is_segment(text: &str, colons: bool) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte) || (colons && byte == b':');
    text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric()) && text.bytes().all(rest)
}

/// `vendor/model` with more segments allowed; later segments may hold colons.
fn is_path_model(model: &str) -> bool {
    let mut segments = model.split('/');
    segments.next().is_some_and(|first| is_segment(first, false))
        && model.contains('/')
        && segments.all(|segment| is_segment(segment, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(Attempt::read(text).ok().map(|attempt| attempt.to_string()).as_deref(), expected, "{text}");
    }

    #[test]
    fn descriptors_and_aliases_are_read_exactly() {
        for text in ["auto", "inherit-parent", "grok:g-9@high", "codex:5.x_y-z@default", "opencode:a/b:c/d@default"] {
            check(text, Some(text));
        }
        for text in [
            "",
            "Auto",
            "grok",
            "grok:g",
            "grok:@high",
            "grok:g@",
            "grok:g@High",
            "grok:g@huge",
            "Grok:g@high",
            "grok:-g@high",
            "grok:a b@high",
            "grok:a:b@high",
            "codex:a/b@high",
            "opencode:a@default",
            "opencode:a//b@default",
            "opencode:a/b@high",
            "opencode:a:b/c@default",
            "opencode:a/AUTO@default",
            "other:a@high",
            "grok:g@high@low",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn providers_without_an_effort_flag_take_exact_ids_at_default() {
        check("antigravity:gemini-3@default", Some("antigravity:gemini-3@default"));
        check("antigravity:gemini-3@high", None);
        check("antigravity:Auto@default", None);
        check("cursor:composer@default", Some("cursor:composer@default"));
        check("cursor:composer@high", None);
        check("cursor:auto@default", None);
    }

    #[test]
    fn devin_takes_only_the_efforts_of_its_family() {
        for effort in ["medium", "high", "max", "default"] {
            check(&format!("devin:swe-2@{effort}"), Some(&format!("devin:swe-2@{effort}")));
        }
        for text in ["devin:swe-2@low", "devin:swe-2@xhigh", "devin:swe-1.6@high", "devin:other@max"] {
            check(text, None);
        }
        check("devin:swe-1.6@default", Some("devin:swe-1.6@default"));
    }

    #[test]
    fn a_stale_claude_pin_is_read_as_its_family() {
        check("claude:claude-opus-4-1@max", Some("claude:opus@max"));
        check("claude:claude-haiku-4-5@max", Some("claude:claude-haiku-4-5@max"));
        check("codex:claude-opus-4-1@max", Some("codex:claude-opus-4-1@max"));
    }
}
