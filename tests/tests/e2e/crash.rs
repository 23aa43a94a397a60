//! The program is killed (as by `kill -9`) at a point of its journal, and the next command takes the attempt over: the
//! receipt is the one of an uninterrupted run, and the model was invoked once.

use nix::sys::signal::Signal;
use serde_json::json;
use tests::world::{Cli, Engine, World};

on_engines!(
    [docker podman rootless]
    a_lane_whose_program_is_killed_in_mid_answer_goes_on_alone,
    a_container_that_is_gone_when_the_next_program_looks_has_an_unknown_end;

    [docker podman]
    a_container_that_ended_while_nobody_looked_is_read_all_the_same,
    the_next_command_on_the_machine_takes_over_what_a_killed_one_left;

    // Between the controller and its client, or on the disk; no engine is asked.
    [docker]
    a_receipt_that_a_power_cut_took_is_written_again,
    an_answer_that_has_no_place_any_more_is_listed_as_the_failure_that_it_was_for_its_caller;
);

/// Scenarios in which the program is killed at one point.
macro_rules! killed {
    ($($engines:tt $($name:ident = $point:literal),+ $(,)?;)+) => {
        $($( fn $name(engine: Engine) { killed_at(engine, $point); } )+)+
        on_engines!($($engines $($name),+;)+);
    };
}

// The journal is the same on every engine. Podman has each state once, and the moments at which the engine and the journal
// may say different things of the container.
killed!(
    [docker podman rootless]
    before_the_container_is_recorded = "before:container-created";

    [docker podman]
    after_it_was_accepted = "after:accepted",
    while_it_is_prepared = "after:preparing",
    after_the_container_is_meant = "after:container-intent",
    after_the_preflight_began = "after:preflight",
    after_the_start_is_meant = "after:step-intent-workload",
    after_it_settles = "after:settling",
    after_the_receipt_is_durable = "after:terminal",
    before_the_container_is_recorded_as_gone = "before:removed";

    [docker]
    before_it_is_prepared = "before:preparing",
    before_the_container_is_meant = "before:container-intent",
    after_the_container_is_recorded = "after:container-created",
    before_the_preflight = "before:preflight",
    before_the_start_is_meant = "before:step-intent-workload",
    before_it_settles = "before:settling",
    before_it_is_judged = "before:judged",
    after_it_is_judged = "after:judged",
    before_the_receipt_is_durable = "before:terminal",
    after_the_container_is_recorded_as_gone = "after:removed";
);

fn killed_at(engine: Engine, point: &str) {
    let world = World::on(engine);
    world.repository();
    let running = world.lane(Cli::Claude).says("the one answer").fault(point).start();
    let attempt = running.attempt();
    let killed = running.wait_killed();
    assert_eq!(killed.code, None, "the fault point {point} was never reached: {}", killed.stderr);
    attach(&world, &attempt);
    let ended = killed.again();
    assert_eq!(ended.status(), "complete", "{point}: {:#}\n{:?}", ended.receipt, world.journal(&attempt));
    assert_eq!(ended.answer(), "the one answer", "{point}");
    assert_eq!(ended.count.invocations, 1, "{point}: {:?}", world.model.requests());
    let container = &ended.receipt["container"];
    assert_eq!(container["engine"]["kind"], engine.kind(), "{point}: it stays where it was begun; {container:#}");
    let terminals = world.journal(&attempt).iter().filter(|line| line["entry"] == "terminal").count();
    assert_eq!(terminals, 1, "{point}");
    world.assert_nothing_left();
}

/// Names no engine, and the tests' own is not the first that is found: the attempt knows which one it is on.
fn attach(world: &World, attempt: &str) {
    let output = world.run(["attach", attempt]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "laneyard attach: {:?}\n{text}", output.status);
}

fn a_lane_whose_program_is_killed_in_mid_answer_goes_on_alone(engine: Engine) {
    let world = World::on(engine);
    for cli in [Cli::Claude, Cli::Codex] {
        let gate = format!("gate-{cli:?}");
        let mut running = world.lane(cli).step(json!({"text": "said after the kill", "hold": gate})).start();
        running.until_asked();
        let attempt = running.attempt();
        running.signal(Signal::SIGKILL);
        let killed = running.wait_killed();
        world.model.release(&gate); // the connection is still there: the proxy has outlived the program
        attach(&world, &attempt);
        let ended = killed.again();
        assert_eq!(
            (ended.status(), ended.answer().as_str()),
            ("complete", "said after the kill"),
            "{:#}",
            ended.receipt
        );
        assert_eq!((ended.count.invocations, ended.count.requests), (1, 1));
    }
    world.assert_nothing_left();
}

