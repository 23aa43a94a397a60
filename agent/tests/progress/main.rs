//! Progress as an outsider sees it: real files, a scripted process table, every verdict.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod writing;

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use agent::descriptor::Provider;
use agent::event::{Settled, SettledCause, SettledOutcome};
use agent::progress::probe::Probe;
use agent::progress::{
    Change, ChildRole, FileRef, LaneView, Phase, Signal, State, lane_view, lanes_json, render, text_line,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;
use time::macros::datetime;

const START: OffsetDateTime = datetime!(2026-10-01 10:00:00 UTC);
const NOW: OffsetDateTime = datetime!(2026-10-01 10:01:05 UTC);
const ID: &str = "0199aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";
const TOKEN: &str = "Thu Oct  1 09:59:59 2026";

struct Lane {
    dir: TempDir,
}

impl Lane {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }
    fn progress(&self) -> PathBuf {
        self.dir.path().join("progress.json")
    }
    fn receipt(&self) -> PathBuf {
        self.dir.path().join("receipt.json")
    }
    fn state(&self) -> State {
        let receipt = FileRef::at(&self.receipt());
        let mut state = State::new(ID.to_owned(), Provider::Codex, START, receipt);
        state.runner_pid = 4_242;
        state.runner_token = Some(TOKEN.to_owned());
        state
    }
    fn reserve(&self) -> &Self {
        std::fs::write(self.receipt(), "").unwrap();
        self
    }
    fn write(&self, state: &State) {
        std::fs::write(self.progress(), state.encode(7, NOW)).unwrap();
    }
    fn finish(&self, status: &str) {
        std::fs::write(self.receipt(), json!({"schemaVersion": 2, "status": status}).to_string()).unwrap();
    }
    fn view(&self, mut probe: impl FnMut(u64) -> Probe) -> LaneView {
        lane_view(&self.progress(), &self.receipt(), &mut probe)
    }
    fn changed(&self, changes: &[Change]) -> State {
        let mut state = self.state();
        for change in changes {
            state.apply(change, datetime!(2026-10-01 10:00:30 UTC));
        }
        state
    }
}

fn live(_: u64) -> Probe {
    Probe::Token(TOKEN.to_owned())
}
fn absent(_: u64) -> Probe {
    Probe::Absent
}
fn spawned(role: ChildRole) -> Change {
    Change::Spawned { role, pid: 77 }
}
fn exited(code: u64) -> Change {
    Change::Exited { role: ChildRole::Workload, exit_code: Some(code) }
}
fn settled(outcome: SettledOutcome, cause: SettledCause) -> Change {
    Change::ChildSettled(Settled { outcome, cause })
}

#[track_caller]
fn check(view: &LaneView, line: &str, key: &str) {
    let rendered = render(view, NOW);
    assert_eq!((rendered.line.as_str(), rendered.change_key.as_str()), (line, key));
}

