//! What stays of ended attempts on this machine, and what killed clients left.

use std::os::unix::fs::MetadataExt as _;

use controller::cli::record::Records;
use serde_json::{Value, json};

use crate::desk::{Desk, LANE, Seen};

const NO_ENGINE: &str = "--engine unix:///nowhere/engine.sock --state-dir state";

/// A lane that ended before any container, and its attempt's id.
fn ended(desk: &Desk) -> String {
    desk.run("laneyard", &format!("run {LANE} --timeout 0.000001 {NO_ENGINE}"));
    let list = desk.run("laneyard", "attempts --state-dir state").out();
    list.split_whitespace().next().unwrap().to_owned()
}

fn with_rules(desk: &Desk, rules: &str, line: &str) -> Seen {
    std::fs::write(desk.path("config.toml"), format!("[retention]\n{rules}\n")).unwrap();
    desk.run_with("laneyard", line, &[("LANEYARD_CONFIG", desk.path("config.toml").to_str().unwrap())])
}

#[test]
fn logs_go_and_leave_a_gap_and_the_receipt_then_the_attempt_goes_whole() {
    let desk = Desk::new();
    let id = ended(&desk);
    assert_eq!(
        desk.run("laneyard", "gc --dry-run --state-dir state --engine unix:///nowhere/engine.sock").out(),
        "",
        "nothing is old"
    );
    let rules = "logs = { age = \"0s\" }\nreceipts = { age = \"forever\" }";
    let planned = with_rules(&desk, rules, &format!("gc --dry-run --json {NO_ENGINE}"));
    let item: Value = serde_json::from_str(planned.out().trim()).unwrap();
    assert_eq!((&item["kind"], &item["subject"], &item["place"]), (&json!("logs"), &json!(id), &json!("here")));
    let done = with_rules(&desk, rules, &format!("gc --json {NO_ENGINE}"));
    assert_eq!((done.code(), done.out()), (0, planned.out()));
    assert_eq!(with_rules(&desk, rules, &format!("gc --json {NO_ENGINE}")).out(), "");
    let log = desk.run("laneyard", &format!("logs {id} --state-dir state")).out();
    assert!(log.lines().count() <= 2 && log.contains("terminal timed-out"), "{log}");
    let attached = desk.run("laneyard", &format!("attach {id} {NO_ENGINE}"));
    assert_eq!(attached.code(), 124, "{}", attached.err());
    let whole = with_rules(&desk, "receipts = { age = \"0s\" }", &format!("gc {NO_ENGINE}")).out();
    assert!(whole.starts_with("removed  receipts  ") && whole.contains("older than 0s"), "{whole}");
    assert_eq!(desk.run("laneyard", "attempts --state-dir state").out(), "");
    assert_eq!(std::fs::read_dir(desk.path("state/attempts")).unwrap().count(), 0);
}

#[test]
fn an_undelivered_receipt_and_a_client_that_still_wants_something_keep_an_attempt() {
    let desk = Desk::new();
    let id = ended(&desk);
    let rules = "receipts = { age = \"0s\" }";
    let released = desk.path(&format!("state/attempts/{id}/released"));
    std::fs::remove_file(&released).unwrap();
    assert_eq!(with_rules(&desk, rules, &format!("gc --dry-run --json {NO_ENGINE}")).out(), "");
    std::fs::write(&released, "").unwrap();
    let client = desk.path(&format!("state/clients/{id}.json"));
    std::fs::write(&client, "").unwrap();
    assert_eq!(with_rules(&desk, rules, &format!("gc --dry-run --json {NO_ENGINE}")).out(), "");
    std::fs::remove_file(&client).unwrap();
    assert_ne!(with_rules(&desk, rules, &format!("gc --dry-run --json {NO_ENGINE}")).out(), "");
}

