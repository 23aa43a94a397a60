//! What a provider finds inside its container, and what it does not.

use serde_json::json;
use tests::world::{Cli, Engine, Mode, World};

use crate::scripted::lane;

/// Runs a script inside a read-only lane; gives what it answered.
fn inside(world: &World, script: &str) -> String {
    let ended = lane(world, &format!("answer \"$({script}) 2>&1\"")).env("HOST_SECRET", "hush").run();
    ended.assert("complete", 0);
    ended.answer()
}

#[test]
fn the_default_profile_is_in_force() {
    let world = World::on(Engine::Docker);
    world.repository();
    let answer = inside(
        &world,
        r#"id -u; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status; touch /usr/x 2>&1; touch /etc/x 2>&1;
           touch README.md 2>&1; ls /var/run/docker.sock /run/docker.sock /run/podman 2>&1; ls /sys/class/net;
           ls -d /proc/1/root 2>&1; readlink /proc/1/ns/net"#,
    );
    for expected in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(answer.contains(expected), "{expected}:\n{answer}");
    }
    assert_eq!(answer.matches("Read-only file system").count(), 3, "{answer}");
    assert_eq!(answer.matches("No such file or directory").count(), 3, "{answer}");
    assert!(answer.lines().any(|line| line == "lo") && !answer.contains("eth0"), "{answer}");
    assert!(!answer.lines().any(|line| line == "0"), "not root: {answer}");
    world.assert_nothing_left();
}

#[test]
fn nothing_of_the_callers_environment_is_inside() {
    let world = World::on(Engine::Docker);
    let answer = inside(&world, "env");
    assert!(!answer.contains("hush") && !answer.contains("LANEYARD_STATE"), "{answer}");
    assert!(answer.contains("ANTHROPIC_BASE_URL="), "the provider's own variables are: {answer}");
}

#[test]
fn git_metadata_can_be_read_and_never_be_written() {
    let world = World::on(Engine::Docker);
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

#[test]
fn only_the_models_host_can_be_reached_and_the_rest_is_on_record() {
    let world = World::on(Engine::Docker);
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
}

#[test]
fn a_real_lane_reaches_its_model_and_nothing_else() {
    let world = World::on(Engine::Docker);
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
