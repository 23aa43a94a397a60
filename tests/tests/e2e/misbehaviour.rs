//! Providers that do not behave: each is named after what it does. What an engine has a hand in runs on all of them: ends,
//! limits, processes that are left. Output goes from our first process straight into our files, past every engine.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use tests::until::until;
use tests::world::{Ended, Engine, LIMIT, Mode, World};

use crate::scripted::lane;

on_engines!(
    [docker podman rootless]
    a_provider_that_ignores_term_is_ended_with_its_container,
    daemons_of_a_provider_end_with_its_container,
    a_daemon_that_holds_the_output_open_keeps_the_lane_until_it_is_cancelled,
    a_provider_that_eats_memory_is_named_as_such,
    a_fork_bomb_stays_inside_its_limit,
    a_container_that_is_killed_from_outside_is_no_invented_exit;

    [docker]
    a_flood_of_output_leaves_the_memory_of_the_agent_flat,
    output_over_its_limit_ends_the_provider_and_says_so,
    a_line_of_64_megabytes_is_no_obstacle,
    noise_between_the_events_is_no_answer,
    bytes_that_are_no_text_on_stderr_change_nothing,
    an_end_without_a_result_is_malformed,
    a_stdout_that_closes_early_ends_nothing_before_the_exit,
    a_provider_that_exits_before_it_reads_its_prompt_has_failed;
);

fn a_provider_that_ignores_term_is_ended_with_its_container(engine: Engine) {
    let world = World::on(engine);
    let running =
        lane(&world, "trap '' TERM INT HUP; echo ready > mark; while :; do sleep 1; done").mode(Mode::Writer).start();
    until("the provider runs", LIMIT, || if world.path("work/mark").exists() { Ok(()) } else { Err("no mark") });
    running.signal(Signal::SIGINT);
    let ended = running.wait();
    ended.assert("cancelled", 130);
    assert_eq!(ended.receipt["signal"], "SIGINT", "never the kill that followed");
    world.assert_nothing_left();
}

fn daemons_of_a_provider_end_with_its_container(engine: Engine) {
    let world = World::on(engine);
    // Tests run side by side: only this one's daemons are looked for.
    let name = format!("laneyard-tests-daemon-{}", std::process::id());
    let daemon = format!("trap \"\" TERM; exec -a {name} sleep 3600");
    let script = format!("for i in 1 2 3; do setsid -f bash -c '{daemon}' >/dev/null 2>&1; done; answer done");
    let ended = lane(&world, &script).run();
    ended.assert("complete", 0);
    assert_eq!(ended.receipt["teardown"]["removed"], true, "{:#}", ended.receipt);
    world.assert_nothing_left();
    let daemons = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.starts_with(name.as_bytes()))
    });
    assert_eq!(daemons.count(), 0);
}

