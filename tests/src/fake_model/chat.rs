//! Replies of the OpenAI chat completions API.

use serde_json::{Map, Value, json};

use super::script::calls_of;
use super::serve::{Reply, now, text_of, usage_of};

pub(super) fn encode(step: &Map<String, Value>, number: i64, model: &str, rid: &str) -> Reply {
    let (input, output) = usage_of(step);
    let calls: Vec<Value> = calls_of(step)
        .into_iter()
        .enumerate()
        .map(|(n, (name, input))| {
            let arguments = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
            json!({"id": format!("call_fake_s{number}_{n}_{rid}"), "type": "function",
                   "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    let whole = |object: &str, choices: Value| json!({"id": format!("chatcmpl-{rid}"), "created": now(), "model": model, "object": object, "choices": choices});
    let chunk = |delta: Value, finish: Option<&str>| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        (None, whole("chat.completion.chunk", choices))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    let text = text_of(step, "text");
    if let Some(text) = text {
        events.push(chunk(json!({"content": text}), None));
    }
    if !calls.is_empty() {
        let mut indexed = calls.clone();
        for (n, call) in indexed.iter_mut().enumerate() {
            call["index"] = n.into();
        }
        events.push(chunk(json!({"tool_calls": indexed}), None));
    }
    events.push(chunk(json!({}), Some(finish)));
    let mut last = whole("chat.completion.chunk", json!([]));
    last["usage"] = usage.clone();
    events.push((None, last));
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let mut plain = whole("chat.completion", json!([{"index": 0, "message": message, "finish_reason": finish}]));
    plain["usage"] = usage;
    Reply { events, plain, done: true }
}
