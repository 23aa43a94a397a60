//! What a provider finds inside its container, and what it does not.

use serde_json::json;
use tests::world::{Cli, Ended, Engine, Mode, World};

use crate::scripted::lane;

on_engines!(
    [docker podman rootless]
    the_default_profile_is_in_force,
    nothing_of_the_callers_environment_is_inside,
    git_metadata_can_be_read_and_never_be_written,
    only_the_models_host_can_be_reached_and_the_rest_is_on_record;

    // What a CLI asks its proxy for is the same on every engine.
    [docker]
    a_real_lane_reaches_its_model_and_nothing_else;
);

/// Runs a script inside a read-only lane; what it printed is the answer.
fn inside(world: &World, script: &str) -> Ended {
    let ended = lane(world, &format!("answer \"$(exec 2>&1; {script})\"")).env("HOST_SECRET", "hush").run();
    ended.assert("complete", 0);
    ended
}

fn the_default_profile_is_in_force(engine: Engine) {
    let world = World::on(engine);
    world.repository();
    let ended = inside(
        &world,
        "id -u; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status; touch /usr/x; touch /etc/x; touch README.md; \
         ls /var/run/docker.sock /run/docker.sock /run/podman; ls /sys/class/net",
    );
    let answer = ended.answer();
    for expected in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(answer.contains(expected), "{expected}:\n{answer}");
    }
    assert_eq!(answer.matches("Read-only file system").count(), 3, "{answer}");
    assert_eq!(answer.matches("No such file or directory").count(), 3, "{answer}");
    assert!(answer.lines().any(|line| line == "lo") && !answer.contains("eth0"), "{answer}");
    assert!(!answer.lines().any(|line| line == "0"), "not root: {answer}");
    let isolation = &ended.receipt["isolation"];
    assert_eq!((&isolation["engine"], &isolation["network"]), (&json!(engine.kind()), &json!("none")), "{isolation:#}");
    assert_eq!(isolation["rootless"], engine == Engine::PodmanRootless, "{isolation:#}");
    world.assert_nothing_left();
}

fn nothing_of_the_callers_environment_is_inside(engine: Engine) {
    let world = World::on(engine);
    let answer = inside(&world, "env; cat /proc/1/environ").answer();
    assert!(!answer.contains("hush") && !answer.contains("LANEYARD_STATE"), "{answer}");
    assert!(!answer.lines().any(|line| line.starts_with("container=")), "nor of the engine's: {answer}");
    assert!(answer.contains("ANTHROPIC_BASE_URL="), "the provider's own variables are: {answer}");
    assert!(answer.contains("/proc/1/environ: Permission denied"), "the first process keeps its own: {answer}");
    world.assert_nothing_left();
}

fn git_metadata_can_be_read_and_never_be_written(engine: Engine) {
    let world = World::on(engine);
    world.repository();
    let script = "git log --oneline; git status --short; for p in .git/config .git/hooks/post-checkout .git/HEAD; \
                  do (echo x > $p) 2>/dev/null && echo WROTE $p; done; rm -rf .git 2>/dev/null; mv .git .git2 2>/dev/null; \
                  git commit --allow-empty -m x >/dev/null 2>&1 && echo COMMITTED; echo ok > file; ls -d .git";
    let ended = lane(&world, &format!("answer \"$({script})\"")).mode(Mode::Writer).run();
    ended.assert("complete", 0);
    let answer = ended.answer();
    assert!(answer.contains("first") && answer.trim_end().ends_with(".git"), "{answer}");
    assert!(!answer.contains("WROTE") && !answer.contains("COMMITTED"), "{answer}");
    assert!(world.path("work/file").exists());
    world.assert_nothing_left();
}

fn only_the_models_host_can_be_reached_and_the_rest_is_on_record(engine: Engine) {
    let world = World::on(engine);
    let script = r#"
        ask() { exec 9<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT %s HTTP/1.1\r\n\r\n' "$1" >&9; head -1 <&9; exec 9>&-; }
        answer "$(ask evil.example:443; ask 169.254.169.254:80; (exec 8<>/dev/tcp/1.1.1.1/53) 2>&1; getent hosts example.com || echo no name)""#;
    let running = lane(&world, script).start();
    let attempt = running.attempt();
    let ended = running.wait();
    ended.assert("complete", 0);
    let answer = ended.answer();
    assert_eq!(answer.matches("403").count(), 2, "{answer}");
    assert!(answer.contains("unreachable") && answer.contains("no name"), "{answer}");
    let refused: Vec<_> = world.egress(&attempt).iter().filter(|line| line["verdict"] == "refused").cloned().collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert_eq!(refused[0]["host"], "evil.example");
    let receipt = ended.receipt["egress"].to_string();
    assert!(receipt.contains("evil.example") && receipt.contains("169.254.169.254"), "{receipt}");
    world.assert_nothing_left();
}

fn a_real_lane_reaches_its_model_and_nothing_else(engine: Engine) {
    let world = World::on(engine);
    for cli in [Cli::Claude, Cli::Codex] {
        let running = world.lane(cli).mode(Mode::Writer).says("fine").start();
        let attempt = running.attempt();
        running.wait().assert("complete", 0);
        let decisions = world.egress(&attempt);
        let port = json!(world.model.port());
        assert!(!decisions.is_empty());
        for line in decisions {
            assert_eq!(
                (&line["verdict"], &line["host"], &line["port"]),
                (&json!("allowed"), &json!("127.0.0.1"), &port),
                "{cli:?}"
            );
        }
    }
}
