//! Speed of the policy helper: a whole `policy next` process against an empty Rust program in the same, interleaved
//! runs (goal: at most 1.5 times), and the time to parse a sheet of one megabyte (goal: under 20 ms).
//! Run with `cargo bench -p controller --bench policy`; prints medians and ratios.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run says so by a panic")]

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use controller::policy::sheet::Sheet;

const ROUNDS: usize = 400;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    processes(directory.path());
    megabyte();
}

fn processes(directory: &Path) {
    fs::write(directory.join("empty.rs"), "fn main() {}\n").unwrap();
    let empty = directory.join("empty");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args(["-C", "opt-level=3", "-C", "strip=symbols", "-o"])
        .args([&empty, &directory.join("empty.rs")])
        .status();
    assert!(built.unwrap().success(), "the empty program does not build");
    let sheet = sheet(15);
    fs::write(directory.join("sheet.md"), sheet).unwrap();
    let state =
        r#"{"events":[{"attemptIndex":0,"status":"usage-exhausted","processStarted":false}],"access":"read-only"}"#;
    fs::write(directory.join("state.json"), state).unwrap();

    let next = |program: &str, word: &[&str]| {
        let mut command = Command::new(program);
        command.args(word).args(["next", "--sheet", "sheet.md", "--role", "swarm workers"]);
        command.args(["--parent", "codex", "--state", "state.json"]).current_dir(directory);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        command
    };
    let mut helper = next(env!("CARGO_BIN_EXE_pstack-model-policy"), &[]);
    let mut subcommand = next(env!("CARGO_BIN_EXE_laneyard"), &["policy"]);

    let (mut of_empty, mut of_helper, mut of_subcommand) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_empty.push(timed(Command::new(&empty).current_dir(directory)));
        of_helper.push(timed(&mut helper));
        of_subcommand.push(timed(&mut subcommand));
    }
    let empty = median(&mut of_empty);
    eprintln!("empty program: median {empty:?}");
    for (what, times) in [("pstack-model-policy next", &mut of_helper), ("laneyard policy next", &mut of_subcommand)] {
        let median = median(times);
        let ratio = median.as_secs_f64() / empty.as_secs_f64();
        eprintln!("{what}, whole process: median {median:?}, ratio {ratio:.2} (goal 1.5)");
    }
}

fn timed(command: &mut Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    assert!(command.status().unwrap().success());
    start.elapsed()
}

fn megabyte() {
    let comments = filled(1_000_000);
    // One panel of thousands of chains, so that rows count as well.
    let mut panel = String::from("interrogate reviewers: auto");
    for seat in 0..10_000 {
        let _ = write!(panel, ", grok:g-{seat}@high -> codex:c-{seat}@low");
    }
    let rows = filled(1_000_000 - panel.len()).replace("interrogate reviewers: grok:g-9@high", &panel);
    for (what, text) in [("comments and prose", &comments), ("ten thousand seats", &rows)] {
        let mut times: Vec<Duration> = (0..50)
            .map(|_| {
                let start = Instant::now();
                assert!(black_box(Sheet::read(black_box(text))).is_ok());
                start.elapsed()
            })
            .collect();
        let median = median(&mut times);
        eprintln!("parse {:.2} MB ({what}): median {median:?} (goal 20 ms)", text.len() as f64 / 1e6);
    }
}

/// A whole sheet with comments and prose up to so many bytes.
fn filled(bytes: usize) -> String {
    let mut text = sheet(15);
    while text.len() < bytes {
        text.push_str("# a comment that says why the rows above are as they are, and who decided it when\n");
        text.push_str("Some prose with a link https://example.invalid/a/b and nothing else of note.\n\n");
    }
    text
}

fn sheet(rows: usize) -> String {
    let mut text = String::new();
    for provider in ["grok", "codex"] {
        let _ = writeln!(
            text,
            "# access: {{\"provider\":\"{provider}\",\"funding\":\"included\",\"capacity\":\"high\",\
             \"apiSpend\":\"deny\",\"provenance\":\"user\"}}"
        );
    }
    for role in controller::policy::roles::ROLE_ROWS.iter().take(rows) {
        let seat = if role.native_only { "auto" } else { "grok:g-9@high" };
        let seats = if role.header == "swarm workers" { "grok:g-9@high -> codex:c-1@low" } else { seat };
        let second = if role.header == "architect runners" { ", auto" } else { "" };
        let _ = writeln!(text, "{}: {seats}{second}", role.header);
    }
    text
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
