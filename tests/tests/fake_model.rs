//! The fake model API speaks its protocols and counts what it is asked.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tests::fake_model::{Count, FakeModel, Options};

/// Sends one request; gives status and body.
fn ask(model: &FakeModel, method: &str, target: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", model.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    let request =
        format!("{method} {target} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.get(9..12).map_or(0, |code| code.parse().unwrap()), body.to_owned())
}

fn post(model: &FakeModel, path: &str, body: &Value) -> (u16, String) {
    ask(model, "POST", path, "", &body.to_string())
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

const SCRIPT: &str = r#"go FAKE:{"id":"a","steps":[
    {"text":"writing","tool":"Write","input":{"path":"n"}},
    {"tools":[{"tool":"Read"},{"tool":"Read"}]},
    {"text":"done {{last_result}}","usage":[3,4]}]}"#;

#[test]
fn a_messages_conversation_gets_its_steps_in_order_whatever_came_before() {
    let model = FakeModel::start().unwrap();
    let tools = json!([{"name": "Write"}, {"name": "Read"}]);
    let mut history = vec![json!({"role": "user", "content": SCRIPT})];
    let turn = |history: &[Value]| -> Value {
        let (status, text) = post(&model, "/v1/messages", &json!({"model": "m", "tools": tools, "messages": history}));
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    for (expected, result) in [(vec!["text", "tool_use"], "one"), (vec!["tool_use", "tool_use"], "two")] {
        let reply = turn(&history);
        let kinds: Vec<_> = reply["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
        assert_eq!((kinds, reply["stop_reason"].as_str()), (expected, Some("tool_use")));
        let calls = reply["content"].as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
        let results: Vec<_> =
            calls.map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": result})).collect();
        history.push(json!({"role": "assistant", "content": reply["content"]}));
        history.push(json!({"role": "user", "content": results}));
    }
    let reply = turn(&history);
    assert_eq!(reply["content"][0]["text"], "done two");
    assert_eq!((&reply["usage"]["input_tokens"], &reply["stop_reason"]), (&json!(3), &json!("end_turn")));
    assert_eq!(model.count("a"), Count { invocations: 1, requests: 3, auxiliary: 0 });

    history.truncate(1);
    turn(&history);
    assert_eq!(model.count("a").invocations, 2, "the same prompt from its start is another invocation");
}

#[test]
fn a_responses_stream_has_the_call_and_its_numbered_events() {
    let model = FakeModel::start().unwrap();
    let script = r#"FAKE:{"id":"r","steps":[{"text":"t","tools":[{"tool":"ns::shell","input":{"a":1}},{"tool":"apply_patch","input":"*** x"}]}]}"#;
    let input = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": script}]}]);
    let tools = json!([{"type": "namespace", "name": "ns", "tools": [{"name": "shell"}]}, {"type": "custom", "name": "apply_patch"}]);
    let (_, text) = post(&model, "/v1/responses", &json!({"stream": true, "tools": tools, "input": input}));
    let events = events(&text);
    let numbers: Vec<_> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let done = events.last().unwrap();
    assert_eq!(done["type"], "response.completed");
    let output = &done["response"]["output"];
    assert_eq!(output[0]["content"][0]["text"], "t");
    assert_eq!((&output[1]["name"], &output[1]["namespace"]), (&json!("shell"), &json!("ns")));
    assert_eq!((&output[2]["type"], &output[2]["input"]), (&json!("custom_tool_call"), &json!("*** x")));
    let record = model.requests().pop().unwrap();
    assert_eq!(record.tools, ["ns::shell", "apply_patch"]);
}

#[test]
fn a_chat_stream_ends_with_its_usage_and_done() {
    let model = FakeModel::start().unwrap();
    let body = json!({"stream": true, "tools": [{"function": {"name": "write"}}, {"function": {"name": "bash"}}],
        "messages": [{"role": "user", "content": "FAKE:{\"steps\":[{\"text\":\"x\",\"tool\":\"bash\",\"input\":{}}]}"}]});
    let (_, text) = post(&model, "/v1/chat/completions", &body);
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let events = events(&text);
    assert_eq!(events.last().unwrap()["usage"]["total_tokens"], 18);
    assert!(events.iter().any(|event| event["choices"][0]["finish_reason"] == "tool_calls"));
}

#[test]
fn failing_tries_belong_to_one_invocation() {
    let model = FakeModel::start().unwrap();
    let prompt = r#"FAKE:{"id":"q","steps":[{"status":429,"times":2,"headers":{"retry-after":"1"},"text":"fine"}]}"#;
    let body = json!({"tools": [{"name": "a"}, {"name": "b"}], "messages": [{"role": "user", "content": prompt}]});
    let statuses: Vec<_> = (0..4).map(|_| post(&model, "/v1/messages", &body).0).collect();
    assert_eq!(statuses, [429, 429, 200, 200]);
    assert_eq!(model.count("q"), Count { invocations: 2, requests: 4, auxiliary: 0 });
}

#[test]
fn title_requests_are_no_invocations() {
    let model = FakeModel::start().unwrap();
    let messages = json!([{"role": "user", "content": SCRIPT}]);
    let (_, text) = post(&model, "/v1/messages", &json!({"messages": messages}));
    assert!(text.contains("\"aux\""), "{text}");
    post(&model, "/v1/messages", &json!({"messages": messages, "tools": [{"name": "session_title"}]}));
    assert_eq!(model.count("a"), Count { invocations: 0, requests: 0, auxiliary: 2 });
    let (_, text) = ask(&model, "GET", "/__laneyard/counts", "", "");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["a"]["auxiliary"], 2);
}

#[test]
fn a_held_answer_waits_for_its_release_and_a_dropped_one_breaks_off() {
    let model = FakeModel::start().unwrap();
    let body = |step: &str| {
        let prompt = format!(r#"FAKE:{{"id":"h","notools":true,"steps":[{step}]}}"#);
        json!({"stream": true, "messages": [{"role": "user", "content": prompt}]})
    };
    std::thread::scope(|scope| {
        let held = scope.spawn(|| post(&model, "/v1/messages", &body(r#"{"text":"x","hold":"gate"}"#)));
        let (_, broken) = post(&model, "/v1/messages", &body(r#"{"text":"x","drop":true}"#));
        assert!(broken.contains("message_start") && !broken.contains("message_stop"), "{broken}");
        assert!(!held.is_finished());
        assert_eq!(ask(&model, "POST", "/__laneyard/release/gate", "", "").0, 200);
        assert!(held.join().unwrap().1.contains("message_stop"));
    });
}

#[test]
fn refusals_are_recorded_and_credentials_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.jsonl");
    let options = Options { log: Some(log.clone()), require_key: Some("right".into()), ..Options::default() };
    let model = FakeModel::start_with(options).unwrap();
    assert_eq!(ask(&model, "CONNECT", "evil.example:443", "", "").0, 403);
    assert_eq!(ask(&model, "GET", "http://evil.example/", "", "").0, 403);
    assert_eq!(ask(&model, "GET", "/v1/responses", "Upgrade: websocket\r\n", "").0, 426);
    assert_eq!(ask(&model, "GET", "/nothing", "", "").0, 404);
    assert_eq!(ask(&model, "POST", "/v1/messages", "X-Api-Key: wrong-secret\r\n", "{}").0, 401);
    assert_eq!(ask(&model, "POST", "/v1/messages", "Authorization: Bearer right\r\n", "{}").0, 200);
    assert!(ask(&model, "GET", "/v1/models", "", "").1.contains("fake-model"));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("wrong-secret") && text.contains("Bearer <12 chars>"), "{text}");
    assert_eq!(text.lines().count(), 7);
    let requests = model.requests();
    assert_eq!((requests[0].connect.as_deref(), requests[1].proxied), (Some("evil.example:443"), true));
    assert_eq!(requests[4].refused, Some(401));
}
