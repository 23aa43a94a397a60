//! Replies of the OpenAI Responses API.

use serde_json::{Map, Value, json};

use super::script::calls_of;
use super::serve::{Reply, now, text_of, usage_of};

pub(super) fn encode(step: &Map<String, Value>, number: i64, model: &str, rid: &str) -> Reply {
    let (input, output) = usage_of(step);
    let mut items = Vec::new();
    if let Some(text) = text_of(step, "text") {
        items.push(json!({"type": "message", "id": format!("msg_{rid}"), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}));
    }
    for (n, (name, input)) in calls_of(step).into_iter().enumerate() {
        items.push(call_item(n, number, rid, &name, &input));
    }
    let base = json!({"id": format!("resp_{rid}"), "object": "response", "created_at": now(), "model": model,
        "status": "in_progress", "output": [], "error": null, "incomplete_details": null});
    let mut done = base.clone();
    done["status"] = "completed".into();
    done["output"] = json!(items);
    done["usage"] = json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output});
    let mut events = vec![("response.created", json!({"response": base}))];
    for (index, item) in items.iter().enumerate() {
        item_events(index, item, &mut events);
    }
    events.push(("response.completed", json!({"response": done})));
    let events = events.into_iter().enumerate().map(|(n, (kind, rest))| {
        let mut data = Map::from_iter([("type".to_owned(), kind.into())]);
        data.extend(rest.as_object().cloned().unwrap_or_default());
        data.insert("sequence_number".to_owned(), n.into());
        (Some(kind.to_owned()), Value::Object(data))
    });
    Reply { events: events.collect(), plain: done, done: false }
}

fn call_item(n: usize, number: i64, rid: &str, name: &str, input: &Value) -> Value {
    let call = format!("call_fake_s{number}_{n}_{rid}");
    if let Value::String(input) = input {
        return json!({"type": "custom_tool_call", "id": format!("ctc_{rid}_{n}"), "status": "completed",
            "call_id": call, "name": name, "input": input});
    }
    let (namespace, short) = name.rsplit_once("::").map_or((None, name), |(space, short)| (Some(space), short));
    let mut item = json!({"type": "function_call", "id": format!("fc_{rid}_{n}"), "status": "completed",
        "call_id": call, "name": short, "arguments": input.to_string()});
    if let Some(namespace) = namespace {
        item["namespace"] = namespace.into();
    }
    item
}

fn item_events(index: usize, item: &Value, events: &mut Vec<(&'static str, Value)>) {
    let id = &item["id"];
    let mut blank = item.clone();
    blank["status"] = "in_progress".into();
    match item["type"].as_str() {
        Some("message") => {
            let text = &item["content"][0]["text"];
            blank["content"] = json!([]);
            events.push(("response.output_item.added", json!({"output_index": index, "item": blank})));
            events.push((
                "response.content_part.added",
                json!({"item_id": id, "output_index": index, "content_index": 0,
                       "part": {"type": "output_text", "text": "", "annotations": []}}),
            ));
            events.push((
                "response.output_text.delta",
                json!({"item_id": id, "output_index": index, "content_index": 0, "delta": text}),
            ));
            events.push((
                "response.output_text.done",
                json!({"item_id": id, "output_index": index, "content_index": 0, "text": text}),
            ));
        }
        Some("custom_tool_call") => {
            blank["input"] = "".into();
            events.push(("response.output_item.added", json!({"output_index": index, "item": blank})));
        }
        _ => {
            let arguments = &item["arguments"];
            blank["arguments"] = "".into();
            events.push(("response.output_item.added", json!({"output_index": index, "item": blank})));
            events.push((
                "response.function_call_arguments.delta",
                json!({"item_id": id, "output_index": index, "delta": arguments}),
            ));
            events.push((
                "response.function_call_arguments.done",
                json!({"item_id": id, "output_index": index, "arguments": arguments}),
            ));
        }
    }
    events.push(("response.output_item.done", json!({"output_index": index, "item": item})));
}
