//! Client, controller and agent as three processes: the same answers and receipts as in one, also when each is killed.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::until::until;
use tests::world::{Cli, Engine, Lane, World};

/// A controller and one agent of a world.
pub(super) struct Fleet<'w> {
    world: &'w World,
    pub(super) address: String,
    pub(super) controller: Child,
    pub(super) agent: Child,
}

pub(crate) fn controller(world: &World, listen: &str) -> (Child, String) {
    serve(world.laneyard(), listen)
}

fn serve(mut command: Command, listen: &str) -> (Child, String) {
    command.args(["serve", "--listen", listen]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split([' ', ',']).find(|word| word.starts_with("http"));
    let address = address.unwrap_or_else(|| panic!("serve said `{line}`")).to_owned();
    (child, address)
}

fn agent(world: &World, address: &str, fault: Option<&str>) -> Child {
    let mut command = world.agent();
    command.envs(fault.map(|fault| ("LANEYARD_FAULT", fault)));
    command.args(["run", "--name", "w1", "--controller", address]);
    command.arg("--token-file").arg(world.state().join("controller/token"));
    command.arg("--state-dir").arg(world.state()).arg("--engine").arg(world.engine.address());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl<'w> Fleet<'w> {
    pub(super) fn start(world: &'w World) -> Self {
        Self::with_fault(world, None)
    }

    /// The controller finds its programs in `dir` first.
    pub(super) fn with_programs(world: &'w World, dir: &Path) -> Self {
        let mut command = world.laneyard();
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(dir.to_owned()).chain(std::env::split_paths(&usual));
        command.env("PATH", std::env::join_paths(path).unwrap());
        let (controller, address) = serve(command, "127.0.0.1:0");
        let agent = agent(world, &address, None);
        Self { world, address, controller, agent }
    }

    /// The agent kills itself at a point of an attempt's journal.
    pub(super) fn with_fault(world: &'w World, fault: Option<&str>) -> Self {
        let (controller, address) = controller(world, "127.0.0.1:0");
        let agent = agent(world, &address, fault);
        Self { world, address, controller, agent }
    }

    /// The agent is gone by itself, and comes back without a fault.
    pub(super) fn restart_agent(&mut self) {
        self.agent.wait().unwrap();
        self.agent = agent(self.world, &self.address, None);
    }

    /// The words that name this controller.
    pub(super) fn place(&self) -> [String; 4] {
        let token = self.world.state().join("controller/token").display().to_string();
        ["--controller".to_owned(), self.address.clone(), "--token-file".to_owned(), token]
    }

    pub(super) fn lane(&self, cli: Cli) -> Lane<'w> {
        let token = self.world.state().join("controller/token");
        let lane = self.world.lane(cli).flag("--controller", &self.address);
        lane.flag("--token-file", token.to_str().unwrap())
    }

    /// As by `kill -9`, both at once; then both come back.
    pub(super) fn kill_and_restart(&mut self) {
        for child in [&mut self.agent, &mut self.controller] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let listen = self.address.trim_start_matches("http://").to_owned();
        self.controller = controller(self.world, &listen).0;
        self.agent = agent(self.world, &self.address, None);
    }

    /// Every attempt is released and cleared away; then both are told to stop, and nothing is left.
    pub(super) fn end(mut self) {
        until("all attempts are released and cleared away", Duration::from_secs(60), || {
            let open = |id: &String| !self.world.attempt(id).join("released").exists();
            let left: Vec<String> = self.world.attempts().into_iter().filter(open).collect();
            let containers = self.world.containers();
            if left.is_empty() && containers.is_empty() { Ok(()) } else { Err((left, containers)) }
        });
        for child in [&mut self.agent, &mut self.controller] {
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
            assert!(child.wait().unwrap().success());
        }
        self.world.assert_nothing_left();
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        for child in [&mut self.agent, &mut self.controller] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn keys(receipt: &Value) -> Vec<&String> {
    receipt.as_object().unwrap().keys().collect()
}

#[test]
fn three_processes_give_the_answer_and_the_receipt_of_one() {
    let world = World::on(Engine::Docker);
    world.repository();
    let alone = world.lane(Cli::Claude).says("the same").run();
    alone.assert("complete", 0);
    let fleet = Fleet::start(&world);
    for cli in [Cli::Claude, Cli::Codex] {
        let ended = fleet.lane(cli).flag("--worktree", "direct").says("the same").run();
        ended.assert("complete", 0);
        assert_eq!((ended.answer().as_str(), ended.count.invocations), ("the same", 1));
        if cli == Cli::Claude {
            assert_eq!(keys(&ended.receipt), keys(&alone.receipt), "the same fields in the same order");
        }
    }
    fleet.end();
}

#[test]
fn an_attempt_survives_its_agent_and_its_controller() {
    let world = World::on(Engine::Docker);
    let mut fleet = Fleet::start(&world);
    let mut running = fleet.lane(Cli::Claude).step(json!({"text": "said after the kill", "hold": "gate"})).start();
    running.until_asked();
    fleet.kill_and_restart();
    world.model.release("gate");
    let ended = running.wait();
    ended.assert("complete", 0);
    assert_eq!((ended.answer().as_str(), ended.count.invocations), ("said after the kill", 1));
    fleet.end();
}

#[test]
fn a_signal_to_the_client_cancels_on_the_worker() {
    let world = World::on(Engine::Docker);
    let fleet = Fleet::start(&world);
    let mut running = fleet.lane(Cli::Claude).step(json!({"text": "never said", "hold": "gate"})).start();
    running.until_asked();
    running.signal(Signal::SIGINT);
    running.wait().assert("cancelled", 130);
    world.model.release("gate");
    fleet.end();
}
