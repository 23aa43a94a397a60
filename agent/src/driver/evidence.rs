//! Evidence of a failure (runner 2.6): counts and a few selected terminal fields, never what the model said on the way.

use serde_json::{Map, Value};

use super::json;

/// Longest kept text value, in characters.
const VALUE_CAP: usize = 500;
/// Longest evidence, in characters.
const EVIDENCE_CAP: usize = 4_000;

/// Lines of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Lines that are not blank.
    pub lines: u64,
    /// Lines that are a JSON object.
    pub events: u64,
}

/// The evidence text, without a launcher note.
pub(super) fn render(diagnostic: Option<&str>, terminal: Option<&Terminal>, stdout: Counts, stderr: Counts) -> String {
    let mut text = String::new();
    if let Some(code) = diagnostic {
        text.push_str(&format!("diagnostic: {code}\n"));
    }
    if let Some(Terminal(fields)) = terminal {
        text.push_str(&format!("terminal: {}\n", Value::Object(fields.clone())));
    }
    text.push_str(&format!(
        "stdout: {} line(s), {} JSON event(s); stderr: {} line(s), {} JSON event(s)",
        stdout.lines, stdout.events, stderr.lines, stderr.events
    ));
    cut(&text, EVIDENCE_CAP)
}

/// Evidence of a captured short step: counts only.
pub(super) fn of_captures(stdout: &[u8], stderr: &[u8]) -> String {
    render(None, None, count(stdout), count(stderr))
}

fn count(bytes: &[u8]) -> Counts {
    let mut counts = Counts::default();
    for line in String::from_utf8_lossy(bytes).split('\n').filter(|line| !crate::blank::is_blank(line)) {
        counts.lines += 1;
        counts.events += u64::from(json::object(line, &[]).is_some());
    }
    counts
}

/// The kept fields of a terminal event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Terminal(Map<String, Value>);

impl Terminal {
    /// Adds a text, trimmed and cut.
    pub(super) fn text(mut self, key: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), Value::String(cut(crate::blank::trim(value), VALUE_CAP)));
        }
        self
    }

    pub(super) fn boolean(mut self, key: &str, value: Option<bool>) -> Self {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), Value::Bool(value));
        }
        self
    }
}

/// A receipt's message: trimmed and cut.
pub(super) fn message(text: &str) -> String {
    cut(crate::blank::trim(text), VALUE_CAP)
}

fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((at, _)) => text[..at].to_owned(),
        None => text.to_owned(),
    }
}
