//! `laneyard-agent` as its caller sees it: exit codes, and errors that say each thing once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::{Command, Output};

fn agent(home: &std::path::Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneyard-agent"));
    let Output { status, stderr, .. } =
        command.args(words).env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_callers_mistake_ends_with_64_and_a_failure_with_70() {
    let home = tempfile::tempdir().unwrap();
    let pin = format!("sha256:{}", "0".repeat(64));
    let join = ["join", "https://127.0.0.1:1", "--ca-fingerprint", &pin, "--name", "w1", "--token"];
    for (words, expected, part) in [
        (&["nonsense"][..], 64, "nonsense"),
        (&["run", "--nope"], 64, "--nope"),
        (&["run", "--capacity", "0"], 64, "capacity"),
        (&["run"], 64, "has not joined a controller"),
        (&[&join[..], &["short"]].concat(), 64, "--token is no token"),
        (&["--help"], 0, ""),
        (&[&join[..], &["ly_0123456789abcdef_0123456789abcdef"]].concat(), 70, "cannot join"),
    ] {
        let (code, said) = agent(home.path(), words);
        assert_eq!(code, Some(expected), "{words:?}: {said}");
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn an_error_says_each_cause_once() {
    let home = tempfile::tempdir().unwrap();
    let pin = format!("sha256:{}", "0".repeat(64));
    let token = "ly_0123456789abcdef_0123456789abcdef";
    let words = ["join", "https://127.0.0.1:1", "--ca-fingerprint", &pin, "--name", "w1", "--token", token];
    let (_, said) = agent(home.path(), &words);
    let last = said.lines().last().unwrap();
    assert_eq!(last.matches("no answer from the controller").count(), 1, "{last}");
    assert_eq!(last.matches("onnection refused").count(), 1, "{last}");
}
