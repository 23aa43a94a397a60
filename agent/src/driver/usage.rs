//! Token counts as providers write them (runner section 4).

use super::json::Raw;
use crate::receipt::Usage;

const KEYS: [&str; 9] = [
    "input_tokens",
    "cached_input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "reasoning_output_tokens",
    "total_tokens",
];

/// The counts of a usage object; `None` when it has none.
pub(super) fn read(raw: Option<Raw<'_>>) -> Option<Usage> {
    let fields = raw?.fields(&KEYS)?;
    let [input, cached, cache_read, cache_creation, cache_write, output, reasoning, reasoning_output, total] =
        fields.map(|field| field.and_then(Raw::number));
    let usage = Usage {
        input_tokens: input,
        cached_input_tokens: cached.or(cache_read),
        cache_creation_input_tokens: cache_creation.or(cache_write),
        output_tokens: output,
        reasoning_tokens: reasoning.or(reasoning_output),
        total_tokens: total,
    };
    (usage != Usage::default()).then_some(usage)
}
