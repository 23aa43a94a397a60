//! The `pstack-handoff` block at the end of a final response: how a worker asks its parent for an operation
//! (policy-and-contract 10.2, runner 8.2). Only reads text; what the request permits is decided elsewhere.

use serde_json::{Map, Value};

use crate::blank::is_blank;
use crate::descriptor::ParentOperation;

/// Opens the block; a letter, digit or underscore right after it makes it another tag.
const MARKER: &str = "```pstack-handoff";
const FENCE: &str = "```";

/// What a final response says about a handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handoff {
    /// No marker: an ordinary answer that closes the task.
    None,
    /// Exactly one valid block ends the response.
    Valid(Request),
    /// A marker is there, but the block cannot be trusted.
    Malformed(Malformed),
}

/// A validated request. Strings are as the worker wrote them, files and checks may repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub task: String,
    pub checkpoint: String,
    pub operation: ParentOperation,
    /// Repository-relative paths without `.git`, `..` or empty segments.
    pub files: Vec<String>,
    /// Identifiers of checks that the parent owns.
    pub checks: Vec<String>,
    pub summary: String,
}

/// Why a block is refused, in the order in which the reasons are looked for. `Display` is the documented reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// More than one marker or block, a truncated block, or text after the tag.
    #[error("final response carried more than one pstack-handoff block")]
    NotExactlyOne,
    #[error("pstack-handoff block must end the final response")]
    NotLast,
    #[error("pstack-handoff block is not valid JSON")]
    NotJson,
    #[error("pstack-handoff block failed validation")]
    Invalid,
}

impl Malformed {
    /// The documented reason text.
    #[must_use]
    pub fn reason(self) -> String {
        self.to_string()
    }
}

impl Request {
    /// The six keys in their documented order.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("task".into(), self.task.clone().into());
        map.insert("checkpoint".into(), self.checkpoint.clone().into());
        map.insert("operation".into(), self.operation.as_str().into());
        map.insert("files".into(), self.files.clone().into());
        map.insert("checks".into(), self.checks.clone().into());
        map.insert("summary".into(), self.summary.clone().into());
        Value::Object(map)
    }

    /// Reads a decoded payload; `None` when a key is missing, unknown or breaks its rule.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        let map = value.as_object()?;
        let known = ["task", "checkpoint", "operation", "files", "checks", "summary"];
        if map.len() != known.len() || known.iter().any(|key| !map.contains_key(*key)) {
            return None;
        }
        Some(Self {
            task: bounded(&map["task"], 200)?,
            checkpoint: bounded(&map["checkpoint"], 200)?,
            operation: map["operation"].as_str()?.parse().ok()?,
            files: list(&map["files"], 200, |item| bounded(item, 200).filter(|path| is_safe_path(path)))?,
            checks: list(&map["checks"], 50, |item| bounded(item, 200))?,
            summary: bounded(&map["summary"], 1000)?,
        })
    }
}

/// Reads the handoff of a final response. Total: any text has an answer, in time linear in its length.
#[must_use]
pub fn parse(text: &str) -> Handoff {
    match find(text) {
        Ok(None) => Handoff::None,
        Ok(Some(request)) => Handoff::Valid(request),
        Err(why) => Handoff::Malformed(why),
    }
}

