//! The script in a conversation, and which of its steps a request is served.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// Protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Messages,
    Responses,
    Chat,
}

impl Kind {
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let path = path.trim_end_matches('/');
        [("/messages", Self::Messages), ("/responses", Self::Responses), ("/chat/completions", Self::Chat)]
            .into_iter()
            .find_map(|(end, kind)| path.ends_with(end).then_some(kind))
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Chat => "chat",
        }
    }
}

/// One part of a conversation, whatever the protocol.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    User(String),
    Result(String),
    /// A tool call's id.
    Call(String),
    Say,
}

/// What a request is served.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) step: Map<String, Value>,
    /// Number of the step; -1 for an auxiliary request.
    pub(super) number: i64,
    /// The whole script as text, to recognize a step that is tried again.
    pub(super) script: String,
    /// Name of the conversation in counts.
    pub(super) id: String,
}

/// Chooses the step for a request.
pub(super) fn choose(kind: Kind, body: &Value) -> Choice {
    let items = normalize(kind, body);
    let mut found = None;
    let (mut first_user, mut last_user, mut last_result) = (None, "", "");
    for (at, item) in items.iter().enumerate() {
        match item {
            Item::User(text) => {
                first_user.get_or_insert(text);
                last_user = text;
                if let Some(script) = find(text) {
                    found = Some((script, at));
                }
            }
            Item::Result(text) => last_result = text,
            Item::Call(_) | Item::Say => {}
        }
    }
    let anonymous = || format!("sha256:{:.16}", hex(&Sha256::digest(first_user.map_or("", |text| text.as_str()))));
    let Some((script, start)) = found else {
        // Without a script a request is answered all the same; without tools it is no turn of an agent.
        let number = if tools_of(body).is_empty() { -1 } else { turns(&items) };
        return Choice { step: text_step("ok"), number, script: String::new(), id: anonymous() };
    };
    let id = script.get("id").and_then(Value::as_str).map_or_else(anonymous, str::to_owned);
    let text = Value::Object(script.clone()).to_string();
    let steps: Vec<Map<String, Value>> = script["steps"]
        .as_array()
        .map(|steps| steps.iter().filter_map(|step| step.as_object().cloned()).collect())
        .unwrap_or_default();
    let (step, number) = if is_auxiliary(body, &script, &steps) {
        (text_step("aux"), -1)
    } else {
        let number = turns(&items[start + 1..]);
        let step = usize::try_from(number).ok().and_then(|n| steps.get(n).cloned()).unwrap_or_else(|| {
            text_step(steps.last().and_then(|step| step.get("text")).and_then(Value::as_str).unwrap_or("ok"))
        });
        (step, number)
    };
    let fill = Fill { last_user: tail(last_user), last_result: tail(last_result), body };
    let step = step.into_iter().map(|(key, value)| (key, fill.value(value))).collect();
    Choice { step, number, script: text, id }
}

/// Model turns in these items: text turns and turns with calls (several calls of one turn share its number).
fn turns(items: &[Item]) -> i64 {
    let mut with_calls = BTreeSet::new();
    let mut says = 0;
    for item in items {
        match item {
            Item::Say => says += 1,
            Item::Call(id) => drop(with_calls.insert(step_of_call(id))),
            Item::User(_) | Item::Result(_) => {}
        }
    }
    says + i64::try_from(with_calls.len()).unwrap_or(i64::MAX)
}

