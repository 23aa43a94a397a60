//! The misbehaving fake provider speaks well enough for the real drivers, and misbehaves as it is told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Output, Stdio};

use agent::descriptor::{Contract, Effort, Mode, Parent, Provider};
use agent::driver::{self, ChildExit, InnerState, Lane, Stdin, StepResult, Verdict};
use agent::receipt::Status;
use tempfile::TempDir;

fn lane(provider: Provider, model: &str, prompt: &str) -> Lane {
    Lane {
        parent: Parent::Claude,
        provider,
        model: model.to_owned(),
        effort: Effort::High,
        mode: Mode::ReadOnly,
        contract: Contract::Legacy,
        api_spend: None,
        cwd: "/".to_owned(),
        home: "/home/lane".to_owned(),
        receipt: "/receipt.json".to_owned(),
        prompt: prompt.as_bytes().to_vec(),
        environment: driver::Environment::new(),
    }
}

/// Runs one command of the driver's with the fake as its executable.
fn run(name: &str, argv: &[String], input: &[u8], dir: &TempDir) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-provider"));
    command.arg0(name).args(&argv[1..]).current_dir(dir.path()).env_clear();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input); // some do not read it
    child.wait_with_output().unwrap()
}

fn play(provider: Provider, model: &str, prompt: &str) -> (Output, Verdict) {
    let (lane, driver) = (lane(provider, model, prompt), driver::require(provider).unwrap());
    let step = driver.workload(&lane, driver.executable(), InnerState::ContainerOnly);
    let Stdin::Bytes(input) = step.stdin else { panic!("no prompt") };
    let output = run(driver.executable(), &step.argv, &input, &TempDir::new().unwrap());
    let mut transcript = driver.transcript(&lane);
    let mut events = Vec::new();
    transcript.stdout(&output.stdout, &mut events);
    transcript.stderr(&output.stderr, &mut events);
    let exit = output.status.code().map_or(ChildExit::Unknown, ChildExit::Code);
    (output, transcript.finish(exit, &mut events).verdict)
}

fn delivered(provider: Provider, model: &str, prompt: &str) -> String {
    match play(provider, model, prompt).1 {
        Verdict::Delivered(answer) => answer.text,
        other => panic!("{prompt}: {other:?}"),
    }
}

fn failed(provider: Provider, model: &str, prompt: &str) -> Status {
    match play(provider, model, prompt).1 {
        Verdict::Failed { status, .. } => status,
        other => panic!("{prompt}: {other:?}"),
    }
}

const BOTH: [(Provider, &str); 2] = [(Provider::Claude, "opus"), (Provider::Codex, "gpt-5.6-sol")];

#[test]
fn the_drivers_accept_its_answers() {
    for (provider, model) in BOTH {
        assert_eq!(delivered(provider, model, "do something"), "fake answer");
        assert_eq!(delivered(provider, model, "fake-provider: says a \"b\" \\n c"), "a \"b\" \n c");
        assert_eq!(delivered(provider, model, "fake-provider: floods 3000000\nfake-provider: says x"), "x");
        assert_eq!(delivered(provider, model, "fake-provider: long-line 5000000"), "fake answer");
    }
}

#[test]
fn the_drivers_refuse_what_is_wrong() {
    for (provider, model) in BOTH {
        assert_eq!(failed(provider, model, "fake-provider: noise not json"), Status::MalformedOutput);
        assert_eq!(failed(provider, model, "fake-provider: no-result"), Status::MalformedOutput);
        assert_eq!(failed(provider, model, "fake-provider: fails it broke"), Status::ChildFailed);
        assert_eq!(failed(provider, model, "fake-provider: exits 3"), Status::ChildFailed);
    }
    assert_eq!(failed(Provider::Claude, "opus", "fake-provider: reports claude-haiku-5"), Status::MalformedOutput);
}

#[test]
fn preflights_pass_unless_the_script_says_otherwise() {
    let dir = TempDir::new().unwrap();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (lane, driver) = (lane(Provider::Codex, "gpt-5.6-sol", ""), driver::require(Provider::Codex).unwrap());
    for passes in [true, false] {
        let output = run("codex", &words("codex login status"), b"", &dir);
        let exit = ChildExit::Code(output.status.code().unwrap());
        let result = StepResult { exit, stdout: output.stdout, stderr: output.stderr };
        let verdict = driver.judge_preflight(&lane, &result);
        assert_eq!(matches!(verdict, driver::PreflightVerdict::Passed { .. }), passes, "{verdict:?}");
        fs::write(dir.path().join(".fake-provider"), "preflight-says Not logged in\npreflight-exits 1\n").unwrap();
    }
    fs::remove_file(dir.path().join(".fake-provider")).unwrap();
    let version = run("claude", &words("claude --version"), b"", &dir);
    assert_eq!(version.stdout, b"2.1.332 (Claude Code)\n");
}

#[test]
fn it_misbehaves_as_it_is_told() {
    let dir = TempDir::new().unwrap();
    let told = |line: &str, input: &[u8]| {
        fs::write(dir.path().join(".fake-provider"), line).unwrap();
        run("claude", &["claude".to_owned()], input, &dir)
    };
    assert_eq!(told("dies 9", b"").status.signal(), Some(9));
    assert_eq!(told("ignores-stdin\nexits 4", &[b'x'; 1 << 20]).status.code(), Some(4));
    assert_eq!(told("no such thing", b"").status.code(), Some(70));
    let odd = told("non-utf8", b"");
    assert!(String::from_utf8(odd.stdout).is_err() && String::from_utf8(odd.stderr).is_err());
    let early = told("closes-stdout-early 10", b"");
    assert!(early.stdout.ends_with(b"}\n") && early.stderr == b"late words\n");
    let both = told("appends count one\nappends count two\nwrites new here", b"");
    assert!(both.status.success());
    assert_eq!(fs::read(dir.path().join("count")).unwrap(), b"one\ntwo\n");
    assert_eq!(fs::read(dir.path().join("new")).unwrap(), b"here\n");
    let daemons = told("forks-daemons 0\neats-memory 1000000\nfloods-stderr 1000", b"");
    assert_eq!(daemons.stderr.len(), 1000);
}
