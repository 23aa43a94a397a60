//! Lanes that end with a receipt before any container exists.

use std::os::unix::fs::MetadataExt as _;

use agent::receipt::Receipt;
use serde_json::json;

use crate::desk::{Desk, LANE, lane_with, mode};

const NO_ENGINE: &str = "--engine unix:///nowhere/engine.sock --state-dir state";

#[test]
fn a_strict_lane_is_answered_without_a_launch() {
    for provider in ["claude", "grok", "devin", "cursor", "antigravity", "opencode"] {
        let desk = Desk::new();
        let (model, effort) = match provider {
            "cursor" | "antigravity" => ("composer-2.5", "default"),
            "opencode" => ("openai/gpt-6.1-sol", "default"),
            "devin" => ("swe-2", "high"),
            _ => ("some", "high"),
        };
        let line = lane_with("--provider", provider)
            .replace("--model opus --effort high", &format!("--model {model} --effort {effort}"));
        let seen =
            desk.run("pstack-runner", &format!("{line} --contract strict --api-spend approved --progress p.json"));
        assert_eq!((seen.code(), seen.out().as_str()), (79, ""), "{}", seen.err());
        let receipt = desk.json("receipt.json");
        assert_eq!(seen.err(), format!("{receipt}\n"), "the file and the line are one document");
        assert_eq!(receipt["status"], "unsupported-capability");
        assert_eq!(receipt["error"]["evidence"], "strict route lacks live boundary evidence");
        assert_eq!((&receipt["argv"], &receipt["executable"]), (&json!([]), &json!(null)));
        assert_eq!(receipt["preflight"], json!({"argv": [], "status": "not-run", "evidence": ""}));
        assert_eq!((&receipt["processStarted"], &receipt["failurePhase"]), (&json!(false), &json!("preflight")));
        assert_eq!(mode(&desk.path("receipt.json")), 0o600);
        assert!(!desk.path("out.md").exists());
        let progress = desk.json("p.json");
        assert_eq!(
            (&progress["phase"], &progress["seq"].as_u64().is_some_and(|seq| seq >= 2)),
            (&json!("terminal"), &true)
        );
        assert_eq!(progress["terminal"]["receiptWritten"], true);
        let inode = std::fs::metadata(desk.path("receipt.json")).unwrap().ino();
        assert_eq!(progress["receiptRef"]["ino"], inode);
        let file = desk.text("receipt.json");
        assert_eq!(Receipt::from_json(&file).unwrap().pretty(), file);
    }
}

#[test]
fn receipts_are_the_same_with_and_without_progress() {
    let desk = Desk::new();
    let keys = |extra: &str, receipt: &str| {
        let line = LANE.replace("receipt.json", receipt);
        desk.run("pstack-runner", &format!("{line} --contract strict {extra}"));
        let mut value = desk.json(receipt);
        for key in ["startedAt", "completedAt", "elapsedMs", "receiptPath", "executionId", "canonicalPaths"] {
            value[key] = json!(null);
        }
        value.to_string()
    };
    assert_eq!(keys("--progress p.json", "a.json"), keys("", "b.json"));
}

#[test]
fn paths_are_named_as_given_and_as_real() {
    let desk = Desk::new();
    std::os::unix::fs::symlink(desk.path("repo"), desk.path("link")).unwrap();
    std::fs::create_dir(desk.path("real")).unwrap();
    std::os::unix::fs::symlink(desk.path("real"), desk.path("alias")).unwrap();
    let line =
        lane_with("--cwd", "link").replace("receipt.json", "alias/receipt.json").replace("out.md", "fresh/out.md");
    let seen = desk.run("pstack-runner", &format!("{line} --contract strict --timeout 1.5 --execution-id id-7"));
    assert_eq!(seen.code(), 79, "{}", seen.err());
    let receipt = desk.json("real/receipt.json");
    let path = |name: &str| desk.path(name).to_str().unwrap().to_owned();
    assert_eq!(receipt["cwd"], path("link"));
    assert_eq!(receipt["receiptPath"], path("alias/receipt.json"));
    let real = json!({"cwd": path("repo"), "output": path("fresh/out.md"), "receipt": path("real/receipt.json")});
    assert_eq!(receipt["canonicalPaths"], real);
    assert_eq!((&receipt["timeoutMs"], &receipt["executionId"]), (&json!(1500), &json!("id-7")));
    assert_eq!((&receipt["apiSpend"], &receipt["contract"]), (&json!("legacy"), &json!("strict")));
}