#[test]
fn what_a_writer_left_and_nobody_released_is_listed_and_stays_at_every_age() {
    let desk = Desk::new();
    let id = ended(&desk);
    let attempt = desk.path(&format!("state/attempts/{id}"));
    std::fs::create_dir(attempt.join("worktree")).unwrap();
    std::fs::write(attempt.join("worktree/work.txt"), "unreviewed").unwrap();
    std::fs::write(attempt.join("worktree.kept"), "worker").unwrap();
    let rules = "worktrees = { age = \"0s\" }\nreceipts = { age = \"0s\" }";
    let planned = with_rules(&desk, rules, &format!("gc --dry-run --json {NO_ENGINE}"));
    let item: Value = serde_json::from_str(planned.out().trim()).unwrap();
    assert_eq!((&item["kind"], &item["kept"]), (&json!("worktrees"), &json!(true)));
    let done = with_rules(&desk, rules, &format!("gc --json {NO_ENGINE}"));
    assert_eq!((done.code(), done.out()), (0, planned.out()));
    assert!(with_rules(&desk, rules, &format!("gc {NO_ENGINE}")).out().starts_with("kept  worktrees  "));
    assert_eq!(std::fs::read_to_string(attempt.join("worktree/work.txt")).unwrap(), "unreviewed");
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_with_its_place() {
    let desk = Desk::new();
    for (rules, said) in [("logs = { age = \"soon\" }", "`soon` is no age"), ("every = \"0s\"", "retention.every")] {
        let seen = with_rules(&desk, rules, &format!("gc {NO_ENGINE}"));
        assert_eq!(seen.code(), 64);
        assert!(seen.err().contains(said) && seen.err().contains("config.toml"), "{}", seen.err());
    }
}

/// A record as a killed client leaves it, with these reserved files.
fn leave_record(desk: &Desk, id: &str, output: &str, receipt: &str) {
    let file = |name: &str| {
        let found = std::fs::metadata(desk.path(name)).ok();
        let (dev, ino) = found.map_or((1, 1), |meta| (meta.dev(), meta.ino()));
        json!({"path": desk.path(name), "dev": dev, "ino": ino})
    };
    let record = json!({"attempt": id, "pid": 1, "executionId": "x", "controller": null, "tokenFile": null,
        "output": file(output), "receipt": file(receipt)});
    std::fs::write(desk.path(&format!("state/clients/{id}.json")), record.to_string()).unwrap();
}

#[test]
fn a_record_whose_receipt_file_is_gone_is_told_once_and_forgotten() {
    let desk = Desk::new();
    let id = ended(&desk);
    std::fs::write(desk.path("other.md"), "").unwrap();
    leave_record(&desk, &id, "other.md", "gone.json");
    let seen = desk.run("laneyard", &format!("attach {id} {NO_ENGINE}"));
    assert_eq!(seen.code(), 70);
    let kept = desk.path(&format!("state/attempts/{id}/receipt.json"));
    assert!(seen.err().contains("is gone") && seen.err().contains(kept.to_str().unwrap()), "{}", seen.err());
    assert!(kept.exists() && !desk.path("gone.json").exists());
    assert_eq!(std::fs::read_dir(desk.path("state/clients")).unwrap().count(), 0);
    let again = desk.run("laneyard", &format!("attach {id} {NO_ENGINE}"));
    assert_eq!(again.code(), 124, "{}", again.err());
}

#[test]
fn a_record_whose_output_file_alone_is_gone_still_gets_its_receipt() {
    let desk = Desk::new();
    let id = ended(&desk);
    std::fs::write(desk.path("late.json"), "").unwrap();
    leave_record(&desk, &id, "gone.md", "late.json");
    let seen = desk.run("laneyard", &format!("attach {id} {NO_ENGINE}"));
    assert_eq!(seen.code(), 124, "{}", seen.err());
    assert_eq!(desk.json("late.json")["status"], "timed-out");
    assert_eq!(std::fs::read_dir(desk.path("state/clients")).unwrap().count(), 0);
}

#[test]
fn a_cancel_of_an_ended_attempt_says_how_it_ended() {
    let desk = Desk::new();
    let id = ended(&desk);
    let seen = desk.run("laneyard", &format!("cancel {id} --state-dir state"));
    assert_eq!((seen.code(), seen.out().as_str()), (0, ""));
    assert_eq!(seen.err(), format!("attempt {id} has ended already: timed-out\n"));
}

#[test]
fn lists_have_no_trailing_blanks_and_logs_no_line_twice() {
    let desk = Desk::new();
    let id = ended(&desk);
    let list = desk.run("laneyard", "attempts --state-dir state").out();
    assert!(list.lines().all(|line| line == line.trim_end()), "{list:?}");
    let log = desk.run("laneyard", &format!("logs {id} --state-dir state")).out();
    let told: Vec<&str> = log.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap().trim()).collect();
    let mut once = told.clone();
    once.dedup();
    assert_eq!(told, once);
}

