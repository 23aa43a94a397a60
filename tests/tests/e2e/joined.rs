//! A fleet set up as the manual says: init, serve, worker token, join, run, over TLS and with certificates only.

use std::process::{Child, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::until::until;
use tests::world::{Cli, Engine, World};

use crate::fleet::controller;

/// Ended with the test, whatever becomes of it.
struct Ended(Child);

impl Ended {
    fn end(&mut self) {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn said(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_fleet_that_joined_over_tls_runs_a_lane_until_its_worker_is_revoked() {
    let world = World::on(Engine::Docker);
    world.repository();
    said(world.run(["init", "--name", "localhost"]));
    let (served, address) = controller(&world, "127.0.0.1:0");
    let mut served = Ended(served);
    let token = world.path("work").join("ada.token");
    said(world.run(["token", "create", "--role", "submit", "--name", "ada", "--out", token.to_str().unwrap()]));
    let join = said(world.run(["worker", "token", "--name", "w1"]));
    let words: Vec<&str> = join.split(' ').collect();
    assert_eq!(words[0], "laneyard-agent");
    assert!(words[2].starts_with("https://localhost:"), "{join}");
    let state = world.state();
    said(world.agent().args(&words[1..]).arg("--state-dir").arg(&state).output().unwrap());
    let again = world.agent().args(&words[1..]).arg("--state-dir").arg(&state).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("has joined"), "{again:?}");
    let mut run = world.agent();
    run.arg("run").arg("--state-dir").arg(&state).arg("--engine").arg(world.engine.address());
    let mut agent = Ended(run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let ca = state.join("controller/identity/ca.pem");
    let flags =
        [("--controller", address.as_str()), ("--ca", ca.to_str().unwrap()), ("--token-file", token.to_str().unwrap())];
    let lane =
        flags.into_iter().fold(world.lane(Cli::Claude).says("over TLS"), |lane, (flag, value)| lane.flag(flag, value));
    let ended = lane.run();
    ended.assert("complete", 0);
    assert_eq!((ended.answer().as_str(), ended.count.invocations), ("over TLS", 1));
    until("all attempts are released and cleared away", Duration::from_secs(60), || {
        let open = |id: &String| !world.attempt(id).join("released").exists();
        let left: Vec<String> = world.attempts().into_iter().filter(open).collect();
        let containers = world.containers();
        if left.is_empty() && containers.is_empty() { Ok(()) } else { Err((left, containers)) }
    });
    said(world.run(["worker", "revoke", "w1"]));
    agent.end();
    let mut refused = world.agent();
    refused.arg("run").arg("--state-dir").arg(&state).arg("--engine").arg(world.engine.address());
    let refused = refused.output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("was revoked"), "{refused:?}");
    served.end();
    world.assert_nothing_left();
}
