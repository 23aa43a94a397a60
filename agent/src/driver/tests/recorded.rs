//! Output that the real CLIs (claude 2.1.332, codex 0.171.0) wrote in hardened containers against a scripted model API.

use super::*;

pub(super) const ALL: &[(&str, &str)] = &[
    ("claude-denied", include_str!("../fixtures/claude-denied.jsonl")),
    ("claude-not-logged-in", include_str!("../fixtures/claude-not-logged-in.jsonl")),
    ("claude-overloaded", include_str!("../fixtures/claude-overloaded.jsonl")),
    ("claude-quota", include_str!("../fixtures/claude-quota.jsonl")),
    ("claude-sandbox-broken", include_str!("../fixtures/claude-sandbox-broken.jsonl")),
    ("claude-server-error", include_str!("../fixtures/claude-server-error.jsonl")),
    ("claude-success", include_str!("../fixtures/claude-success.jsonl")),
    ("claude-unauthorized", include_str!("../fixtures/claude-unauthorized.jsonl")),
    ("claude-writer-container", include_str!("../fixtures/claude-writer-container.jsonl")),
    ("claude-writer", include_str!("../fixtures/claude-writer.jsonl")),
    ("codex-cut", include_str!("../fixtures/codex-cut.jsonl")),
    ("codex-insufficient", include_str!("../fixtures/codex-insufficient.jsonl")),
    ("codex-quota", include_str!("../fixtures/codex-quota.jsonl")),
    ("codex-sandbox-broken", include_str!("../fixtures/codex-sandbox-broken.jsonl")),
    ("codex-server-error", include_str!("../fixtures/codex-server-error.jsonl")),
    ("codex-success", include_str!("../fixtures/codex-success.jsonl")),
    ("codex-unauthorized", include_str!("../fixtures/codex-unauthorized.jsonl")),
    ("codex-unknown-model", include_str!("../fixtures/codex-unknown-model.jsonl")),
    ("codex-writer-container", include_str!("../fixtures/codex-writer-container.jsonl")),
    ("codex-writer", include_str!("../fixtures/codex-writer.jsonl")),
];

fn judge(name: &str, exit: i32) -> (Vec<EventBody>, Judgement) {
    let text = ALL.iter().find(|(known, _)| *known == name).unwrap().1;
    let provider = if name.starts_with("claude") { Provider::Claude } else { Provider::Codex };
    run(&lane(provider, Mode::IsolatedWrite), text, "", ChildExit::Code(exit))
}

#[track_caller]
fn check(name: &str, exit: i32, expected: &str) -> (Vec<EventBody>, Judgement) {
    let (events, judgement) = judge(name, exit);
    let outcome = outcome(&judgement);
    assert!(outcome.starts_with(expected), "{name}: {outcome}");
    (events, judgement)
}

/// Kinds of the events, in order.
fn kinds(events: &[EventBody]) -> Vec<String> {
    let kind = |event: &EventBody| serde_json::to_value(event).unwrap()["kind"].as_str().unwrap().to_owned();
    events.iter().map(kind).collect()
}

#[test]
fn claude_runs_end_as_they_did() {
    check("claude-success", 0, "complete");
    check("claude-writer", 0, "complete");
    check("claude-writer-container", 0, "complete");
    check("claude-overloaded", 0, "complete");
    check("claude-denied", 0, "complete");
    check("claude-quota", 1, "usage-exhausted invocation: child exited with status 1");
    check("claude-unauthorized", 1, "child-failed invocation: child exited with status 1");
    check("claude-not-logged-in", 1, "child-failed invocation: child exited with status 1");
    check("claude-server-error", 1, "child-failed invocation: child exited with status 1");
}

#[test]
fn codex_runs_end_as_they_did() {
    check("codex-success", 0, "complete");
    check("codex-writer", 0, "complete");
    check("codex-writer-container", 0, "complete");
    check("codex-unknown-model", 0, "complete");
    check("codex-quota", 1, "usage-exhausted invocation: child exited with status 1");
    check("codex-insufficient", 1, "usage-exhausted invocation: child exited with status 1");
    check("codex-unauthorized", 1, "child-failed invocation: child exited with status 1");
    check("codex-server-error", 1, "child-failed invocation: child exited with status 1");
    check("codex-cut", 1, "child-failed invocation: child exited with status 1");
}

#[test]
fn claude_tells_what_happened() {
    let (events, judgement) = judge("claude-success", 0);
    assert_eq!(kinds(&events), ["session", "text", "tool_call", "tool_result", "thinking", "text", "usage", "result"]);
    assert_eq!(delivered(&judgement).text, "The file says hello.");
    assert_eq!(delivered(&judgement).report.reported_model.as_deref(), Some("claude-opus-5-5"));
    let (events, _) = judge("claude-denied", 0);
    assert!(kinds(&events).contains(&"permission".to_owned()), "{events:?}");
    let (events, _) = judge("claude-not-logged-in", 1);
    assert!(kinds(&events).contains(&"auth_expired".to_owned()), "{events:?}");
    let (events, _) = judge("claude-overloaded", 0);
    assert!(matches!(events[1], EventBody::Error { transient: true, .. }), "{events:?}");
    let (events, _) = judge("claude-quota", 1);
    let last = events.last().unwrap();
    assert!(matches!(last, EventBody::QuotaExhausted { resets_at: Some(1_795_989_856), .. }), "{last:?}");
}

#[test]
fn codex_tells_what_happened() {
    let (events, judgement) = judge("codex-writer", 0);
    assert_eq!(
        kinds(&events),
        ["session", "text", "tool_call", "tool_result", "tool_call", "tool_result", "text", "usage", "result"]
    );
    assert!(delivered(&judgement).report.session_id.is_some() && delivered(&judgement).report.usage.is_some());
    let (events, _) = judge("codex-unauthorized", 1);
    assert!(kinds(&events).contains(&"auth_expired".to_owned()), "{events:?}");
    let (events, _) = judge("codex-quota", 1);
    assert!(matches!(events.last(), Some(EventBody::QuotaExhausted { resets_at: None, .. })), "{events:?}");
}

#[test]
fn commands_whose_sandbox_could_not_start_are_counted() {
    let failures = |name| judge(name, 0).1.sandbox_failures;
    assert_eq!(failures("claude-sandbox-broken"), SandboxFailures { commands: 1, failed: 1 });
    assert_eq!(failures("codex-sandbox-broken"), SandboxFailures { commands: 1, failed: 1 });
    assert_eq!(failures("claude-writer"), SandboxFailures { commands: 1, failed: 0 });
    assert_eq!(failures("claude-denied"), SandboxFailures { commands: 0, failed: 0 });
    assert_eq!(failures("codex-writer"), SandboxFailures { commands: 1, failed: 0 });
}