/// The receipt's own file is the last to be made durable: the event that tells the end carries it too.
fn a_receipt_that_a_power_cut_took_is_written_again(engine: Engine) {
    for (point, is_told) in [("after:terminal", false), ("before:removed", true)] {
        let world = World::on(engine);
        let running = world.lane(Cli::Claude).says("kept").fault(point).start();
        let attempt = running.attempt();
        let killed = running.wait_killed();
        let file = world.attempt(&attempt).join("receipt.json");
        let before: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        std::fs::write(&file, b"").unwrap();
        if is_told {
            // The entry is not waited for either.
            let journal = world.attempt(&attempt).join("journal.jsonl");
            let text = std::fs::read_to_string(&journal).unwrap();
            let kept: Vec<&str> = text.lines().filter(|line| !line.contains(r#""entry":"terminal""#)).collect();
            assert!(kept.len() < text.lines().count(), "{text}");
            std::fs::write(&journal, format!("{}\n", kept.join("\n"))).unwrap();
        }
        attach(&world, &attempt);
        let ended = killed.again();
        assert_eq!((ended.status(), ended.answer().as_str()), ("complete", "kept"), "{point}: {:#}", ended.receipt);
        let after: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(after, ended.receipt, "{point}");
        assert_eq!(after == before, is_told, "{point}: what was told stays as it was told");
        assert!(world.journal(&attempt).iter().any(|line| line["entry"] == "terminal"), "{point}");
        world.assert_nothing_left();
    }
}

fn an_answer_that_has_no_place_any_more_is_listed_as_the_failure_that_it_was_for_its_caller(engine: Engine) {
    let world = World::on(engine);
    let mut running = world.lane(Cli::Claude).step(json!({"text": "has no place", "hold": "gate"})).start();
    running.until_asked();
    let attempt = running.attempt();
    running.signal(Signal::SIGKILL);
    let killed = running.wait_killed();
    std::fs::remove_file(world.path("lanes/1/out.md")).unwrap();
    world.model.release("gate");
    let attached = world.run(["attach", &attempt]);
    assert_eq!(attached.status.code(), Some(70), "{attached:?}");
    assert_eq!(killed.again().status(), "child-failed");
    let listed = world.run(["attempts", "--json"]).stdout;
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!((&listed["state"], &listed["delivered"]), (&json!("complete"), &json!("child-failed")), "{listed}");
    world.assert_nothing_left();
}

fn a_container_that_ended_while_nobody_looked_is_read_all_the_same(engine: Engine) {
    let world = World::on(engine);
    let mut running = world.lane(Cli::Claude).step(json!({"text": "unattended", "hold": "gate"})).start();
    running.until_asked();
    let attempt = running.attempt();
    running.signal(Signal::SIGKILL);
    let killed = running.wait_killed();
    world.model.release("gate");
    let spool = world.attempt(&attempt).join("spool");
    tests::until::until("the provider has answered", tests::world::LIMIT, || {
        let texts = std::fs::read_dir(&spool).unwrap().flatten().map(|e| std::fs::read(e.path()).unwrap_or_default());
        let found = texts.into_iter().any(|text| String::from_utf8_lossy(&text).contains("\"type\":\"result\""));
        if found { Ok(()) } else { Err("no result in the spool") }
    });
    attach(&world, &attempt);
    let ended = killed.again();
    assert_eq!((ended.status(), ended.answer().as_str()), ("complete", "unattended"), "{:#}", ended.receipt);
    assert_eq!(ended.count.invocations, 1);
    world.assert_nothing_left();
}

fn a_container_that_is_gone_when_the_next_program_looks_has_an_unknown_end(engine: Engine) {
    let world = World::on(engine);
    let mut running = world.lane(Cli::Claude).step(json!({"text": "never said", "hold": "gate"})).start();
    running.until_asked();
    let attempt = running.attempt();
    running.signal(Signal::SIGKILL);
    let killed = running.wait_killed();
    for container in world.containers() {
        world.engine.remove(&container.id);
    }
    let _ = world.run(["attach", &attempt]);
    let ended = killed.again();
    assert_eq!(ended.status(), "child-failed", "{:#}", ended.receipt);
    assert_eq!((&ended.receipt["exitCode"], &ended.receipt["processStarted"]), (&json!(null), &json!(true)));
    assert_eq!(ended.count.invocations, 1);
    world.assert_nothing_left();
}

fn the_next_command_on_the_machine_takes_over_what_a_killed_one_left(engine: Engine) {
    let world = World::on(engine);
    let mut running = world.lane(Cli::Claude).step(json!({"text": "taken over", "hold": "gate"})).start();
    running.until_asked();
    running.signal(Signal::SIGKILL);
    let killed = running.wait_killed();
    world.model.release("gate");
    world.lane(Cli::Claude).says("another lane").run().assert("complete", 0);
    let ended = tests::until::until("the first lane ends too", tests::world::LIMIT, || {
        let ended = killed.again();
        if ended.status() == "complete" { Ok(ended) } else { Err(ended.receipt) }
    });
    assert_eq!((ended.answer().as_str(), ended.count.invocations), ("taken over", 1));
    world.assert_nothing_left();
}
