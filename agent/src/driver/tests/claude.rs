//! Claude's output: acceptance, model proof, errors, quota (runner 2.5, 2.6, 4, 5, 10).

use serde_json::{Value, json};

use super::*;
use crate::receipt::ModelEvidence;

fn main_event(model: &str) -> Value {
    json!({"type":"assistant","parent_tool_use_id":null,"session_id":"s1",
        "message":{"role":"assistant","model":model,"content":[{"type":"text","text":"hi"}]}})
}

fn success(text: &str) -> Value {
    json!({"type":"result","subtype":"success","is_error":false,"result":text,"session_id":"s1",
        "usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":5,"service_tier":"x"},"total_cost_usd":0.25})
}

fn quota_result() -> Value {
    json!({"type":"result","subtype":"success","is_error":true,"api_error_status":429,"terminal_reason":"api_error",
        "result":"You've hit your session limit · resets 4pm (America/New_York)","session_id":"s1"})
}

fn with(mut value: Value, changes: Value) -> Value {
    for (key, change) in changes.as_object().unwrap() {
        value[key] = change.clone();
    }
    value
}

fn jsonl(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn judge(stdout: &str, exit: i32) -> Judgement {
    run(&lane(Provider::Claude, Mode::ReadOnly), stdout, "", ChildExit::Code(exit)).1
}

#[track_caller]
fn case(lines: &[Value], exit: i32, expected: &str, terminal_success: bool, evidence: &[&str]) {
    expect(&judge(&jsonl(lines), exit), expected, terminal_success, evidence);
}

const NOT_REPORTED: &str = "malformed-output postprocess: requested model opus was not reported by claude";

#[test]
fn a_success_with_a_main_event_is_complete() {
    let judgement = judge(&jsonl(&[main_event("claude-opus-9-1"), success("the answer\n")]), 0);
    expect(&judgement, "complete", true, &[]);
    let delivered = delivered(&judgement);
    assert_eq!(delivered.text, "the answer\n");
    assert_eq!(delivered.report.reported_model.as_deref(), Some("claude-opus-9-1"));
    assert!(delivered.report.model_verified && delivered.report.model_evidence == Some(ModelEvidence::ProviderReport));
    assert_eq!(delivered.report.session_id.as_deref(), Some("s1"));
    let usage = serde_json::to_value(delivered.report.usage.as_ref().unwrap()).unwrap();
    assert_eq!(usage, json!({"inputTokens":3,"cachedInputTokens":4,"outputTokens":5}));
    assert_eq!(delivered.report.cost_usd.as_ref().unwrap().to_string(), "0.25");
}

#[test]
fn only_main_assistant_events_prove_the_model() {
    let owned = with(main_event("claude-opus-9"), json!({"parent_tool_use_id":"toolu_1"}));
    let init = json!({"type":"system","subtype":"init","model":"claude-opus-9","session_id":"s1"});
    let listed = with(success("a"), json!({"modelUsage":{"claude-opus-9":{}}}));
    case(&[success("a")], 0, NOT_REPORTED, true, &[]);
    case(&[init, listed], 0, NOT_REPORTED, true, &[]);
    case(&[owned.clone(), success("a")], 0, NOT_REPORTED, true, &[]);
    case(&[main_event("claude-sonnet-9"), success("a")], 0, NOT_REPORTED, true, &[]);
    let other = with(owned, json!({"message":{"role":"assistant","model":"claude-haiku-4"}}));
    case(&[other, main_event("claude-opus-9"), success("a")], 0, "complete", true, &[]);
}

#[test]
fn doubtful_main_events_reject_the_answer() {
    let fine = main_event("claude-opus-9");
    let mut ownerless = fine.clone();
    ownerless.as_object_mut().unwrap().remove("parent_tool_use_id");
    for doubtful in [
        ownerless,
        with(fine.clone(), json!({"parent_tool_use_id":""})),
        with(fine.clone(), json!({"parent_tool_use_id":7})),
        with(fine.clone(), json!({"session_id":"s2"})),
        with(fine.clone(), json!({"session_id":null})),
        with(fine.clone(), json!({"message":{"role":"user","model":"claude-opus-9"}})),
        with(fine.clone(), json!({"message":null})),
        main_event("claude-sonnet-9"),
    ] {
        let judgement = judge(&jsonl(&[fine.clone(), doubtful, success("a")]), 0);
        expect(&judgement, "malformed-output postprocess: claude", true, &[]);
        assert!(!outcome(&judgement).contains("-9"), "no model id in the message");
    }
    case(&[fine, with(success("a"), json!({"session_id":"s2"}))], 0, "malformed-output", true, &[]);
}

#[test]
fn the_result_must_be_one_complete_last_success() {
    let main = main_event("claude-opus-9");
    let bad = |changes| [main.clone(), with(success("a"), changes)];
    case(std::slice::from_ref(&main), 0, "malformed-output postprocess: claude wrote no result event", false, &[]);
    case(&bad(json!({"subtype":"error_during_execution"})), 0, "malformed-output", false, &[]);
    case(&bad(json!({"is_error":null})), 0, "malformed-output", true, &[]);
    case(&bad(json!({"is_error":"false"})), 0, "malformed-output", true, &[]);
    case(&bad(json!({"result":""})), 0, "malformed-output", true, &[]);
    case(&bad(json!({"result":7})), 0, "malformed-output", true, &[]);
    case(&bad(json!({"session_id":""})), 0, "malformed-output", true, &[]);
    case(&[main.clone(), success("a"), success("a")], 0, "malformed-output", true, &[]);
    case(&[main.clone(), success("a"), json!({"type":"system"})], 0, "malformed-output", true, &[]);
    case(&[json!({"is_error":false,"subtype":"success"})], 0, "malformed-output", false, &[]);
    for noise in ["noise", "[1]", "7", "{\"a\":", "null"] {
        let text = format!("{}\n{noise}\n{}", main, success("a"));
        expect(&judge(&text, 0), "malformed-output", true, &[]);
    }
    expect(&judge(&format!("\n \t\r\n{main}\r\n\r\n{}", success("a")), 0), "complete", true, &[]);
}

#[test]
fn an_error_result_wins_over_garbage_and_later_events() {
    let error = with(success("a"), json!({"is_error":true,"result":" went wrong "}));
    let text = format!("garbage\n{error}\n{}\ngarbage", json!({"type":"system"}));
    let evidence = [r#"terminal: {"is_error":true,"result":"went wrong"}"#];
    expect(&judge(&text, 0), "child-failed postprocess: went wrong", false, &evidence);
}

#[test]
fn a_failed_exit_is_never_an_answer() {
    let main = main_event("claude-opus-9");
    let kept = [r#"terminal: {"is_error":false,"result":"a"}"#];
    case(&[main.clone(), success("a")], 1, "child-failed invocation: child exited with status 1", true, &kept);
    let unauthorized = json!({"type":"result","subtype":"success","is_error":true,"api_error_status":401,
        "terminal_reason":"api_error","result":"Failed to authenticate. API Error: 401","session_id":"s1"});
    let kept = [r#"terminal: {"is_error":true,"result":"Failed to authenticate. API Error: 401"}"#];
    case(&[unauthorized], 1, "child-failed invocation: child exited with status 1", false, &kept);
    case(&[success("a"), main], 1, "child-failed invocation", true, &[]);
    let (_, judgement) = run(&lane(Provider::Claude, Mode::ReadOnly), "", "x\n", ChildExit::Signal(15));
    expect(&judgement, "child-failed invocation: child exited with status 143", false, &[]);
    assert_eq!(judgement.evidence, "stdout: 0 line(s), 0 JSON event(s); stderr: 1 line(s), 0 JSON event(s)");
}

#[test]
fn the_captured_quota_envelope_is_exhaustion_at_any_exit() {
    let evidence = [
        "diagnostic: claude_usage_limit_exceeded",
        r#"terminal: {"is_error":true,"result":"You've hit your session limit · resets 4pm (America/New_York)"}"#,
    ];
    case(&[quota_result()], 1, "usage-exhausted invocation: child exited with status 1", false, &evidence);
    case(&[quota_result()], 0, "usage-exhausted postprocess: You've hit", false, &evidence);
    case(
        &[quota_result(), main_event("claude-opus-9"), success("a")],
        1,
        "child-failed",
        true,
        &[r#"terminal: {"is_error":false,"result":"a"}"#],
    );
}

#[test]
fn other_errors_are_not_exhaustion() {
    for changes in [
        json!({"result":"API Error: Request rejected (429) · x"}),
        json!({"api_error_status":500}),
        json!({"api_error_status":403}),
        json!({"api_error_status":"429"}),
        json!({"terminal_reason":"completed"}),
        json!({"result":"\"You've hit your session limit\""}),
        json!({"result":"Sorry: You've hit your session limit"}),
        json!({"result":null,"errors":["You've hit your session limit"]}),
        json!({"result":"You've hit your Haiku limit"}),
        json!({"result":"You've hit your limitless"}),
        json!({"result":"You've hit your session limit, resets 4pm"}),
    ] {
        let judgement = judge(&jsonl(&[with(quota_result(), changes)]), 1);
        assert!(outcome(&judgement).starts_with("child-failed invocation"), "{judgement:?}");
    }
    let answer = success("You've hit your session limit · resets 4pm");
    case(&[main_event("claude-opus-9"), answer], 0, "complete", true, &[]);
}

#[test]
fn evidence_is_trimmed_cut_and_free_of_other_fields() {
    let long = format!("  {}", "é".repeat(600));
    let text = jsonl(&[with(success(&long), json!({"is_error":true,"secret":"canary","errors":["canary"]}))]);
    let (_, judgement) = run(&lane(Provider::Claude, Mode::ReadOnly), &text, "canary\n{}\n", ChildExit::Code(3));
    assert!(judgement.evidence.contains(&format!("\"result\":\"{}\"}}", "é".repeat(500))));
    assert!(judgement.evidence.ends_with("stdout: 1 line(s), 1 JSON event(s); stderr: 2 line(s), 1 JSON event(s)"));
    assert!(!judgement.evidence.contains("canary"));
}

#[test]
fn a_pretty_printed_result_counts_for_success_but_not_as_an_answer() {
    let text = serde_json::to_string_pretty(&success("a")).unwrap();
    expect(&judge(&text, 0), "malformed-output", true, &[]);
    let text = serde_json::to_string_pretty(&quota_result()).unwrap();
    assert!(outcome(&judge(&text, 1)).starts_with("usage-exhausted invocation"));
}

#[test]
fn a_handoff_at_the_end_is_read() {
    let block = |body: &str| format!("done\n```pstack-handoff\n{body}\n```\n");
    let good = r#"{"task":"t","checkpoint":"c","operation":"run-checks","files":[],"checks":["unit"],"summary":"s"}"#;
    let text = |answer: &str| jsonl(&[main_event("claude-opus-9"), success(answer)]);
    let judgement = judge(&text(&block(good)), 0);
    expect(&judgement, "handoff", true, &[]);
    assert_eq!(delivered(&judgement).handoff.as_ref().unwrap()["checks"], json!(["unit"]));
    let judgement = judge(&text(&block("{}")), 0);
    assert_eq!(outcome(&judgement), "handoff-malformed");
    assert_eq!(delivered(&judgement).report.session_id.as_deref(), Some("s1"));
}

#[test]
fn a_large_answer_is_whole_and_an_oversized_one_is_refused() {
    let answer = "ä\n\"".repeat(1 << 20);
    let judgement = judge(&jsonl(&[main_event("claude-opus-9"), success(&answer)]), 0);
    assert_eq!(delivered(&judgement).text, answer);
    let judgement = judge(&jsonl(&[main_event("claude-opus-9"), success(&"x".repeat((16 << 20) + 1))]), 0);
    expect(&judgement, "malformed-output postprocess: claude's final answer is larger than 16 MiB", true, &[]);
}

#[test]
fn a_long_line_in_between_is_judged_like_a_short_one() {
    let tool = with(
        main_event("claude-opus-9"),
        json!({"message":{"content":[{"type":"tool_use","id":"t","name":"Write",
        "input":{"content":"y".repeat(3 << 20)}}],"role":"assistant","model":"claude-sonnet-9"}}),
    );
    case(
        &[main_event("claude-opus-9"), tool, success("a")],
        0,
        "malformed-output postprocess: claude reported more",
        true,
        &[],
    );
    let noise = format!("{}\n{}\n{}", main_event("claude-opus-9"), "z".repeat(3 << 20), success("a"));
    expect(&judge(&noise, 0), "malformed-output postprocess: claude wrote a line", true, &[]);
}

#[test]
fn bytes_that_are_no_text_do_not_break_a_line() {
    let text = jsonl(&[main_event("claude-opus-9"), success("aXb")]);
    let bytes: Vec<u8> = text.bytes().map(|byte| if byte == b'X' { 0xff } else { byte }).collect();
    let lane = lane(Provider::Claude, Mode::ReadOnly);
    let (_, judgement) = read_in_pieces(of(Provider::Claude).unwrap(), &lane, &bytes, &[]);
    assert_eq!(delivered(&judgement).text, "a\u{fffd}b");
}
