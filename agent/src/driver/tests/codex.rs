//! Codex' output: framing, acceptance, errors, quota (runner 2.5, 2.6, 4.1, 5, 10).

use serde_json::{Value, json};

use super::*;
use crate::receipt::ModelEvidence;

fn thread(id: &str) -> Value {
    json!({"type":"thread.started","thread_id":id})
}

fn started() -> Value {
    json!({"type":"turn.started"})
}

fn message(text: impl Into<Value>) -> Value {
    json!({"type":"item.completed","item":{"id":"i","type":"agent_message","text":text.into()}})
}

fn error_item() -> Value {
    json!({"type":"item.completed","item":{"id":"e","type":"error","message":"meta"}})
}

fn completed() -> Value {
    json!({"type":"turn.completed","usage":{"input_tokens":7,"cached_input_tokens":1,"output_tokens":2,"reasoning_output_tokens":3}})
}

fn failed(text: &str) -> Value {
    json!({"type":"turn.failed","error":{"message":text,"code":"canary"}})
}

fn error(text: &str) -> Value {
    json!({"type":"error","message":text})
}

fn jsonl(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn judge(stdout: &str, exit: i32) -> Judgement {
    run(&lane(Provider::Codex, Mode::ReadOnly), stdout, "You've hit your usage limit\n", ChildExit::Code(exit)).1
}

#[track_caller]
fn case(lines: &[Value], exit: i32, expected: &str, terminal_success: bool, evidence: &[&str]) {
    expect(&judge(&jsonl(lines), exit), expected, terminal_success, evidence);
}

#[track_caller]
fn answer(lines: &[Value], expected: &str) -> Judgement {
    let judgement = judge(&jsonl(lines), 0);
    expect(&judgement, "complete", true, &[]);
    assert_eq!(delivered(&judgement).text, expected);
    judgement
}

const REJECTED: &str = "malformed-output postprocess: codex";

#[test]
fn a_completed_turn_with_a_message_is_complete() {
    let judgement = answer(&[thread("t1"), started(), message("first"), message("last"), completed()], "last");
    let delivered = delivered(&judgement);
    assert_eq!(delivered.report.session_id.as_deref(), Some("t1"));
    assert_eq!((delivered.report.reported_model.as_deref(), delivered.report.model_verified), (None, false));
    assert_eq!(delivered.report.model_evidence, Some(ModelEvidence::PinnedArgv));
    assert_eq!(delivered.report.cost_usd, None);
    let usage = serde_json::to_value(delivered.report.usage.as_ref().unwrap()).unwrap();
    assert_eq!(usage, json!({"inputTokens":7,"cachedInputTokens":1,"outputTokens":2,"reasoningTokens":3}));
}

#[test]
fn unframed_items_open_a_turn_of_their_own() {
    let judgement = answer(&[message("a"), completed()], "a");
    assert_eq!(delivered(&judgement).report.session_id, None);
}

#[test]
fn unfinished_work_is_rejected() {
    case(&[message("a")], 0, REJECTED, false, &[]);
    case(&[thread("t"), started(), message("a")], 0, REJECTED, false, &[]);
    case(&[started(), message("a"), completed(), started(), message("b")], 0, REJECTED, true, &[]);
    case(&[], 0, REJECTED, false, &[]);
}

#[test]
fn the_last_message_decides_even_when_it_says_nothing() {
    for last in [json!(""), json!(" \n"), json!(7), json!(null), json!(["a"])] {
        case(&[started(), message("a"), message(last), completed()], 0, REJECTED, true, &[]);
    }
    case(&[started(), completed()], 0, REJECTED, true, &[]);
    case(&[started(), message("a"), completed(), started(), completed()], 0, REJECTED, true, &[]);
}

#[test]
fn usage_is_that_of_the_last_turn_only() {
    let bare = json!({"type":"turn.completed"});
    let judgement = answer(&[started(), message("a"), completed(), started(), message("b"), bare], "b");
    assert_eq!(delivered(&judgement).report.usage, None);
}

#[test]
fn a_failed_turn_is_forgotten_when_a_later_one_has_its_own_text() {
    answer(&[started(), message("a"), failed("x"), started(), message("b"), completed()], "b");
    case(&[started(), message("a"), failed("x"), started(), completed()], 0, REJECTED, true, &[]);
}

#[test]
fn error_items_are_no_work() {
    answer(&[error_item(), started(), message("a"), error_item(), completed(), error_item()], "a");
    case(&[error_item(), completed()], 0, REJECTED, true, &[]);
}

#[test]
fn broken_framing_is_rejected() {
    case(&[message("a"), started(), message("a"), completed()], 0, REJECTED, true, &[]);
    case(&[started(), started(), message("a"), completed()], 0, REJECTED, true, &[]);
    case(&[started(), message("a"), completed(), message("b")], 0, REJECTED, true, &[]);
    case(&[started(), message("a"), completed(), completed()], 0, REJECTED, true, &[]);
    case(&[thread("t1"), thread("t2"), started(), message("a"), completed()], 0, REJECTED, true, &[]);
    answer(&[thread("t1"), thread(""), thread("t1"), started(), message("a"), completed()], "a");
    for noise in ["[1]", "7", "noise", "{"] {
        let text = format!("{}{noise}\n", jsonl(&[started(), message("a"), completed()]));
        expect(&judge(&text, 0), REJECTED, true, &[]);
    }
    answer(&[json!({"type":"new.kind"}), json!({}), started(), message("a"), completed(), json!({"type":7})], "a");
}

#[test]
fn pretty_printed_output_is_rejected_but_its_success_is_seen() {
    let text = serde_json::to_string_pretty(&completed()).unwrap();
    expect(&judge(&text, 0), REJECTED, true, &[]);
    expect(&judge(&text, 1), "child-failed invocation", true, &[r#"terminal: {"type":"turn.completed"}"#]);
    let text = serde_json::to_string_pretty(&failed("Your workspace is out of credits.")).unwrap();
    assert!(outcome(&judge(&text, 1)).starts_with("usage-exhausted invocation"));
}

#[test]
fn a_failure_at_the_end_is_the_providers_error() {
    let kept = [r#"terminal: {"type":"turn.failed","message":"backend rejected the request"}"#];
    let lines = [started(), error("x"), failed(" backend rejected the request ")];
    case(&lines, 0, "child-failed postprocess: backend rejected the request", false, &kept);
    case(&lines, 1, "child-failed invocation: child exited with status 1", false, &kept);
    case(
        &[started(), started(), failed("y")],
        0,
        "child-failed postprocess: y",
        false,
        &[r#"terminal: {"type":"turn.failed","message":"y"}"#],
    );
    case(
        &[started(), message("a"), error("z")],
        0,
        "child-failed postprocess: z",
        false,
        &[r#"terminal: {"type":"error","message":"z"}"#],
    );
    case(&[started(), failed("y"), json!({"type":"other"})], 1, "child-failed invocation", false, &[]);
}

#[test]
fn a_recovered_error_does_not_matter() {
    answer(&[started(), error("Reconnecting... 1/5"), message("a"), completed()], "a");
}

#[test]
fn a_success_before_a_failed_exit_is_remembered() {
    case(
        &[started(), message("a"), completed()],
        1,
        "child-failed invocation",
        true,
        &[r#"terminal: {"type":"turn.completed"}"#],
    );
}

#[test]
fn quota_is_proven_by_the_last_terminal_event_alone() {
    let limit = "You\u{2019}ve hit your usage limit. Try again later.";
    let kept = |kind: &str| format!("terminal: {{\"type\":\"{kind}\",\"message\":\"{limit}\"}}");
    let code = "diagnostic: codex_usage_limit_exceeded";
    case(
        &[started(), error(limit), failed(limit)],
        1,
        "usage-exhausted invocation: child exited with status 1",
        false,
        &[code, &kept("turn.failed")],
    );
    case(&[started(), error(limit)], 0, "usage-exhausted postprocess: You", false, &[code, &kept("error")]);
    answer(&[started(), error(limit), message("a"), completed()], "a");
    let garbage = format!("garbage\n{}", jsonl(&[started(), failed(limit)]));
    expect(&judge(&garbage, 0), REJECTED, false, &[]);
    let plan = "To use Codex with your ChatGPT plan, upgrade to Plus: https://x.test";
    assert!(outcome(&judge(&jsonl(&[started(), failed(plan)]), 1)).starts_with("child-failed"));
}

#[test]
fn a_large_answer_is_whole_and_an_oversized_one_is_refused() {
    let text = "x\\\n".repeat(1 << 20);
    answer(&[started(), message(text.clone()), completed()], &text);
    let lines = [started(), message("x".repeat((16 << 20) + 1)), completed()];
    case(&lines, 0, "malformed-output postprocess: codex' final answer is larger than 16 MiB", true, &[]);
}
