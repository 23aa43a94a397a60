//! Replies of the Anthropic Messages API.

use serde_json::{Map, Value, json};

use super::script::calls_of;
use super::serve::{Reply, text_of, usage_of};

pub(super) fn encode(step: &Map<String, Value>, number: i64, model: &str, rid: &str) -> Reply {
    let (input, output) = usage_of(step);
    let usage = |output: u64| {
        json!({"input_tokens": input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
               "output_tokens": output})
    };
    let mut blocks = Vec::new();
    if let Some(thinking) = text_of(step, "thinking") {
        blocks.push(json!({"type": "thinking", "thinking": thinking, "signature": "ZmFrZQ=="}));
    }
    if let Some(text) = text_of(step, "text") {
        blocks.push(json!({"type": "text", "text": text}));
    }
    let calls = calls_of(step);
    for (n, (name, input)) in calls.iter().enumerate() {
        blocks.push(
            json!({"type": "tool_use", "id": format!("toolu_fake_s{number}_{n}_{rid}"), "name": name, "input": input}),
        );
    }
    let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
    let message = json!({"id": format!("msg_{rid}"), "type": "message", "role": "assistant", "model": model,
        "content": blocks, "stop_reason": stop, "stop_sequence": null, "usage": usage(output)});
    let mut begun = message.clone();
    begun["content"] = json!([]);
    begun["stop_reason"] = Value::Null;
    begun["usage"] = usage(1);
    let mut events = vec![event("message_start", json!({"message": begun}))];
    for (index, block) in blocks.iter().enumerate() {
        events.extend(block_events(index, block));
    }
    events.push(event(
        "message_delta",
        json!({"delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": output}}),
    ));
    events.push(event("message_stop", json!({})));
    Reply { events, plain: message, done: false }
}

fn block_events(index: usize, block: &Value) -> Vec<(Option<String>, Value)> {
    let (empty, deltas) = match block["type"].as_str() {
        Some("thinking") => (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                json!({"type": "signature_delta", "signature": block["signature"]}),
            ],
        ),
        Some("text") => {
            let text: Vec<char> = block["text"].as_str().unwrap_or_default().chars().collect();
            let pieces = text.chunks(40).map(|piece| json!({"type": "text_delta", "text": String::from_iter(piece)}));
            (json!({"type": "text", "text": ""}), pieces.collect())
        }
        _ => {
            let mut empty = block.clone();
            empty["input"] = json!({});
            (empty, vec![json!({"type": "input_json_delta", "partial_json": block["input"].to_string()})])
        }
    };
    let mut events = vec![event("content_block_start", json!({"index": index, "content_block": empty}))];
    events
        .extend(deltas.into_iter().map(|delta| event("content_block_delta", json!({"index": index, "delta": delta}))));
    events.push(event("content_block_stop", json!({"index": index})));
    events
}

/// An event whose type stands in the line and, first, in the data.
fn event(kind: &str, rest: Value) -> (Option<String>, Value) {
    let mut data = Map::from_iter([("type".to_owned(), kind.into())]);
    data.extend(rest.as_object().cloned().unwrap_or_default());
    (Some(kind.to_owned()), Value::Object(data))
}