#[test]
fn help_is_a_command_too() {
    let desk = Desk::new();
    let help = desk.run("laneyard", "help");
    assert_eq!((help.code(), help.err().as_str()), (0, ""));
    assert_eq!(help.out(), desk.run("laneyard", "--help").out());
    for command in ["run", "status", "gc", "workers", "policy", "contract"] {
        let help = desk.run("laneyard", &format!("help {command}"));
        assert_eq!(help.code(), 0, "{command}: {}", help.err());
        assert!(help.out().to_lowercase().contains("usage"), "{command}: {}", help.out());
    }
    assert_eq!(desk.run("laneyard", "help nonsense").code(), 64);
    let lone = desk.run("laneyard", &format!("run {LANE} --require zone=eu {NO_ENGINE}"));
    assert_eq!(lone.code(), 64);
    assert!(lone.err().contains("require needs a controller"), "{}", lone.err());
}

#[test]
fn attach_beside_a_living_client_tells_the_end_that_it_delivers() {
    let desk = Desk::new();
    let id = ended(&desk);
    leave_record(&desk, &id, "prompt.md", "receipt.json");
    let client = Records::of(&desk.path("state")).take(id.parse().unwrap()).unwrap();
    let mut attached = desk.start("laneyard", &format!("attach {id} {NO_ENGINE}"));
    // The attempt has ended: an attach that did not wait for the client would be over within this time.
    let patience = std::time::Instant::now();
    while patience.elapsed() < std::time::Duration::from_secs(2) {
        assert!(attached.try_wait().unwrap().is_none(), "it told an end before the client had delivered one");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let receipt = deliver_conflict(&desk);
    client.forget();
    let seen = Seen(attached.wait_with_output().unwrap());
    assert_eq!((seen.code(), seen.err().lines().last().unwrap()), (70, receipt.to_string().as_str()));
}

#[test]
fn a_signal_to_attach_is_passed_on_for_this_lane_alone_and_the_end_is_waited_for() {
    use nix::sys::signal::{Signal, kill};
    let desk = Desk::new();
    let id = ended(&desk);
    leave_record(&desk, &id, "prompt.md", "receipt.json");
    // As the process in the background holds it: a signal to that one would end the lanes of others too, and this test.
    let holder = Records::of(&desk.path("state")).take_as(id.parse().unwrap(), true).unwrap();
    let mut attached = desk.start("laneyard", &format!("attach {id} {NO_ENGINE}"));
    let pid = nix::unistd::Pid::from_raw(attached.id().cast_signed());
    until(|| catches(attached.id(), 15));
    kill(pid, Signal::SIGTERM).unwrap();
    until(|| desk.path(&format!("state/clients/{id}.cancel")).exists());
    assert_eq!(desk.text(&format!("state/clients/{id}.cancel")), "SIGTERM");
    assert!(attached.try_wait().unwrap().is_none(), "the receipt is waited for");
    let mut receipt = desk.json("receipt.json");
    receipt["status"] = json!("cancelled");
    std::fs::write(desk.path("receipt.json"), receipt.to_string()).unwrap();
    holder.forget();
    let seen = Seen(attached.wait_with_output().unwrap());
    assert_eq!((seen.code(), seen.err().lines().last().unwrap()), (130, receipt.to_string().as_str()));
    assert_eq!(std::fs::read_dir(desk.path("state/clients")).unwrap().count(), 0);
}

/// True once a process has a handler for the signal.
fn catches(pid: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim).unwrap_or("0");
    u64::from_str_radix(mask, 16).unwrap() >> (signal - 1) & 1 == 1
}

