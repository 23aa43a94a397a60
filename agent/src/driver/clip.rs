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

/// A tool's value. A large one is capped from its JSON text, without building it; `bytes` is the length of that text.
pub(super) fn value(raw: Option<Raw<'_>>) -> Value {
    let Some(raw) = raw else { return Value::Null };
    let source = raw.source();
    if source.len() <= INPUT_CAP {
        return cap_input(raw.value());
    }
    let preview = raw.text_start(INPUT_CAP + 1).unwrap_or_else(|| source.chars().take(INPUT_CAP + 1).collect());
    match preview.char_indices().nth(INPUT_CAP) {
        Some((end, _)) => json!({ "truncated": true, "bytes": source.len(), "preview": preview[..end] }),
        None => cap_input(raw.value()),
    }
}
