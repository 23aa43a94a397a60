//! What was probably meant: the nearest documented word for an issue. For people only; nothing is corrected.

use agent::descriptor::{Effort, Provider};

use super::roles::ROLE_ROWS;
use super::sheet::IssueKind;
use super::sheet::issue::Metadata;
use super::words::{Alias, ContinuationReason, FallbackReason};

/// A replacement for the text that the issue is about, if one is near.
#[must_use]
pub fn suggest(kind: &IssueKind) -> Option<String> {
    match kind {
        IssueKind::InRow { inner, .. } => suggest(inner),
        IssueKind::UnknownHeader { text } => header(text),
        IssueKind::BadAttempt { text } => attempt(text),
        IssueKind::UnsupportedEffort { text, effort } => {
            let start = text.strip_suffix(effort.as_str())?;
            nearest(effort, Effort::WORDS).filter(|near| near != effort).map(|near| format!("{start}{near}"))
        }
        IssueKind::ExactIdRequired { text, .. } => {
            let (start, effort) = text.rsplit_once('@')?;
            (effort != "default" && !start.ends_with("auto")).then(|| format!("{start}@default"))
        }
        IssueKind::UnknownKey { what, key, .. } => nearest(key, keys(*what)),
        IssueKind::OnUnknown { what, entry, .. } => {
            let words = match what {
                Metadata::Continuation => ContinuationReason::WORDS,
                Metadata::Access | Metadata::Fallback => FallbackReason::WORDS,
            };
            nearest(entry.trim_matches('"'), words)
        }
        _ => None,
    }
}

fn keys(what: Metadata) -> &'static [&'static str] {
    match what {
        Metadata::Access => {
            &["provider", "funding", "capacity", "apiSpend", "provenance", "plan", "note", "observedAt"]
        }
        Metadata::Fallback => &["on"],
        Metadata::Continuation => &["on", "max"],
    }
}

fn header(text: &str) -> Option<String> {
    let headers: Vec<&str> = ROLE_ROWS.iter().map(|row| row.header).collect();
    if let Some(near) = nearest(text, &headers) {
        return Some(near);
    }
    // A leaf role, or one of several names of a row, stands for the row.
    let of_leaf = |row: &&super::roles::RoleRow| row.roles.iter().any(|role| nearest(text, &[role]).is_some());
    let mut rows = ROLE_ROWS.iter().filter(of_leaf);
    match (rows.next(), rows.next()) {
        (Some(row), None) => Some(row.header.to_owned()),
        _ => None,
    }
}

fn attempt(text: &str) -> Option<String> {
    let Some((provider, rest)) = text.split_once(':') else { return nearest(text, Alias::WORDS) };
    let near = nearest(provider, Provider::WORDS)?;
    let (model, effort) = match rest.rsplit_once('@') {
        Some((model, effort)) => (model, nearest(effort, Effort::WORDS)?),
        None => (rest, "default".to_owned()),
    };
    let suggestion = format!("{near}:{model}@{effort}");
    (suggestion != text && super::sheet::Attempt::read(&suggestion).is_ok()).then_some(suggestion)
}

/// The word with the fewest edits, if they are few for its length.
fn nearest(text: &str, words: &[&str]) -> Option<String> {
    let lower = text.to_lowercase();
    let (word, edits) =
        words.iter().map(|word| (*word, distance(&lower, &word.to_lowercase()))).min_by_key(|it| it.1)?;
    (edits <= (word.len() / 3).clamp(1, 4)).then(|| word.to_owned())
}

/// Edits (insert, delete, replace, swap of neighbours) between two short texts; long ones are far from everything.
fn distance(left: &str, right: &str) -> usize {
    if left.len() > 200 {
        return usize::MAX;
    }
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut before = vec![0; right.len() + 1];
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for at in 0..left.len() {
        let mut next = vec![at + 1; right.len() + 1];
        for to in 0..right.len() {
            let replaced = row[to] + usize::from(left[at] != right[to]);
            next[to + 1] = replaced.min(row[to + 1] + 1).min(next[to] + 1);
            if at > 0 && to > 0 && left[at] == right[to - 1] && left[at - 1] == right[to] {
                next[to + 1] = next[to + 1].min(before[to - 1] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sheet::parse;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let issues = parse(text).issues;
        assert_eq!(issues.first().and_then(|issue| suggest(&issue.kind)).as_deref(), expected, "{issues:?}");
    }

    #[test]
    fn near_misses_are_named_and_far_ones_are_not() {
        check("bugfix: auto", Some("bug-fix"));
        check("Feature, Refactoring: auto", Some("feature, refactoring"));
        check("why investigators: auto", Some("why investigators, synthesizer"));
        check("synthesizer: auto", None);
        check("shopping list: milk", None);
        check("bug-fix: Auto", Some("auto"));
        check("bug-fix: inherit-parnet", Some("inherit-parent"));
        check("bug-fix: gork:x@high", Some("grok:x@high"));
        check("bug-fix: grok:x@HIGH", Some("grok:x@high"));
        check("bug-fix: cursor:composer", Some("cursor:composer@default"));
        check("bug-fix: grok:x@hihg", Some("grok:x@high"));
        check("bug-fix: antigravity:gemini@high", Some("antigravity:gemini@default"));
        check("# fallback: {\"on\":[\"usage-exausted\"]}", Some("usage-exhausted"));
        check("# access: {\"apispend\":1}", Some("apiSpend"));
    }
}