#[test]
fn a_snapshot_has_its_documented_keys_in_order() {
    let lane = Lane::new();
    let mut state = lane.changed(&[
        spawned(ChildRole::Workload),
        Change::Bytes { stdout: 10, stderr: 2 },
        Change::CancelRequested(Signal::Term),
        exited(143),
        settled(SettledOutcome::SignalledAndExited, SettledCause::Cancel),
        Change::Terminal { receipt_written: true },
    ]);
    state.receipt = Some(FileRef { dev: 1, ino: 2 });
    insta::assert_snapshot!(state.encode(3, NOW), @r#"{"schemaVersion":1,"kind":"pstack-runner-progress","seq":3,"updatedAt":"2026-10-01T10:01:05.000Z","phase":"terminal","attemptId":"0199aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee","provider":"codex","runner":{"pid":4242,"startedAt":"2026-10-01T10:00:00.000Z","startToken":"Thu Oct  1 09:59:59 2026"},"child":{"role":"workload","pid":77,"startToken":null,"running":false,"exitCode":143,"drained":false},"retryWait":false,"activity":{"stdoutBytes":10,"stderrBytes":2,"lastActivityAt":"2026-10-01T10:00:30.000Z"},"cancellation":{"requested":{"signal":"SIGTERM","at":"2026-10-01T10:00:30.000Z"}},"childSettled":{"outcome":"signalled-and-exited","cause":"cancel","at":"2026-10-01T10:00:30.000Z"},"terminal":{"at":"2026-10-01T10:00:30.000Z","receiptWritten":true},"receiptRef":{"dev":1,"ino":2}}"#);
}

#[test]
fn the_phase_follows_the_child() {
    let lane = Lane::new();
    let phases = |changes: &[Change]| lane.changed(changes).phase();
    let drained = Change::Drained { role: ChildRole::Workload };
    assert_eq!(phases(&[]), Phase::Setup);
    assert_eq!(phases(&[spawned(ChildRole::Preflight)]), Phase::Preflight);
    let gone = Change::Exited { role: ChildRole::Preflight, exit_code: Some(1) };
    assert_eq!(phases(&[spawned(ChildRole::Preflight), gone.clone()]), Phase::Preflight);
    assert_eq!(phases(&[spawned(ChildRole::Preflight), gone, Change::RetryWait(true)]), Phase::PreflightRetryWait);
    assert_eq!(phases(&[Change::RetryWait(true), spawned(ChildRole::Preflight)]), Phase::Preflight);
    assert_eq!(phases(&[spawned(ChildRole::Workload)]), Phase::WorkloadRunning);
    assert_eq!(phases(&[spawned(ChildRole::Workload), drained.clone()]), Phase::WorkloadRunning);
    assert_eq!(phases(&[spawned(ChildRole::Workload), exited(0)]), Phase::WorkloadDraining);
    assert_eq!(phases(&[spawned(ChildRole::Workload), exited(0), drained]), Phase::Postprocess);
    assert_eq!(phases(&[Change::Terminal { receipt_written: true }, spawned(ChildRole::Workload)]), Phase::Terminal);
}

#[test]
fn a_second_cancel_and_the_exit_of_a_replaced_child_change_nothing() {
    let lane = Lane::new();
    let state = lane.changed(&[
        Change::CancelRequested(Signal::Int),
        Change::CancelRequested(Signal::Term),
        spawned(ChildRole::Preflight),
        spawned(ChildRole::Workload),
        Change::Exited { role: ChildRole::Preflight, exit_code: Some(9) },
    ]);
    assert_eq!(state.cancel.unwrap().0, Signal::Int);
    assert!(state.child.unwrap().running);
    let mut waiting = lane.changed(&[spawned(ChildRole::Preflight)]);
    assert!(!waiting.apply(&Change::Bytes { stdout: 5, stderr: 5 }, NOW), "only workload bytes count");
}

#[test]
fn a_receipt_decides_with_or_without_a_snapshot() {
    let lane = Lane::new();
    lane.finish("complete");
    check(&lane.view(absent), "terminal complete (from receipt)", "terminal|complete|false||");
    lane.write(&lane.state());
    check(&lane.view(absent), "terminal complete (from receipt) elapsed unknown", "terminal|complete|false||");
    lane.write(&lane.changed(&[Change::Terminal { receipt_written: true }]));
    check(&lane.view(absent), "terminal complete (from receipt) elapsed 30s", "terminal|complete|true||");
}

#[test]
fn a_cancelled_receipt_says_what_is_proven() {
    let lane = Lane::new();
    lane.finish("cancelled");
    let end = Change::Terminal { receipt_written: true };
    lane.write(&lane.changed(std::slice::from_ref(&end)));
    check(
        &lane.view(absent),
        "terminal cancelled (from receipt) elapsed 30s cancellation confirmed, no child launched descendants not verified",
        "terminal|cancelled|true||",
    );
    let both = [
        spawned(ChildRole::Workload),
        exited(143),
        settled(SettledOutcome::SignalledAndExited, SettledCause::Cancel),
        end,
    ];
    lane.write(&lane.changed(&both));
    check(
        &lane.view(absent),
        "terminal cancelled (from receipt) elapsed 30s cancellation confirmed, direct child settled descendants not verified",
        "terminal|cancelled|true|false|signalled-and-exited",
    );
    lane.write(&lane.changed(&both[..1]));
    check(
        &lane.view(absent),
        "terminal cancelled (from receipt) elapsed unknown cancellation recorded, child settlement unverified descendants not verified",
        "terminal|cancelled|false|true|",
    );
}

#[test]
fn without_a_snapshot_only_the_reservation_speaks() {
    let lane = Lane::new();
    check(&lane.view(absent), "unknown: no progress or receipt yet not a failure verdict", "unknown|missing|");
    lane.reserve();
    check(
        &lane.view(absent),
        "unknown: receipt reserved, no progress yet not a failure verdict",
        "unknown|not-started|",
    );
}

#[test]
fn a_finished_snapshot_without_a_receipt_is_no_verdict() {
    let lane = Lane::new();
    lane.reserve().write(&lane.changed(&[Change::Terminal { receipt_written: false }]));
    check(
        &lane.view(live),
        "unknown: runner exited without a receipt not a failure verdict",
        "unknown|terminal-without-receipt|false",
    );
    lane.write(&lane.changed(&[Change::Terminal { receipt_written: true }]));
    check(
        &lane.view(live),
        "unknown: runner marked finished but the receipt is unreadable not a failure verdict",
        "unknown|terminal-without-receipt|true",
    );
}

#[test]
fn an_unproven_launcher_is_never_called_dead() {
    let lane = Lane::new();
    let mut state = lane.reserve().changed(&[spawned(ChildRole::Workload), Change::CancelRequested(Signal::Int)]);
    state.runner_token = None;
    lane.write(&state);
    check(
        &lane.view(|_| panic!("no token, no probe")),
        "unknown: launcher identity unverified; last observed workload-running not a failure verdict elapsed 1m05s last observed direct child running cancel SIGINT requested, confirmation requires receipt descendants not verified backend progress unknown; quiet is not failure",
        "unknown|launcher-unverified||workload-running|true||false|SIGINT|",
    );
    lane.write(&lane.changed(&[spawned(ChildRole::Workload), exited(0)]));
    check(
        &lane.view(|_| Probe::Unverified),
        "unknown: launcher identity unverified; last observed workload-draining not a failure verdict elapsed 1m05s last observed direct child exited backend progress unknown; quiet is not failure",
        "unknown|launcher-unverified||workload-draining|false|0|false||",
    );
}

#[test]
fn a_live_launcher_is_active_and_says_what_it_saw() {
    let lane = Lane::new();
    lane.reserve().write(&lane.state());
    check(
        &lane.view(live),
        "setup 1m05s · no output observed yet · runner present · backend progress unknown; quiet is not failure",
        "active|setup||||live|||",
    );
    lane.write(&lane.changed(&[spawned(ChildRole::Workload), Change::Bytes { stdout: 3 << 20, stderr: 1 }]));
    check(
        &lane.view(live),
        "workload-running 1m05s · last observed direct child running · last output 35s ago (3 MB) · runner present · backend progress unknown; quiet is not failure",
        "active|workload-running|true||false|live|||",
    );
    lane.write(&lane.changed(&[spawned(ChildRole::Workload), exited(3), Change::CancelRequested(Signal::Term)]));
    check(
        &lane.view(live),
        "workload-draining 1m05s · child exited 3, pipe open · no output observed yet · runner present · cancel SIGTERM requested, unconfirmed · descendants not verified · backend progress unknown; quiet is not failure",
        "active|workload-draining|false|3|false|live|SIGTERM||",
    );
}

#[test]
fn a_settled_child_is_named_by_its_cause() {
    let lane = Lane::new();
    lane.reserve();
    for (cancel, outcome, words) in [
        (
            true,
            SettledOutcome::SignalledAndExited,
            "cancel requested, direct child signalled and exited · descendants not verified",
        ),
        (true, SettledOutcome::AlreadyExited, "cancel requested, child had already exited · descendants not verified"),
        (false, SettledOutcome::SignalledAndExited, "deadline: direct child signalled and exited"),
        (false, SettledOutcome::AlreadyExited, "deadline: child had already exited"),
    ] {
        let cause = if cancel { SettledCause::Cancel } else { SettledCause::Deadline };
        let mut changes = vec![spawned(ChildRole::Workload), exited(0), settled(outcome, cause)];
        if cancel {
            changes.push(Change::CancelRequested(Signal::Int));
        }
        lane.write(&lane.changed(&changes));
        let line = render(&lane.view(live), NOW).line;
        assert!(line.contains(&format!(" · runner present · {words} · backend")), "{line}");
    }
}

#[test]
fn a_gone_launcher_is_interrupted_and_its_child_judged_by_token() {
    let lane = Lane::new();
    let mut state = lane.reserve().changed(&[spawned(ChildRole::Workload)]);
    state.child.as_mut().unwrap().start_token = Some("child".to_owned());
    lane.write(&state);
    let child_is = |answer: Probe| lane.view(move |pid| if pid == 77 { answer.clone() } else { Probe::Absent });
    check(
        &child_is(Probe::Token("child".to_owned())),
        "interrupted: launcher gone · last phase workload-running · direct child may still be running · not a failure verdict",
        "interrupted|launcher-gone|possibly-running|workload-running",
    );
    for (answer, word) in
        [(Probe::Absent, "gone"), (Probe::Token("other".to_owned()), "reused"), (Probe::Unverified, "unverified")]
    {
        let line = render(&child_is(answer), NOW).line;
        assert!(line.contains(&format!(" · direct child {word} · ")), "{line}");
    }
    lane.write(&lane.state());
    check(
        &lane.view(|_| Probe::Token("a later process".to_owned())),
        "interrupted: launcher pid reused · last phase setup · not a failure verdict",
        "interrupted|pid-reused|none|setup",
    );
    lane.write(&lane.changed(&[spawned(ChildRole::Workload), exited(0)]));
    check(
        &lane.view(absent),
        "interrupted: launcher gone · last phase workload-draining · direct child exited · not a failure verdict",
        "interrupted|launcher-gone|exited|workload-draining",
    );
}

#[test]
fn a_receipt_written_while_the_probe_ran_is_found() {
    let lane = Lane::new();
    lane.reserve().write(&lane.state());
    let view = lane.view(|_| {
        lane.finish("complete");
        Probe::Absent
    });
    assert_eq!(view.kind(), "terminal");
}

#[test]
fn a_receipt_in_another_file_than_the_reserved_one_is_not_believed() {
    let lane = Lane::new();
    lane.reserve().write(&lane.state());
    let other = lane.dir.path().join("other");
    std::fs::write(&other, r#"{"schemaVersion":2,"status":"complete"}"#).unwrap();
    std::fs::rename(&other, lane.receipt()).unwrap();
    assert_eq!(lane.view(live).kind(), "active");
}

#[test]
fn only_schema_1_and_2_with_a_known_status_count() {
    let lane = Lane::new();
    for (text, kind) in [
        (r#"{"schemaVersion":1,"status":"complete"}"#, "terminal"),
        (r#"{"schemaVersion":3,"status":"complete"}"#, "unknown"),
        (r#"{"schemaVersion":2,"status":"done"}"#, "unknown"),
        (r#"{"schemaVersion":"2","status":"complete"}"#, "unknown"),
        (r#"{"schemaVersion":2,"status":"complete""#, "unknown"),
    ] {
        std::fs::write(lane.receipt(), text).unwrap();
        assert_eq!(lane.view(absent).kind(), kind, "{text}");
    }
    std::fs::write(
        lane.receipt(),
        format!(r#"{{"schemaVersion":2,"status":"complete","x":"{}"}}"#, "x".repeat(262_144)),
    )
    .unwrap();
    assert_eq!(lane.view(absent).kind(), "unknown");
}

#[track_caller]
fn unusable(lane: &Lane, reason: &str) {
    let view = lane.view(|_| panic!("nothing to probe"));
    check(
        &view,
        &format!("unknown: progress unreadable ({reason}) not a failure verdict"),
        &format!("unknown|{reason}|"),
    );
}

#[test]
fn links_pipes_and_directories_are_not_snapshots() {
    let lane = Lane::new();
    lane.reserve();
    let real = lane.dir.path().join("real");
    std::fs::write(&real, lane.state().encode(1, NOW)).unwrap();
    symlink(&real, lane.progress()).unwrap();
    unusable(&lane, "not-regular-file");
    std::fs::remove_file(lane.progress()).unwrap();
    nix::unistd::mkfifo(&lane.progress(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    unusable(&lane, "not-regular-file");
    std::fs::remove_file(lane.progress()).unwrap();
    std::fs::create_dir(lane.progress()).unwrap();
    unusable(&lane, "not-regular-file");
}

#[test]
fn oversize_and_malformed_snapshots_are_refused_without_an_echo() {
    let lane = Lane::new();
    lane.reserve();
    std::fs::write(lane.progress(), "x".repeat(8_193)).unwrap();
    unusable(&lane, "oversize");
    let good: Value = serde_json::from_str(
        &lane.changed(&[spawned(ChildRole::Workload), Change::CancelRequested(Signal::Int)]).encode(1, NOW),
    )
    .unwrap();
    std::fs::write(lane.progress(), good.to_string()).unwrap();
    assert_eq!(lane.view(live).kind(), "active");
    for (pointer, bad) in [
        ("/kind", json!("CANARY")),
        ("/schemaVersion", json!(2)),
        ("/seq", json!(-1)),
        ("/seq", json!(1.5)),
        ("/seq", json!(9_007_199_254_740_992_u64)),
        ("/updatedAt", json!("2026-10-01T10:01:05.000Z CANARY")),
        ("/updatedAt", json!("2026-10-01T10:01:05Z")),
        ("/updatedAt", json!("2026-02-30T10:01:05.000Z")),
        ("/updatedAt", json!("2026-10-01T12:01:05.000+02:00")),
        ("/phase", json!("running")),
        ("/attemptId", json!("not-a-uuid")),
        ("/provider", json!("toString")),
        ("/runner", json!(null)),
        ("/runner/pid", json!(0)),
        ("/runner/startToken", json!("a\nb")),
        ("/runner/startToken", json!("x".repeat(129))),
        ("/child", json!([])),
        ("/child/role", json!("export")),
        ("/child/exitCode", json!(-1)),
        ("/child/running", json!("yes")),
        ("/retryWait", json!(0)),
        ("/activity/stdoutBytes", json!("1")),
        ("/activity/lastActivityAt", json!(0)),
        ("/cancellation", json!({})),
        ("/cancellation/requested/signal", json!("SIGKILL")),
        ("/childSettled", json!({"outcome": "gone", "cause": "cancel", "at": "2026-10-01T10:01:05.000Z"})),
        ("/terminal", json!({"at": "2026-10-01T10:01:05.000Z"})),
        ("/receiptRef", json!({"dev": 1})),
    ] {
        let mut value = good.clone();
        *value.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = bad.clone();
        std::fs::write(lane.progress(), value.to_string()).unwrap();
        let view = lane.view(live);
        assert_eq!(view.kind(), "unknown", "{pointer} = {bad}");
        assert!(!format!("{}{}", text_line(1, &view, NOW), lanes_json(&[view], NOW)).contains("CANARY"));
    }
    let mut missing = good;
    missing.as_object_mut().unwrap().remove("child");
    std::fs::write(lane.progress(), missing.to_string()).unwrap();
    unusable(&lane, "undecodable");
}

#[test]
fn lines_are_labelled_by_number_provider_and_attempt() {
    let lane = Lane::new();
    assert!(text_line(2, &lane.view(absent), NOW).starts_with("L2 unknown: "));
    lane.reserve().write(&lane.state());
    assert!(text_line(1, &lane.view(live), NOW).starts_with("L1 codex:0199aaaa setup 1m05s"));
}

#[test]
fn json_lists_the_documented_keys_of_each_kind() {
    let lane = Lane::new();
    lane.reserve().write(&lane.changed(&[
        spawned(ChildRole::Workload),
        exited(0),
        Change::CancelRequested(Signal::Int),
        settled(SettledOutcome::AlreadyExited, SettledCause::Cancel),
    ]));
    let other = Lane::new();
    let views = [lane.view(live), lane.view(absent), other.view(absent)];
    insta::assert_snapshot!(lanes_json(&views, NOW), @r#"{"schemaVersion":1,"lanes":[{"lane":1,"provider":"codex","attemptId":"0199aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee","kind":"active","updatedAt":"2026-10-01T10:01:05.000Z","seq":7,"line":"workload-draining 1m05s · child exited 0, pipe open · no output observed yet · runner present · cancel requested, child had already exited · descendants not verified · backend progress unknown; quiet is not failure","changeKey":"0199aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee|active|workload-draining|false|0|false|live|SIGINT|already-exited|cancel","elapsedMs":65000,"cancellation":{"requested":{"signal":"SIGINT"},"childSettled":{"outcome":"already-exited","cause":"cancel"}},"phase":"workload-draining","launcher":"live","retryWait":false,"child":{"role":"workload","running":false,"exitCode":0,"drained":false},"activity":{"stdoutBytes":0,"stderrBytes":0,"lastActivityAt":null}},{"lane":2,"provider":"codex","attemptId":"0199aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee","kind":"interrupted","updatedAt":"2026-10-01T10:01:05.000Z","seq":7,"line":"interrupted: launcher gone · last phase workload-draining · direct child exited · not a failure verdict","changeKey":"0199aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee|interrupted|launcher-gone|exited|workload-draining","elapsedMs":65000,"cancellation":{"requested":"SIGINT","childSettled":"already-exited","confirmed":false},"reason":"launcher-gone","child":"exited","phase":"workload-draining"},{"lane":3,"provider":null,"attemptId":null,"kind":"unknown","updatedAt":null,"seq":null,"line":"unknown: no progress or receipt yet not a failure verdict","changeKey":"3|unknown|missing|","elapsedMs":null,"cancellation":null,"reason":"missing","receiptWritten":null,"phase":null}]}"#);
}
