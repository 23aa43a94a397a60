//! What the policy helper says to people, and rules that the golden vectors do not reach.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::{Helper, fresh, stderr, stdout};

fn laneyard(words: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laneyard")).args(words).current_dir(directory).output().unwrap()
}

#[track_caller]
fn check(output: &Output, code: i32, fragments: &[&str]) {
    let text = stdout(output) + &stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for fragment in fragments {
        assert!(text.contains(fragment), "no {fragment:?} in\n{text}");
    }
}

fn fact(provider: &str) -> String {
    format!(
        "# access: {{\"provider\":\"{provider}\",\"funding\":\"included\",\"capacity\":\"high\",\"apiSpend\":\"deny\",\"provenance\":\"user\"}}\n"
    )
}

fn next(directory: &Path, sheet: &str, state: &str) -> Output {
    fs::write(directory.join("sheet.md"), sheet).unwrap();
    fs::write(directory.join("state.json"), state).unwrap();
    let words =
        ["next", "--sheet", "sheet.md", "--role", "swarm workers", "--parent", "claude", "--state", "state.json"];
    Helper::Policy.run(&words, directory)
}

#[test]
fn check_points_at_the_text_and_says_what_was_probably_meant() {
    let (_guard, directory) = fresh();
    fs::write(directory.join("sheet.md"), "# budget: low\nbugfix: auto\nswarm workers: auto, gork:g@high\n").unwrap();
    let output = laneyard(&["policy", "check", "--sheet", "sheet.md"], &directory);
    check(
        &output,
        65,
        &[
            "sheet.md:2:1: error: unknown role row header \"bugfix\"\n  | bugfix: auto\n  | ^^^^^^\n  = did you mean `bug-fix`?",
            "sheet.md:3:22: error: swarm workers: \"gork:g@high\" is neither an alias nor a provider:model@effort descriptor\n",
            "  = did you mean `grok:g@high`?",
            "sheet.md: error: missing required role row: perf-issue",
        ],
    );
    assert!(stderr(&output).is_empty());
}

#[test]
fn check_notes_a_stale_pin_and_passes_a_complete_sheet() {
    let (_guard, directory) = fresh();
    let rows: String = controller::policy::roles::ROLE_ROWS
        .iter()
        .map(|role| match role.header {
            "architect runners" => "architect runners: auto, auto\n".to_owned(),
            "bug-fix" => "bug-fix: claude:claude-opus-4-1@max\n".to_owned(),
            header => format!("{header}: auto\n"),
        })
        .collect();
    fs::write(directory.join("sheet.md"), fact("claude") + &rows).unwrap();
    let output = laneyard(&["policy", "check", "--sheet", "sheet.md", "--parent", "claude"], &directory);
    check(
        &output,
        0,
        &["note: \"claude:claude-opus-4-1@max\" is a stale pin and is read as claude:opus@max", "sheet.md: no issues"],
    );
    let output = laneyard(&["policy", "check", "--sheet", "sheet.md", "--parent", "codex"], &directory);
    check(&output, 65, &["no access fact for provider codex", "sheet.md:4:13: error: perf-issue#1"]);
}

#[test]
fn human_issues_have_a_place_and_compatible_ones_have_none() {
    let (_guard, directory) = fresh();
    fs::write(directory.join("sheet.md"), "\nbug-fix: nope\n").unwrap();
    let words = ["policy", "resolve", "--sheet", "sheet.md", "--role", "bug-fix", "--parent", "codex"];
    let human = laneyard(&words, &directory);
    check(&human, 65, &["invalid model sheet:\nsheet.md:2:10: bug-fix: \"nope\""]);
    let plain = laneyard(&[&words[..], &["--json"]].concat(), &directory);
    assert_eq!(stderr(&plain), stderr(&Helper::Policy.run(&words[1..], &directory)));
    assert!(stderr(&plain).starts_with("invalid model sheet:\nbug-fix: \"nope\""));
}

#[test]
fn explain_shows_seats_routes_and_what_each_outcome_leads_to() {
    let (_guard, directory) = fresh();
    let sheet = fact("grok")
        + &fact("claude")
        + "# fallback: {\"on\":[\"usage-exhausted\",\"deadline-exceeded\"]}\n# continuation: {\"on\":[\"permission\"]}\n"
        + "bug-fix: grok:g@high -> claude:opus@max\n";
    fs::write(directory.join("sheet.md"), sheet).unwrap();
    let output =
        laneyard(&["policy", "explain", "--sheet", "sheet.md", "--role", "bug-fix", "--parent", "claude"], &directory);
    check(
        &output,
        0,
        &[
            "bug-fix: row \"bug-fix\", parent claude, 1 seat(s)",
            "0  grok:g@high      external                  grok     included  deny       allowed",
            "1  claude:opus@max  native (pstack-opus-max)  claude   included  deny       allowed",
            "advances on: usage-exhausted, deadline-exceeded",
            "continues on: permission, at most 2 executions of one descriptor",
            "launch 1 (claude:opus@max); a started writer is inspected first",
            "stop: chain exhausted",
            "continue once prepared",
        ],
    );
    let output =
        laneyard(&["policy", "explain", "--sheet", "none.md", "--role", "bug-fix", "--parent", "claude"], &directory);
    check(&output, 0, &["not configured"]);
}