fn a_flood_of_output_leaves_the_memory_of_the_agent_flat(engine: Engine) {
    let world = World::on(engine);
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

fn output_over_its_limit_ends_the_provider_and_says_so(engine: Engine) {
    let world = World::on(engine);
    let ended = lane(&world, "yes noise").flag("--output-limit", "10MiB").run();
    ended.assert("child-failed", 70);
    assert!(ended.receipt.to_string().contains("output"), "{:#}", ended.receipt);
    world.assert_nothing_left();
}

fn a_line_of_64_megabytes_is_no_obstacle(engine: Engine) {
    let world = World::on(engine);
    let script = r#"init; printf '{"type":"x","pad":"'; head -c 67108864 /dev/zero | tr '\0' y; printf '"}\n'; assistant fine; result fine"#;
    let ended = lane(&world, script).run();
    ended.assert("complete", 0);
    assert_eq!(ended.answer(), "fine");
    world.assert_nothing_left();
}

fn noise_between_the_events_is_no_answer(engine: Engine) {
    let world = World::on(engine);
    let script = r#"echo 'Warning: not JSON'; printf '\xff\xfe\x80 bytes\n'; echo '[1,'; answer fine"#;
    let ended = lane(&world, script).run();
    ended.assert("malformed-output", 65);
    assert_eq!(ended.receipt["terminalSuccess"], true, "the provider's own success vetoes a replay");
    world.assert_nothing_left();
}

fn bytes_that_are_no_text_on_stderr_change_nothing(engine: Engine) {
    let world = World::on(engine);
    let ended = lane(&world, r#"printf '\xff\xfe\x80 bytes\n' >&2; answer fine"#).run();
    ended.assert("complete", 0);
    assert_eq!(ended.answer(), "fine");
    world.assert_nothing_left();
}

fn a_daemon_that_holds_the_output_open_keeps_the_lane_until_it_is_cancelled(engine: Engine) {
    let world = World::on(engine);
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

fn an_end_without_a_result_is_malformed(engine: Engine) {
    let world = World::on(engine);
    let ended = lane(&world, "init; assistant 'half an'; exit 0").run();
    ended.assert("malformed-output", 65);
    assert!(ended.output.is_none());
    world.assert_nothing_left();
}

fn a_stdout_that_closes_early_ends_nothing_before_the_exit(engine: Engine) {
    let world = World::on(engine);
    let ended = lane(&world, "answer early; exec 1>&-; sleep 3; echo late > late.txt").mode(Mode::Writer).run();
    ended.assert("complete", 0);
    assert!(world.path("work/late.txt").exists(), "the provider was allowed to finish");
    world.assert_nothing_left();
}

fn a_provider_that_exits_before_it_reads_its_prompt_has_failed(engine: Engine) {
    let world = World::on(engine);
    let ended = lane(&world, &"x".repeat(4 << 20)).model("exits-before-reading").run();
    ended.assert("child-failed", 70);
    assert_eq!(ended.receipt["exitCode"], 3);
    world.assert_nothing_left();
}

fn a_provider_that_eats_memory_is_named_as_such(engine: Engine) {
    let world = World::on(engine);
    // So much and no more: where no limit can be had, the machine stays as it is.
    let script = "init; exec tail -c 512M <(head -c 512M /dev/zero) >/dev/null";
    let ended = lane(&world, script).flag("--memory", "256MiB").run();
    if is_applied(&ended, engine, "memory") {
        ended.assert("child-failed", 70);
        assert_eq!((&ended.receipt["exitCode"], &ended.receipt["causeOfDeath"]), (&json!(137), &json!("oom")));
    } else {
        ended.assert("malformed-output", 65);
        assert_eq!(ended.receipt["exitCode"], 0, "{:#}", ended.receipt);
    }
    world.assert_nothing_left();
}

fn a_fork_bomb_stays_inside_its_limit(engine: Engine) {
    let world = World::on(engine);
    // Eight of them go again, so that there is room for the answer; the others are left behind.
    let bomb = "for (1..500) { my $p = fork; last unless defined $p; push(@k, $p), next if $p; \
                close STDOUT; close STDERR; sleep 3600; exit } \
                kill 9, @k[0..7]; waitpid $_, 0 for @k[0..7]; print scalar @k";
    let ended = lane(&world, &format!("answer \"$(perl -e '{bomb}')\"")).flag("--pids", "64").run();
    ended.assert("complete", 0);
    let forked: u32 = ended.answer().trim().parse().unwrap();
    let applied = is_applied(&ended, engine, "pids");
    assert!(if applied { (8..64).contains(&forked) } else { forked == 500 }, "{forked}: {:#}", ended.receipt);
    world.assert_nothing_left();
}

/// What the receipt says of a limit. Only a rootless engine may lack it, and then the receipt names that.
fn is_applied(ended: &Ended, engine: Engine, limit: &str) -> bool {
    let isolation = &ended.receipt["isolation"];
    let ignored = isolation["limits"][limit] == "ignored";
    let named = isolation["findings"].as_array().unwrap().iter().any(|finding| finding["name"] == "limits-ignored");
    assert!(!ignored || (named && engine == Engine::PodmanRootless), "{isolation:#}");
    !ignored
}

fn a_container_that_is_killed_from_outside_is_no_invented_exit(engine: Engine) {
    let world = World::on(engine);
    let running = lane(&world, "echo ready > mark; sleep 3600").mode(Mode::Writer).start();
    until("the provider runs", LIMIT, || if world.path("work/mark").exists() { Ok(()) } else { Err("no mark") });
    world.engine.kill(&world.containers()[0].id);
    let ended = running.wait();
    ended.assert("child-failed", 70);
    assert_eq!(ended.receipt["signal"], serde_json::Value::Null, "the runner sent none");
    world.assert_nothing_left();
}
