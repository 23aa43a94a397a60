//! How a lane of each CLI ends, by what the model and the caller do.

use std::os::unix::fs::MetadataExt as _;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::redact::Redactor;
use tests::world::{Cli, Engine, Lane, Mode, World};

/// One module for each engine, with a test for each function that takes an engine and a CLI.
macro_rules! on_every_engine {
    ($cli:ident: $($name:ident),+ $(,)?) => {
        mod docker {
            $(#[test] fn $name() { super::super::$name(tests::world::Engine::Docker, tests::world::Cli::$cli); })+
        }
        mod podman {
            $(#[test] fn $name() { super::super::$name(tests::world::Engine::Podman, tests::world::Cli::$cli); })+
        }
    };
}

mod claude {
    on_every_engine!(
        Claude: a_read_only_lane_delivers_the_answer, a_writer_changes_the_worktree, an_error_of_the_provider_fails_the_child,
        an_exhausted_quota_is_proven, a_cancelled_lane_ends_its_provider, a_deadline_ends_the_provider,
        a_deadline_that_has_passed_starts_nothing, another_model_than_the_requested_one_is_no_answer,
    );
}

mod codex {
    on_every_engine!(
        Codex: a_read_only_lane_delivers_the_answer, a_writer_changes_the_worktree, an_error_of_the_provider_fails_the_child,
        an_exhausted_quota_is_proven, a_cancelled_lane_ends_its_provider, a_deadline_ends_the_provider,
        a_deadline_that_has_passed_starts_nothing,
    );
}

/// Two lanes where no root is involved: the user mapping is another one there.
mod rootless {
    use tests::world::{Cli, Engine};

    #[test]
    fn claude_reads_and_answers() {
        super::a_read_only_lane_delivers_the_answer(Engine::PodmanRootless, Cli::Claude);
    }

    #[test]
    fn claude_writes_as_the_owner() {
        super::a_writer_changes_the_worktree(Engine::PodmanRootless, Cli::Claude);
    }

    #[test]
    fn codex_writes_as_the_owner() {
        super::a_writer_changes_the_worktree(Engine::PodmanRootless, Cli::Codex);
    }
}

fn a_read_only_lane_delivers_the_answer(engine: Engine, cli: Cli) {
    let world = World::on(engine);
    world.repository();
    let ended = world.lane(cli).step(reads(&world, cli)).says("The README has one line. äöü\n").run();
    ended.assert("complete", 0);
    assert_eq!(ended.answer().trim_end(), "The README has one line. äöü");
    assert_eq!(ended.stderr, "", "nothing but the receipt is said");
    let line: Value = serde_json::from_str(ended.stdout.trim_end()).expect("the receipt on one line");
    assert_eq!(line, ended.receipt);
    assert_eq!(ended.stdout.lines().count(), 1);
    assert_eq!((ended.count.invocations, ended.count.requests), (1, 2));
    let receipt = &ended.receipt;
    assert_eq!(
        (&receipt["schemaVersion"], &receipt["exitCode"], &receipt["signal"]),
        (&json!(2), &json!(0), &Value::Null)
    );
    assert_eq!(receipt["usage"]["outputTokens"], 14);
    let evidence = if cli == Cli::Claude { "provider-report" } else { "pinned-argv" };
    assert_eq!(receipt["modelEvidence"], evidence);
    assert!(receipt["sessionId"].is_string(), "{receipt:#}");
    world.assert_nothing_left();
}

fn reads(world: &World, cli: Cli) -> Value {
    let readme = world.path("work/README.md").display().to_string();
    match cli {
        Cli::Claude => json!({"tool": "Read", "input": {"file_path": readme}}),
        Cli::Codex => cli.shell(&format!("cat {readme}")),
    }
}

fn a_writer_changes_the_worktree(engine: Engine, cli: Cli) {
    let world = World::on(engine);
    let work = world.repository();
    let before = git_files(&work.join(".git"));
    let file = work.join("new.txt").display().to_string();
    let lane = world.lane(cli).mode(Mode::Writer);
    let ended = lane
        .step(cli.write(&file, "written\n"))
        .step(cli.shell("git status --short; id -u"))
        .says("{{last_result}}")
        .run();
    ended.assert("complete", 0);
    assert_eq!(std::fs::read_to_string(&file).expect("the new file"), "written\n");
    let (owner, user) = (std::fs::metadata(&file).unwrap().uid(), std::fs::metadata(&work).unwrap().uid());
    assert_eq!(owner, user, "the file belongs to the worktree's owner");
    assert!(ended.answer().contains("?? new.txt"), "git works inside: {}", ended.answer());
    assert_eq!(git_files(&work.join(".git")), before, "nothing in .git was touched");
    assert_eq!(ended.count.invocations, 1);
    world.assert_nothing_left();
}

/// Paths with sizes of everything below a directory.
fn git_files(path: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        if meta.is_dir() { found.extend(git_files(&entry.path())) } else { found.push((entry.path(), meta.len())) }
    }
    found.sort();
    found
}

fn an_error_of_the_provider_fails_the_child(engine: Engine, cli: Cli) {
    let world = World::on(engine);
    let message = "the request is not to our taste";
    let body = match cli {
        Cli::Claude => json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}),
        Cli::Codex => json!({"error": {"type": "invalid_request_error", "message": message}}),
    };
    let ended = world.lane(cli).step(json!({"status": 400, "body": body})).run();
    ended.assert("child-failed", 70);
    assert_eq!(ended.stdout, "");
    assert_eq!(ended.receipt["failurePhase"], "invocation");
    assert!(ended.output.is_none(), "no answer, no output file");
    let evidence = ended.receipt["error"]["evidence"].as_str().unwrap();
    assert!(evidence.contains("terminal: ") && evidence.contains("stdout: "), "{evidence}");
    assert_eq!(ended.count.invocations, 1);
    world.assert_nothing_left();
}