#[test]
fn a_prompt_that_cannot_be_read_is_a_launcher_failure() {
    let desk = Desk::new();
    // A regular file that opens and then fails, for root as well.
    let line = lane_with("--prompt", "/proc/self/mem");
    let seen = desk.run("pstack-runner", &format!("{line} --progress p.json"));
    assert_eq!((seen.code(), seen.out().as_str()), (70, ""), "{}", seen.err());
    let receipt = desk.json("receipt.json");
    assert_eq!(receipt["status"], "child-failed");
    assert_eq!(
        receipt["error"],
        json!({"message": "launcher failed after reserving output paths", "evidence": "Error (EIO)"})
    );
    assert_eq!((&receipt["processStarted"], &receipt["failurePhase"]), (&json!(false), &json!("preflight")));
    assert_eq!(receipt["preflight"]["status"], "not-run");
    assert_eq!((&receipt["argv"][0], &receipt["executable"]), (&json!("claude"), &json!(null)));
    assert!(!desk.path("out.md").exists());
    let again = desk.run("pstack-runner", &line);
    assert_eq!(again.code(), 64, "a retry needs fresh paths");
    assert_eq!(desk.json("receipt.json"), receipt);
}

#[test]
fn a_route_that_the_spend_policy_refuses_needs_no_engine() {
    let desk = Desk::new();
    let line = format!("run {LANE} --api-spend deny --progress p.json {NO_ENGINE}");
    let seen = desk.run_with("laneyard", &line, &[("ANTHROPIC_API_KEY", "sk-canary-123456")]);
    assert_eq!((seen.code(), seen.out().as_str()), (78, ""), "{}", seen.err());
    let file = desk.text("receipt.json");
    let receipt = desk.json("receipt.json");
    assert_eq!((&receipt["status"], &receipt["executable"]), (&json!("billing-policy-blocked"), &json!(null)));
    assert!(receipt["error"]["message"].as_str().unwrap().contains("ANTHROPIC_API_KEY"), "{file}");
    assert!(!file.contains("sk-canary") && !seen.err().contains("sk-canary"), "only names are reported");
    assert!(!desk.path("out.md").exists());
    assert_eq!(desk.json("p.json")["phase"], "terminal");
}

#[test]
fn a_deadline_that_passed_before_the_start_needs_no_engine() {
    let desk = Desk::new();
    let seen = desk.run("laneyard", &format!("run {LANE} --timeout 0.000001 {NO_ENGINE}"));
    assert_eq!((seen.code(), seen.out().as_str()), (124, ""), "{}", seen.err());
    let receipt = desk.json("receipt.json");
    assert_eq!((&receipt["status"], &receipt["timeoutMs"]), (&json!("timed-out"), &json!(0.001)));
    assert_eq!((&receipt["preflight"]["argv"], &receipt["preflight"]["status"]), (&json!([]), &json!("not-run")));
    assert_eq!(receipt["processStarted"], false);
}

#[test]
fn nothing_is_left_to_adopt_after_a_lane_that_ended() {
    let desk = Desk::new();
    desk.run("laneyard", &format!("run {LANE} --timeout 0.000001 {NO_ENGINE}"));
    let records = std::fs::read_dir(desk.path("state/clients")).unwrap().count();
    assert_eq!(records, 0);
    let list = desk.run("laneyard", "attempts --state-dir state").out();
    assert!(list.contains("timed-out") && list.contains("claude:opus@high"), "{list}");
    let id = list.split_whitespace().next().unwrap().to_owned();
    let log = desk.run("laneyard", &format!("logs {id} --json --state-dir state"));
    let last: serde_json::Value = serde_json::from_str(log.out().lines().last().unwrap()).unwrap();
    assert_eq!(last["kind"], "terminal");
    let attached =
        desk.run("laneyard", &format!("attach {id} --state-dir state {}", "--engine unix:///nowhere/engine.sock"));
    assert_eq!(attached.code(), 124, "{}", attached.err());
}
