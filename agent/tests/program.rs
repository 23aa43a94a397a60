//! `laneyard-agent` as its caller sees it: exit codes, and errors that say each thing once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

fn agent(home: &Path, words: &[&str]) -> (Option<i32>, String) {
    agent_with(home, words, &[])
}

fn agent_with(home: &Path, words: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneyard-agent"));
    command.args(words).env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
    let Output { status, stderr, .. } = command.envs(variables.iter().copied()).output().unwrap();
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
    assert!(last.starts_with("error: cannot join: "), "{last}");
    let before: Vec<&str> = said.lines().filter(|line| *line != last).collect();
    assert_eq!(before.len(), 4, "{said}");
    for (line, number) in before.iter().zip(2..) {
        assert!(line.ends_with(&format!("; asking again, try {number} of 5")), "words, and no lines of a log: {said}");
    }
}

#[test]
fn a_configuration_that_cannot_be_used_ends_with_64_names_the_place_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.toml");
    let names = || -> BTreeSet<_> { std::fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect() };
    let value = "the configuration file";
    for (text, parts) in [
        ("engin = \"docker\"\n", [value, "engin"]),
        ("engine = \"podmann\"\n", [value, "podmann"]),
        ("[worker\n", [value, "malformed"]),
        ("[worker]\ncapacity = 0\n", [value, "`worker.capacity` must be 1 to 10000"]),
        ("[controller]\nurl = \"http://10.0.0.1:7410\"\n", [value, "`controller.url` cannot be used"]),
        ("[controller]\nurl = \"https://localhost:1\"\n", ["no credential for the controller", "--token-file"]),
        ("[controller]\nurl = \"http://127.0.0.1:1\"\ntoken-file = \"absent\"\n", ["the token file", "absent"]),
    ] {
        std::fs::write(&file, text).unwrap();
        let before = names();
        let (code, said) = agent_with(home.path(), &["run"], &[("LANEYARD_CONFIG", file.to_str().unwrap())]);
        assert_eq!(code, Some(64), "{text}: {said}");
        for part in parts {
            assert!(said.contains(part), "{text}: {said}");
        }
        assert_eq!(names(), before, "{text}");
    }
    std::fs::remove_file(&file).unwrap();
    let pin = format!("sha256:{}", "0".repeat(64));
    let token = "ly_0123456789abcdef_0123456789abcdef";
    let join = ["join", "https://127.0.0.1:1", "--ca-fingerprint", &pin, "--name", "w1", "--token", token];
    for words in [&["run"][..], &join] {
        let (code, said) = agent_with(home.path(), words, &[("LANEYARD_CONFIG", file.to_str().unwrap())]);
        assert_eq!(code, Some(64), "a file that is named and not there: {said}");
        assert!(said.contains("could not read the configuration file"), "{said}");
    }
    let (code, said) = agent_with(home.path(), &["run"], &[("LANEYARD_CONTROLLER", "http://10.0.0.1:1")]);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("LANEYARD_CONTROLLER") && !said.contains("``"), "{said}");
    std::fs::write(&file, "[controller]\nurl = \"https://localhost:1\"\n").unwrap();
    let variables = [("LANEYARD_CONFIG", file.to_str().unwrap()), ("LANEYARD_CONTROLLER", "ftp://x")];
    let (code, said) = agent_with(home.path(), &["run"], &variables);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("`LANEYARD_CONTROLLER` cannot be used") && !said.contains("config.toml"), "{said}");
    std::fs::remove_file(&file).unwrap();
    assert!(names().is_empty(), "{:?}", names());
}