fn an_exhausted_quota_is_proven(engine: Engine, cli: Cli) {
    let world = World::on(engine);
    let reset = 1_900_000_000;
    let lane = world.lane(cli);
    let lane = match cli {
        Cli::Claude => lane.env("ANTHROPIC_API_KEY", "").env("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-fake").step(json!({
            "status": 429,
            "body": {"type": "error", "error": {"type": "rate_limit_error", "message": "limit"}},
            "headers": {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": reset,
                "anthropic-ratelimit-unified-representative-claim": "five_hour",
                "anthropic-ratelimit-unified-5h-utilization": "1.0",
                "anthropic-ratelimit-unified-5h-reset": reset,
                "anthropic-ratelimit-unified-5h-status": "rejected",
                "anthropic-ratelimit-unified-overage-status": "rejected",
                "anthropic-ratelimit-unified-overage-disabled-reason": "out_of_credits",
                "x-should-retry": "false",
            },
        })),
        Cli::Codex => lane.step(json!({
            "status": 429,
            "body": {"error": {"type": "usage_limit_reached", "message": "limit", "plan_type": "pro", "resets_at": reset}},
        })),
    };
    let ended = lane.run();
    ended.assert("usage-exhausted", 75);
    assert_eq!(ended.receipt["failurePhase"], "invocation");
    let evidence = ended.receipt["error"]["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("diagnostic: "), "{evidence}");
    world.assert_nothing_left();
}

fn a_cancelled_lane_ends_its_provider(engine: Engine, cli: Cli) {
    let world = World::on(engine);
    let mut running = held(&world, cli).start();
    running.until_asked();
    assert_eq!(world.containers().len(), 1);
    running.signal(Signal::SIGTERM);
    let ended = running.wait();
    ended.assert("cancelled", 130);
    assert_eq!((&ended.receipt["signal"], &ended.receipt["processStarted"]), (&json!("SIGTERM"), &json!(true)));
    assert_eq!(ended.receipt["error"]["message"], "launcher received SIGTERM; signal was sent to child");
    assert!(ended.receipt.get("terminalSuccess").is_none());
    assert!(ended.output.is_none());
    world.assert_nothing_left();
}

fn held(world: &World, cli: Cli) -> Lane<'_> {
    world.lane(cli).step(json!({"text": "never said", "hold": "for ever"}))
}

