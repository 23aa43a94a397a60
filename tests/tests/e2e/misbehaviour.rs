//! Providers that do not behave: each is named after what it does.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tests::until::until;
use tests::world::{Engine, LIMIT, Mode, World};

use crate::scripted::lane;

#[test]
fn a_provider_that_ignores_term_is_ended_with_its_container() {
    let world = World::on(Engine::Docker);
    let running =
        lane(&world, "trap '' TERM INT HUP; echo ready > mark; while :; do sleep 1; done").mode(Mode::Writer).start();
    until("the provider runs", LIMIT, || if world.path("work/mark").exists() { Ok(()) } else { Err("no mark") });
    running.signal(Signal::SIGINT);
    let ended = running.wait();
    ended.assert("cancelled", 130);
    assert_eq!(ended.receipt["signal"], "SIGINT", "never the kill that followed");
    world.assert_nothing_left();
}

#[test]
fn daemons_of_a_provider_end_with_its_container() {
    let world = World::on(Engine::Docker);
    let script = "for i in 1 2 3; do setsid -f bash -c 'trap \"\" TERM; exec -a laneyard-tests-daemon sleep 3600' >/dev/null 2>&1; done; answer done";
    let ended = lane(&world, script).run();
    ended.assert("complete", 0);
    world.assert_nothing_left();
    let daemons = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.starts_with(b"laneyard-tests-daemon"))
    });
    assert_eq!(daemons.count(), 0);
}

#[test]
fn a_flood_of_output_leaves_the_memory_of_the_agent_flat() {
    let world = World::on(Engine::Docker);
    let script = r#"init; yes '{"type":"stream_event","event":{"n":1,"pad":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}' | head -n 800000; assistant done; result done"#;
    let running = lane(&world, script).start();
    let (pid, started) = (running.pid(), Instant::now());
    let mut peak = 0;
    while started.elapsed() < LIMIT {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        match line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()) {
            Some(kib) => peak = peak.max(kib),
            None => break, // ended
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    running.wait().assert("complete", 0);
    assert!(peak > 0 && peak < 64 << 10, "peak resident memory: {peak} KiB");
    world.assert_nothing_left();
}

#[test]
fn output_over_its_limit_ends_the_provider_and_says_so() {
    let world = World::on(Engine::Docker);
    let ended = lane(&world, "yes noise").flag("--output-limit", "10MiB").run();
    ended.assert("child-failed", 70);
    assert!(ended.receipt.to_string().contains("output"), "{:#}", ended.receipt);
    world.assert_nothing_left();
}

#[test]
fn a_line_of_64_megabytes_is_no_obstacle() {
    let world = World::on(Engine::Docker);
    let script = r#"init; printf '{"type":"x","pad":"'; head -c 67108864 /dev/zero | tr '\0' y; printf '"}\n'; assistant fine; result fine"#;
    let ended = lane(&world, script).run();
    ended.assert("complete", 0);
    assert_eq!(ended.answer(), "fine");
    world.assert_nothing_left();
}

#[test]
fn noise_between_the_events_is_no_answer() {
    let world = World::on(Engine::Docker);
    let script = r#"echo 'Warning: not JSON'; printf '\xff\xfe\x80 bytes\n'; echo '[1,'; answer fine"#;
    let ended = lane(&world, script).run();
    ended.assert("malformed-output", 65);
    assert_eq!(ended.receipt["terminalSuccess"], true, "the provider's own success vetoes a replay");
    world.assert_nothing_left();
}

#[test]
fn bytes_that_are_no_text_on_stderr_change_nothing() {
    let world = World::on(Engine::Docker);
    let ended = lane(&world, r#"printf '\xff\xfe\x80 bytes\n' >&2; answer fine"#).run();
    ended.assert("complete", 0);
    assert_eq!(ended.answer(), "fine");
    world.assert_nothing_left();
}

#[test]
fn a_daemon_that_holds_the_output_open_keeps_the_lane_until_it_is_cancelled() {
    let world = World::on(Engine::Docker);
    let running = lane(&world, "answer early; sleep 3600 &").start();
    let attempt = running.attempt();
    until("the provider has ended", LIMIT, || {
        let log = std::fs::read_to_string(world.attempt(&attempt).join("events.jsonl")).unwrap_or_default();
        if log.contains("\"exitCode\":0,\"drained\":false") { Ok(()) } else { Err(log) }
    });
    running.signal(Signal::SIGTERM);
    let ended = running.wait();
    ended.assert("cancelled", 130);
    assert_eq!(ended.receipt["signal"], serde_json::Value::Null, "nothing was signalled");
    assert_eq!(ended.receipt["error"]["message"], "launcher received SIGTERM after child exited");
    world.assert_nothing_left();
}

#[test]
fn an_end_without_a_result_is_malformed() {
    let world = World::on(Engine::Docker);
    let ended = lane(&world, "init; assistant 'half an'; exit 0").run();
    ended.assert("malformed-output", 65);
    assert!(ended.output.is_none());
    world.assert_nothing_left();
}

#[test]
fn a_stdout_that_closes_early_ends_nothing_before_the_exit() {
    let world = World::on(Engine::Docker);
    let ended = lane(&world, "answer early; exec 1>&-; sleep 3; echo late > late.txt").mode(Mode::Writer).run();
    ended.assert("complete", 0);
    assert!(world.path("work/late.txt").exists(), "the provider was allowed to finish");
    world.assert_nothing_left();
}

#[test]
fn a_provider_that_exits_before_it_reads_its_prompt_has_failed() {
    let world = World::on(Engine::Docker);
    let ended = lane(&world, &"x".repeat(4 << 20)).model("exits-before-reading").run();
    ended.assert("child-failed", 70);
    assert_eq!(ended.receipt["exitCode"], 3);
    world.assert_nothing_left();
}

#[test]
fn a_provider_that_eats_memory_is_named_as_such() {
    let world = World::on(Engine::Docker);
    let ended = lane(&world, "init; exec tail /dev/zero").flag("--memory", "256MiB").run();
    ended.assert("child-failed", 70);
    assert_eq!(ended.receipt["exitCode"], 137);
    assert!(ended.receipt.to_string().contains("oom"), "{:#}", ended.receipt);
    world.assert_nothing_left();
}

#[test]
fn a_fork_bomb_stays_inside_its_limit() {
    let world = World::on(Engine::Docker);
    let script = "for i in $(seq 500); do sleep 300 >/dev/null 2>&1 & done 2>/dev/null; answer \"$(ls /proc | grep -c '^[0-9]')\"";
    let ended = lane(&world, script).flag("--pids", "64").run();
    assert!(["complete", "child-failed"].contains(&ended.status()), "{:#}", ended.receipt);
    if ended.status() == "complete" {
        assert!(ended.answer().trim().parse::<u32>().unwrap() <= 64, "{}", ended.answer());
    }
    world.assert_nothing_left();
}

#[test]
fn a_container_that_is_killed_from_outside_is_no_invented_exit() {
    let world = World::on(Engine::Docker);
    let running = lane(&world, "echo ready > mark; sleep 3600").mode(Mode::Writer).start();
    until("the provider runs", LIMIT, || if world.path("work/mark").exists() { Ok(()) } else { Err("no mark") });
    world.engine.kill(&world.containers()[0].id);
    let ended = running.wait();
    ended.assert("child-failed", 70);
    assert_eq!(ended.receipt["signal"], serde_json::Value::Null, "the runner sent none");
    world.assert_nothing_left();
}