#[test]
fn fmt_prints_checks_or_rewrites_in_place() {
    let (_guard, directory) = fresh();
    let path = directory.join("sheet.md");
    fs::write(&path, "# why  \r\nbug-fix:auto->grok:g@high\r\n").unwrap();
    let output = laneyard(&["policy", "fmt", "--sheet", "sheet.md"], &directory);
    assert_eq!(stdout(&output), "# why\nbug-fix: auto -> grok:g@high\n");
    check(
        &laneyard(&["policy", "fmt", "--check", "--sheet", "sheet.md"], &directory),
        65,
        &["not in the stable format"],
    );
    check(&laneyard(&["policy", "fmt", "--sheet", "sheet.md", "--write"], &directory), 0, &[]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "# why\nbug-fix: auto -> grok:g@high\n");
    check(&laneyard(&["policy", "fmt", "--check", "--sheet", "sheet.md"], &directory), 0, &[]);
    fs::write(&path, "bug-fix: nope\n").unwrap();
    check(&laneyard(&["policy", "fmt", "--sheet", "sheet.md", "--write"], &directory), 65, &["sheet.md:1:10:"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "bug-fix: nope\n");
}

#[test]
fn a_definition_directory_adds_native_lanes_and_a_broken_one_is_a_fault() {
    let (_guard, directory) = fresh();
    fs::write(directory.join("sheet.md"), "swarm workers: claude:haiku@low, claude:opus@max\n").unwrap();
    fs::create_dir(directory.join("agents")).unwrap();
    let definition = directory.join("agents/pstack-haiku-low.md");
    fs::write(&definition, "---\nname: pstack-haiku-low\nmodel: haiku\neffort: low\nbackground: true\n---\n").unwrap();
    let resolve = || {
        let words = ["resolve", "--sheet", "sheet.md", "--role", "swarm workers", "--parent", "claude"];
        let mut command = Helper::Policy.command(crate::program::Called::ByName, &words, &directory);
        command.env("LANEYARD_AGENTS_DIR", directory.join("agents")).output().unwrap()
    };
    let value: serde_json::Value = serde_json::from_str(&stdout(&resolve())).unwrap();
    assert_eq!(value["lanes"][0]["attempts"][0]["route"], "native");
    assert_eq!(value["lanes"][1]["attempts"][0]["route"], "external");
    fs::write(&definition, "no header").unwrap();
    check(&resolve(), 64, &["error: agent definition"]);
}

#[test]
fn the_document_wins_over_the_older_program() {
    let (_guard, directory) = fresh();
    let empty = r#"{"events":[],"access":"read-only"}"#;
    let stale = fact("claude") + "swarm workers: claude:claude-opus-4--1-@max\n";
    check(&next(&directory, &stale, empty), 0, &["\"descriptor\": \"claude:opus@max\"", "\"route\": \"native\""]);
    check(&next(&directory, "swarm workers: devin:swe-2@low\n", empty), 65, &["unsupported effort \"low\""]);
    check(&next(&directory, "swarm workers: cursor:auto@default\n", empty), 65, &["exact id is required"]);
    check(&next(&directory, "swarm workers: antigravity:g@default\n", empty), 0, &["\"unauthorized\""]);
    check(
        &next(&directory, &(fact("antigravity") + "swarm workers: antigravity:g@default\n"), empty),
        0,
        &["\"launch\""],
    );
}

#[test]
fn input_that_cannot_be_read_is_a_fault_and_never_a_default() {
    let (_guard, directory) = fresh();
    fs::write(directory.join("file"), "x").unwrap();
    for (sheet, code, fragment) in
        [(".", 64, "cannot read sheet"), ("file/x", 64, "cannot read sheet"), ("none", 0, "unconfigured")]
    {
        let words = ["resolve", "--sheet", sheet, "--role", "bug-fix", "--parent", "codex"];
        check(&Helper::Policy.run(&words, &directory), code, &[fragment]);
    }
    let sheet = "swarm workers: auto\n";
    check(
        &next(&directory, sheet, "\u{feff}{\"events\":[],\"access\":\"read-only\"}"),
        64,
        &["error:", "not JSON", "usage:"],
    );
    check(&next(&directory, sheet, "{\"events\":[]}"), 64, &["\"access\" must be"]);
    fs::write(directory.join("sheet.md"), "\u{feff}# budget: x\nswarm workers: auto\n").unwrap();
    let words = ["resolve", "--sheet", "sheet.md", "--role", "swarm workers", "--parent", "codex"];
    check(&Helper::Policy.run(&words, &directory), 65, &["unknown role row header"]);
    fs::write(directory.join("sheet.md"), b"\xff prose\nswarm workers: auto\n").unwrap();
    check(&Helper::Policy.run(&words, &directory), 0, &["resolved"]);
}

#[test]
fn a_ledger_can_be_read_by_people() {
    let (_guard, directory) = fresh();
    let words = [
        "op-record",
        "--ledger",
        "ops.json",
        "--id",
        "op-1",
        "--task",
        "t",
        "--checkpoint",
        "c",
        "--kind",
        "run-checks",
        "--state",
        "pending",
        "--expected",
        "{\"n\":1.0}",
    ];
    check(&Helper::Contract.run(&words, &directory), 0, &["\"n\": 1\n"]);
    let output = laneyard(&["contract", "ledger", "--ledger", "ops.json"], &directory);
    check(
        &output,
        0,
        &["1 operation(s), 1 pending", "op-1  pending  run-checks  t", "{\"n\":1}", "may or may not have happened"],
    );
    check(&laneyard(&["contract", "ledger", "--ledger", "none.json"], &directory), 0, &["0 operation(s)"]);
    let output = Helper::Contract.run(&["ledger", "--ledger", "ops.json"], &directory);
    check(&output, 64, &["unknown command: ledger"]);
}