fn a_deadline_ends_the_provider(engine: Engine, cli: Cli) {
    let world = World::on(engine);
    let started = std::time::Instant::now();
    let mut running = held(&world, cli).flag("--timeout", "40").start();
    running.until_asked();
    let ended = running.wait();
    assert!(started.elapsed().as_secs() >= 40, "no earlier than asked");
    ended.assert("timed-out", 124);
    assert_eq!(ended.receipt["timeoutMs"], 40_000);
    assert_eq!(ended.receipt["error"]["message"], "launcher exceeded the explicit 40000ms deadline");
    assert_eq!(
        (&ended.receipt["failurePhase"], &ended.receipt["terminalSuccess"]),
        (&json!("invocation"), &json!(false))
    );
    world.assert_nothing_left();
}

fn a_deadline_that_has_passed_starts_nothing(engine: Engine, cli: Cli) {
    let world = World::on(engine);
    let ended = world.lane(cli).says("never said").flag("--timeout", "0.001").run();
    ended.assert("timed-out", 124);
    assert_eq!(
        (&ended.receipt["failurePhase"], &ended.receipt["processStarted"]),
        (&json!("preflight"), &json!(false))
    );
    assert_eq!(ended.count.requests, 0);
    world.assert_nothing_left();
}

fn another_model_than_the_requested_one_is_no_answer(engine: Engine, cli: Cli) {
    let world = World::on(engine);
    let ended = world.lane(cli).step(json!({"text": "an answer", "model": "some-other-model"})).run();
    ended.assert("malformed-output", 65);
    assert_eq!(ended.receipt["error"]["message"], "requested model fake-model was not reported by claude");
    assert_eq!(
        (&ended.receipt["failurePhase"], &ended.receipt["terminalSuccess"]),
        (&json!("postprocess"), &json!(true))
    );
    assert!(ended.output.is_none());
    world.assert_nothing_left();
}

#[test]
fn a_receipt_has_the_documented_fields_in_the_documented_order_and_ours_after_them() {
    let world = World::on(Engine::Docker);
    let ended = world.lane(Cli::Claude).says("golden").run();
    ended.assert("complete", 0);
    let redactor = Redactor::new(vec![(world.path("").display().to_string(), "<world>/")]);
    let redacted = redactor.value(&ended.receipt);
    let fields = redacted.as_object().expect("an object");
    let known: serde_json::Map<String, Value> = fields
        .iter()
        .take(33)
        .filter(|(key, _)| *key != "argv")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    insta::assert_json_snapshot!(known);
    let ours: Vec<_> = fields.keys().skip(33).map(String::as_str).collect();
    assert_eq!(ours, ["attempt", "container", "isolation", "innerSandbox", "answerBytes", "egress", "teardown"]);
    world.assert_nothing_left();
}

#[test]
fn more_processors_than_the_engine_has_are_told_with_what_to_do() {
    let world = World::on(Engine::Docker);
    world.repository();
    let ended = world.lane(Cli::Claude).flag("--cpus", "1000").says("never").run();
    ended.assert("child-failed", 70);
    assert_eq!((&ended.receipt["failurePhase"], ended.count.invocations), (&json!("preflight"), 0));
    let said = ended.receipt["failureDetail"].as_str().unwrap();
    let part = "the lane asks for 1000 CPUs and the engine has ";
    assert!(said.starts_with(part), "{said}");
    assert!(said.contains("with --cpus, or as `cpus` in the configuration's [limits]"), "{said}");
    world.assert_nothing_left();
}
