//! Sizes of what goes into events: texts are clipped, tool values capped (design section 10).

use serde_json::{Value, json};

use super::json::Raw;
use crate::event::{INPUT_CAP, cap_input};

/// Longest text of one event, in bytes; the answer itself is kept whole elsewhere.
pub(super) const TEXT_CAP: usize = 64 << 10;

/// The text, or its beginning and how long it was.
pub(super) fn text(text: &str) -> String {
    if text.len() <= TEXT_CAP {
        return text.to_owned();
    }
    let end = (0..=TEXT_CAP).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}… ({} bytes)", &text[..end], text.len())
}

/// A tool's value. Large ones are capped from their text, without building them.
pub(super) fn value(raw: Option<Raw<'_>>) -> Value {
    let Some(raw) = raw else { return Value::Null };
    let source = raw.source();
    if source.len() <= INPUT_CAP {
        return cap_input(raw.value());
    }
    match raw.text() {
        Some(text) => capped(&text),
        None if source.chars().nth(INPUT_CAP).is_none() => raw.value(),
        None => capped(source),
    }
}

/// A text that stands for a tool's value.
pub(super) fn capped(text: &str) -> Value {
    match text.char_indices().nth(INPUT_CAP) {
        Some((end, _)) => json!({ "truncated": true, "bytes": text.len(), "preview": text[..end] }),
        None => Value::String(text.to_owned()),
    }
}