fn until(mut done: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !done() {
        assert!(began.elapsed().as_secs() < 20, "it did not happen in time");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Puts another receipt of the same end into the client's file: what it delivered of it.
fn deliver_conflict(desk: &Desk) -> Value {
    let mut receipt = desk.json("receipt.json");
    receipt["status"] = json!("child-failed");
    receipt["result"] = json!({"outcome": "conflict"});
    std::fs::write(desk.path("receipt.json"), receipt.to_string()).unwrap();
    receipt
}

#[test]
fn attach_tells_the_end_that_the_client_wrote_down() {
    let desk = Desk::new();
    let id = ended(&desk);
    let receipt = deliver_conflict(&desk);
    let seen = desk.run("laneyard", &format!("attach {id} {NO_ENGINE}"));
    assert_eq!((seen.code(), seen.err().lines().last().unwrap()), (70, receipt.to_string().as_str()));
    let mut other = receipt;
    other["attempt"] = json!("of another lane");
    std::fs::write(desk.path("receipt.json"), other.to_string()).unwrap();
    let seen = desk.run("laneyard", &format!("attach {id} {NO_ENGINE}"));
    assert_eq!(seen.code(), 124, "{}", seen.err());
}

#[test]
fn everyday_commands_apply_the_rules_from_time_to_time_in_the_background() {
    let desk = Desk::new();
    let id = ended(&desk);
    let log = desk.path(&format!("state/attempts/{id}/events.jsonl"));
    let gone = || std::fs::read_to_string(&log).unwrap().contains("\"gap\"");
    let stamp = || desk.path("state/tidied").metadata().unwrap().modified().unwrap();
    let first = stamp();
    let rules = "logs = { age = \"0s\" }\nreceipts = { age = \"forever\" }";
    with_rules(&desk, &format!("every = \"1h\"\n{rules}"), "attempts --state-dir state");
    assert_eq!(stamp(), first, "the hour is not over: nothing was started");
    assert!(!gone());
    let listed = with_rules(&desk, &format!("every = \"1ms\"\n{rules}"), "attempts --state-dir state");
    assert!(listed.out().contains(&id), "{}", listed.out());
    assert!(stamp() > first);
    let began = std::time::Instant::now();
    while !gone() {
        assert!(began.elapsed().as_secs() < 20, "the log of an ended attempt is still there");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let attached = desk.run("laneyard", &format!("attach {id} {NO_ENGINE}"));
    assert_eq!(attached.code(), 124, "its receipt stays: {}", attached.err());
}

#[test]
fn a_list_says_what_the_caller_was_given_and_what_waits_for_a_client_that_is_gone() {
    let desk = Desk::new();
    let id = ended(&desk);
    let listed = || {
        let text = desk.run("laneyard", "attempts --state-dir state").out().trim_end().to_owned();
        let value = desk.run("laneyard", "attempts --json --state-dir state").out();
        (text, serde_json::from_str::<Value>(&value).unwrap())
    };
    let (text, value) = listed();
    assert!(text.contains("  timed-out  ") && !text.contains(';'), "{text}");
    assert_eq!((&value["state"], &value["delivered"]), (&json!("timed-out"), &json!("timed-out")));

    // As a client leaves it that died; this one's, nobody can finish in the background.
    let record = desk.path(&format!("state/clients/{id}.json"));
    std::fs::write(&record, "").unwrap();
    let (text, value) = listed();
    assert!(text.ends_with(&format!("not delivered yet: laneyard attach {id}")), "{text}");
    assert_eq!((&value["state"], &value["delivered"]), (&json!("timed-out"), &Value::Null));
    std::fs::remove_file(record).unwrap();

    // As after an answer that could not be written.
    let state = agent::attempt::directory::StateDir::open(&desk.path("state")).unwrap();
    state.note_delivered(id.parse().unwrap(), agent::receipt::Status::ChildFailed).unwrap();
    let (text, value) = listed();
    assert!(text.contains("  child-failed  ") && text.ends_with("the worker ended it as timed-out"), "{text}");
    assert_eq!((&value["state"], &value["delivered"]), (&json!("timed-out"), &json!("child-failed")));

    // In the state directory of an agent, clients are elsewhere: nothing is claimed of them.
    std::fs::remove_file(desk.path(&format!("state/attempts/{id}/delivered"))).unwrap();
    std::fs::write(desk.path("state/agent.lock"), "").unwrap();
    assert_eq!(listed().1["delivered"], Value::Null);
}