/// `…fake_s3_0_…` was the first call of step 3; a foreign id stands for itself.
fn step_of_call(id: &str) -> String {
    id.split_once("fake_s")
        .and_then(|(_, rest)| rest.split_once('_'))
        .filter(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        .map_or_else(|| id.to_owned(), |(number, _)| number.to_owned())
}

/// The last script in a text.
fn find(text: &str) -> Option<Map<String, Value>> {
    text.match_indices("FAKE:")
        .filter_map(|(at, mark)| {
            let rest = &text[at + mark.len()..];
            let value = serde_json::Deserializer::from_str(rest).into_iter::<Value>().next()?.ok()?;
            value.as_object().filter(|object| object.get("steps").is_some_and(Value::is_array)).cloned()
        })
        .last()
}

/// Text of a content: a string, or a list of typed blocks.
fn flatten(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts = blocks.iter().filter_map(|block| match block {
                Value::String(text) => Some(text.clone()),
                _ => match block.get("text") {
                    Some(Value::String(text)) => Some(text.clone()),
                    _ => block.get("content").map(|content| flatten(Some(content))),
                },
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn normalize(kind: Kind, body: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    match kind {
        Kind::Messages => list(body, "messages").iter().for_each(|message| messages_items(message, &mut items)),
        Kind::Responses => match body.get("input") {
            Some(Value::String(text)) => items.push(Item::User(text.clone())),
            _ => list(body, "input").iter().for_each(|item| responses_items(item, &mut items)),
        },
        Kind::Chat => {
            for message in list(body, "messages") {
                match text(message, "role") {
                    "user" => items.push(Item::User(flatten(message.get("content")))),
                    "tool" => items.push(Item::Result(flatten(message.get("content")))),
                    "assistant" => push_turn(&mut items, list(message, "tool_calls").iter()),
                    _ => {}
                }
            }
        }
    }
    items
}

fn push_turn<'a>(items: &mut Vec<Item>, calls: impl Iterator<Item = &'a Value>) {
    let before = items.len();
    items.extend(calls.map(|call| Item::Call(text(call, "id").to_owned())));
    if items.len() == before {
        items.push(Item::Say);
    }
}

fn messages_items(message: &Value, items: &mut Vec<Item>) {
    let content = message.get("content");
    let plain = content.and_then(Value::as_str).map(|text| json!([{"type": "text", "text": text}]));
    let blocks = plain.as_ref().or(content).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if text(message, "role") == "assistant" {
        return push_turn(items, blocks.iter().filter(|block| text(block, "type") == "tool_use"));
    }
    for block in blocks {
        match text(block, "type") {
            "tool_result" => items.push(Item::Result(flatten(block.get("content")))),
            "text" if text(message, "role") == "user" => items.push(Item::User(text(block, "text").to_owned())),
            _ => {}
        }
    }
}

fn responses_items(item: &Value, items: &mut Vec<Item>) {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    match (kind, text(item, "role")) {
        ("function_call" | "custom_tool_call" | "local_shell_call", _) => {
            if items.last() == Some(&Item::Say) {
                items.pop(); // text of the same turn as the call
            }
            let id = item.get("call_id").or_else(|| item.get("id"));
            items.push(Item::Call(id.and_then(Value::as_str).unwrap_or_default().to_owned()));
        }
        ("message", "assistant") => items.push(Item::Say),
        ("message", "user") => items.push(Item::User(flatten(item.get("content")))),
        _ if kind.ends_with("_output") => {
            let output = item.get("output");
            items.push(Item::Result(match output {
                Some(Value::String(_) | Value::Array(_)) => flatten(output),
                other => other.map(Value::to_string).unwrap_or_default(),
            }));
        }
        _ => {}
    }
}

/// Names of the tools that a request offers, `namespace::tool` for namespaced ones.
pub(super) fn tools_of(body: &Value) -> Vec<String> {
    let added = list(body, "input").iter().filter(|item| text(item, "type") == "additional_tools");
    let tools = list(body, "tools").iter().chain(added.flat_map(|item| list(item, "tools")));
    let mut names = Vec::new();
    for tool in tools {
        let function = tool.get("function").map_or("", |function| text(function, "name"));
        let name = [text(tool, "name"), function, text(tool, "type")].into_iter().find(|name| !name.is_empty());
        let name = name.unwrap_or_default();
        if text(tool, "type") == "namespace" && !list(tool, "tools").is_empty() {
            names.extend(list(tool, "tools").iter().map(|inner| format!("{name}::{}", text(inner, "name"))));
        } else {
            names.push(name.to_owned());
        }
    }
    names
}

fn is_auxiliary(body: &Value, script: &Map<String, Value>, steps: &[Map<String, Value>]) -> bool {
    match tools_of(body).as_slice() {
        [] => script.get("notools").and_then(Value::as_bool) != Some(true),
        [only] => !steps.iter().flat_map(calls_of).any(|(name, _)| name == *only),
        _ => false,
    }
}

/// Tool calls of a step: name and input.
pub(super) fn calls_of(step: &Map<String, Value>) -> Vec<(String, Value)> {
    let call = |call: &Value| {
        let name = call.get("tool")?.as_str()?.to_owned();
        Some((name, call.get("input").cloned().unwrap_or_else(|| json!({}))))
    };
    match step.get("tools").and_then(Value::as_array) {
        Some(calls) if !calls.is_empty() => calls.iter().filter_map(call).collect(),
        _ => call(&Value::Object(step.clone())).into_iter().collect(),
    }
}

fn text_step(text: &str) -> Map<String, Value> {
    Map::from_iter([("text".to_owned(), text.into())])
}

fn tail(text: &str) -> &str {
    let start = text.char_indices().rev().nth(1999).map_or(0, |(at, _)| at);
    &text[start..]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fills the templates of a step.
struct Fill<'a> {
    last_user: &'a str,
    last_result: &'a str,
    body: &'a Value,
}

impl Fill<'_> {
    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, self.value(value))).collect()),
            other => other,
        }
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.replace("{{last_user}}", self.last_user).replace("{{last_result}}", self.last_result);
        while let Some(start) = text.find("{{match:") {
            let Some(length) = text[start..].find("}}") else { break };
            let found =
                Regex::new(&text[start + 8..start + length]).ok().and_then(|regex| first_match(&regex, self.body));
            text.replace_range(start..start + length + 2, &found.unwrap_or_default());
        }
        text
    }
}

fn first_match(regex: &Regex, value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.contains("FAKE:") => regex.find(text).map(|found| found.as_str().to_owned()),
        Value::Array(items) => items.iter().find_map(|item| first_match(regex, item)),
        Value::Object(map) => map.values().find_map(|value| first_match(regex, value)),
        _ => None,
    }
}