fn find(text: &str) -> Result<Option<Request>, Malformed> {
    let mut markers = text.match_indices(MARKER).map(|(at, _)| at + MARKER.len()).filter(|end| {
        !text[*end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') // the tag goes on: another tag
    });
    let Some(start) = markers.next() else { return Ok(None) };
    if markers.next().is_some() {
        return Err(Malformed::NotExactlyOne);
    }
    let rest = text[start..].trim_start_matches([' ', '\t']);
    let body = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')).ok_or(Malformed::NotExactlyOne)?;
    let (payload, after) = body.split_once(FENCE).ok_or(Malformed::NotExactlyOne)?;
    if !is_blank(after) {
        return Err(Malformed::NotLast);
    }
    let value: Value = serde_json::from_str(payload).map_err(|_| Malformed::NotJson)?;
    Request::from_value(&value).map(Some).ok_or(Malformed::Invalid)
}

/// A nonblank string of at most `limit` UTF-16 units, the unit in which the contract counts.
fn bounded(value: &Value, limit: usize) -> Option<String> {
    let text = value.as_str()?;
    (!is_blank(text) && text.encode_utf16().take(limit + 1).count() <= limit).then(|| text.to_owned())
}

fn list(value: &Value, limit: usize, read: impl Fn(&Value) -> Option<String>) -> Option<Vec<String>> {
    let items = value.as_array().filter(|items| items.len() <= limit)?;
    items.iter().map(read).collect()
}

/// A path that cannot leave the repository, name a drive, pass as a flag or reach `.git`.
fn is_safe_path(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive = bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':';
    !path.starts_with(['/', '-'])
        && !drive
        && !path.contains(['\\', '\0', '\r', '\n'])
        && path.split('/').all(|segment| !matches!(segment, "" | "." | ".." | ".git"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        r#"{"task":"t","checkpoint":"c","operation":"run-checks","files":[],"checks":["unit"],"summary":"s"}"#;

    #[track_caller]
    fn check(text: &str, expected: Result<bool, Malformed>) {
        let seen = match parse(text) {
            Handoff::None => Ok(false),
            Handoff::Valid(_) => Ok(true),
            Handoff::Malformed(why) => Err(why),
        };
        assert_eq!(seen, expected, "{text:?}");
    }

    fn with_file(path: &str) -> String {
        let payload = GOOD.replace(r#""files":[]"#, &format!("\"files\":[{}]", Value::from(path)));
        format!("```pstack-handoff\n{payload}\n```")
    }

    #[test]
    fn a_response_without_marker_closes_the_task() {
        check("", Ok(false));
        check("``pstack-handoff\n{}\n``", Ok(false));
        check("```pstack-handoffs\n{}\n```", Ok(false));
        check("```pstack-handoff_x\n{}\n```", Ok(false));
    }

    #[test]
    fn one_block_at_the_end_is_a_request_wherever_its_line_begins() {
        check(&format!("```pstack-handoff\n{GOOD}\n```"), Ok(true));
        check(&format!("text ````pstack-handoff \t\r\n{GOOD}```  \u{a0}\n"), Ok(true));
    }

    #[test]
    fn more_or_less_than_one_whole_block_is_malformed() {
        check("```pstack-handoff", Err(Malformed::NotExactlyOne));
        check("```pstack-handoff-x\n{}\n```", Err(Malformed::NotExactlyOne));
        check("```pstack-handoffé\n{}\n```", Err(Malformed::NotExactlyOne));
        check(&format!("```pstack-handoff now\n{GOOD}\n```"), Err(Malformed::NotExactlyOne));
        check(&format!("```pstack-handoff\n{GOOD}\n"), Err(Malformed::NotExactlyOne));
        check(&format!("```pstack-handoff\n{GOOD}\n```\n").repeat(2), Err(Malformed::NotExactlyOne));
    }

    #[test]
    fn text_after_the_block_and_bad_json_have_their_own_reasons() {
        check(&format!("```pstack-handoff\n{GOOD}\n```\nbye"), Err(Malformed::NotLast));
        check("```pstack-handoff\n{\"task\":\"```\"}\n", Err(Malformed::NotLast));
        check("```pstack-handoff\nx\n```", Err(Malformed::NotJson));
        check("```pstack-handoff\n[]\n```", Err(Malformed::Invalid));
    }

    #[test]
    fn paths_that_could_leave_the_worktree_are_refused() {
        for path in ["/a", "-a", "c:x", "a\\b", "a//b", "a/", ".", "../a", "a/.git/x", ".git", "a\nb", " ", "a\0"] {
            check(&with_file(path), Err(Malformed::Invalid));
        }
        for path in ["a", "a/b.rs", ".gitignore", "é:x", "a b", "..a"] {
            check(&with_file(path), Ok(true));
        }
    }

    #[test]
    fn lengths_are_counted_in_utf16_units() {
        let task = |text: &str| {
            format!("```pstack-handoff\n{}\n```", GOOD.replace(r#""task":"t""#, &format!(r#""task":"{text}""#)))
        };
        check(&task(&"\u{1f600}".repeat(100)), Ok(true));
        check(&task(&format!("{}x", "\u{1f600}".repeat(100))), Err(Malformed::Invalid));
    }

    #[test]
    fn the_request_prints_its_keys_in_documented_order() {
        let payload =
            r#"{"summary":"s","checks":[],"files":["a"],"operation":"commit-checkpoint","checkpoint":"c","task":"t"}"#;
        let Handoff::Valid(request) = parse(&format!("```pstack-handoff\n{payload}\n```")) else { panic!("valid") };
        assert_eq!(
            request.to_value().to_string(),
            r#"{"task":"t","checkpoint":"c","operation":"commit-checkpoint","files":["a"],"checks":[],"summary":"s"}"#
        );
    }
}
