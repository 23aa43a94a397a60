//! A fleet set up as the manual says: init, serve, worker token, join, run, over TLS and with certificates only.

use std::fs::File;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tests::until::until;
use tests::world::{Cli, Engine, Lane, Mode, World};

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

/// A controller with an identity, over TLS.
struct Site<'w> {
    world: &'w World,
    served: Ended,
    address: String,
}

impl<'w> Site<'w> {
    fn start(world: &'w World) -> Self {
        said(world.run(["init", "--name", "localhost"]));
        let (served, address) = controller(world, "127.0.0.1:0");
        Self { world, served: Ended(served), address }
    }

    /// Runs the command that lets the worker `w1` join.
    fn join(&self, more: &[&str]) -> Output {
        let printed = said(self.world.run(["worker", "token", "--name", "w1"]));
        let words: Vec<&str> = printed.split(' ').collect();
        assert_eq!(words[0], "laneyard-agent");
        assert!(words[2].starts_with("https://localhost:"), "{printed}");
        let mut command = self.world.agent();
        command.args(&words[1..]).args(more).arg("--state-dir").arg(self.world.state()).output().unwrap()
    }

    fn agent(&self) -> Command {
        let mut run = self.world.agent();
        run.arg("run").arg("--state-dir").arg(self.world.state()).arg("--engine").arg(self.world.engine.address());
        run.stdin(Stdio::null()).stdout(Stdio::null());
        run
    }

    /// A lane by a client that has the authority and a token.
    fn lane(&self) -> Lane<'w> {
        let token = self.world.path("work").join("ada.token");
        if !token.exists() {
            let words = ["token", "create", "--role", "submit", "--name", "ada", "--out", token.to_str().unwrap()];
            said(self.world.run(words));
        }
        let ca = self.world.state().join("controller/identity/ca.pem");
        let lane = self.world.lane(Cli::Claude).flag("--controller", &self.address);
        lane.flag("--ca", ca.to_str().unwrap()).flag("--token-file", token.to_str().unwrap())
    }

    fn until_all_is_released(&self) {
        until("all attempts are released and cleared away", Duration::from_secs(60), || {
            let open = |id: &String| !self.world.attempt(id).join("released").exists();
            let left: Vec<String> = self.world.attempts().into_iter().filter(open).collect();
            let containers = self.world.containers();
            if left.is_empty() && containers.is_empty() { Ok(()) } else { Err((left, containers)) }
        });
    }
}

#[test]
fn a_fleet_that_joined_over_tls_runs_a_lane_until_its_worker_is_revoked() {
    let world = World::on(Engine::Docker);
    world.repository();
    let mut site = Site::start(&world);
    let joined = site.join(&[]);
    let (next, place) = (String::from_utf8(joined.stderr.clone()).unwrap(), world.state());
    assert_eq!(next, format!("Next: laneyard-agent run --state-dir {}\n", place.display()));
    let text = said(joined);
    assert!(text.starts_with("worker `w1` has joined https://localhost:") && text.lines().count() == 1, "{text}");
    let again = site.join(&[]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("has joined"), "{again:?}");
    let mut agent = Ended(site.agent().stderr(Stdio::null()).spawn().unwrap());
    let ended = site.lane().says("over TLS").run();
    ended.assert("complete", 0);
    assert_eq!((ended.answer().as_str(), ended.count.invocations), ("over TLS", 1));
    site.until_all_is_released();
    said(world.run(["worker", "revoke", "w1"]));
    agent.end();
    let refused = site.agent().output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("was revoked"), "{refused:?}");
    site.served.end();
    world.assert_nothing_left();
}

#[test]
fn a_revoked_agent_says_once_what_happened_and_what_to_do_and_doing_it_brings_it_back() {
    let world = World::on(Engine::Docker);
    world.repository();
    let mut site = Site::start(&world);
    said(site.join(&[]));
    let path = world.path("agent.log");
    let mut agent = Ended(site.agent().stderr(File::create(&path).unwrap()).spawn().unwrap());
    let logged = |part: &str| -> Vec<String> {
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    };
    let until_logged = |part: &str, count: usize| {
        until(part, Duration::from_secs(60), || {
            let found = logged(part);
            if found.len() >= count { Ok(()) } else { Err(std::fs::read_to_string(&path).unwrap()) }
        });
    };
    until_logged("registered worker=w1", 1);
    said(world.run(["worker", "revoke", "w1"]));
    until_logged("in no more", 1);
    let told = logged("in no more").remove(0);
    for part in [
        " ERROR ",
        "the controller lets worker `w1` in no more",
        "was revoked",
        "laneyard worker token",
        "laneyard-agent join --replace",
        "in the same state directory",
        "what runs here goes on",
    ] {
        assert!(told.contains(part), "`{part}` is not in: {told}");
    }

    said(site.join(&["--replace"]));
    until_logged("this worker joined anew", 1);
    until_logged("registered worker=w1", 2);
    assert_eq!(logged("in no more").len(), 1, "it is said once");
    let ended = site.lane().says("let in again").run();
    ended.assert("complete", 0);
    assert_eq!(ended.answer(), "let in again");
    site.until_all_is_released();
    agent.end();
    site.served.end();
    world.assert_nothing_left();
}

#[test]
fn a_writers_result_comes_home_when_its_worker_is_revoked_and_let_in_again() {
    let world = World::on(Engine::Docker);
    let repository = world.repository();
    let mut site = Site::start(&world);
    said(site.join(&[]));
    let path = world.path("agent.log");
    let mut agent = Ended(site.agent().stderr(File::create(&path).unwrap()).spawn().unwrap());
    let lane = site.lane().mode(Mode::Writer).step(Cli::Claude.shell("echo new > fresh"));
    let mut running = lane.step(json!({"text": "done", "hold": "gate"})).start();
    running.until_asked();
    said(world.run(["worker", "revoke", "w1"]));
    world.model.release("gate");
    until("the result waits", Duration::from_secs(60), || {
        let log = std::fs::read_to_string(&path).unwrap();
        if log.contains("until the controller lets this worker in again") { Ok(()) } else { Err(log) }
    });
    said(site.join(&["--replace"]));
    let ended = running.wait();
    ended.assert("complete", 0);
    let result = &ended.receipt["result"];
    assert_eq!((&result["outcome"], &result["keptBy"]), (&json!("applied"), &json!("controller")), "{result:#}");
    assert_eq!(std::fs::read(repository.join("fresh")).unwrap(), b"new\n");
    site.until_all_is_released();
    agent.end();
    site.served.end();
    world.assert_nothing_left();
}
