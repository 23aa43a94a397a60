//! Stable times, paths and ids, so that a whole receipt can be compared.

use regex::Regex;
use serde_json::Value;

/// Replaces what differs from run to run.
pub struct Redactor {
    texts: Vec<(String, &'static str)>,
    patterns: Vec<(Regex, &'static str)>,
}

impl Redactor {
    /// `texts` are replaced literally, in order, before ids, times, digests and ports.
    ///
    /// # Panics
    /// Never: the patterns are constant.
    #[must_use]
    pub fn new(texts: Vec<(String, &'static str)>) -> Self {
        let patterns = [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
            (r"sha256:[0-9a-f]{64}", "<digest>"),
            (r"\b[0-9a-f]{64}\b", "<container>"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", "<time>"),
            (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        ];
        let patterns = patterns.into_iter().filter_map(|(text, to)| Regex::new(text).ok().map(|regex| (regex, to)));
        Self { texts, patterns: patterns.collect() }
    }

    /// A redacted text.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let text = self.texts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        self.patterns.iter().fold(text, |text, (regex, to)| regex.replace_all(&text, *to).into_owned())
    }

    /// A redacted value: texts as above, numbers of milliseconds and bytes as 0.
    #[must_use]
    pub fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(map) => {
                let varies = |key: &str| key.ends_with("Ms") || key.starts_with("bytes") || key == "pid";
                let redact = |(key, value): (&String, &Value)| {
                    let value = if varies(key) && value.is_number() { 0.into() } else { self.value(value) };
                    (self.text(key), value)
                };
                Value::Object(map.iter().map(redact).collect())
            }
            other => other.clone(),
        }
    }
}
