//! A controller, two workers and a client, each on a host of its own, set up as the manual says.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{Host, Network};
use crate::fake_model::FakeModel;
use crate::until::until;
use crate::world::{Engine, LIMIT, World};

/// Names of the worker hosts.
pub const WORKERS: [&str; 2] = ["worker1", "worker2"];
/// Port of the controller.
const PORT: u16 = 7410;

/// See the module. Processes end with it.
pub struct Fleet {
    pub world: World,
    pub network: Network,
    pub model: FakeModel,
    model_url: String,
    processes: Vec<(String, Child)>,
    lanes: u32,
    options: Options,
    /// What the engine had before: networks and volumes.
    pub(super) before: BTreeSet<String>,
}

/// What differs from test to test.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Further words of `laneyard serve`.
    pub serve: Vec<String>,
    /// Variables of one host's programs: host, name, value.
    pub environment: Vec<(String, String, String)>,
}

impl Fleet {
    /// Everything up, both workers joined and registered.
    ///
    /// # Panics
    /// Something does not come up.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let world = World::on(Engine::Docker);
        world.repository();
        let network = Network::new(&["controller", WORKERS[0], WORKERS[1], "client"]);
        let (model, model_url) = network.model();
        let before = networks_and_volumes(world.engine);
        let mut fleet = Self { world, network, model, model_url, processes: Vec::new(), lanes: 0, options, before };
        let address = fleet.network.host("controller").address().to_string();
        let dir = fleet.controller_dir();
        fleet.said("controller", "laneyard", &["init", "--name", &address, "--dir", text(&dir)]);
        fleet.start_controller();
        let token = fleet.token();
        let words =
            ["token", "create", "--role", "submit", "--name", "client", "--out", text(&token), "--dir", text(&dir)];
        fleet.said("controller", "laneyard", &words);
        for worker in WORKERS {
            let printed =
                fleet.said("controller", "laneyard", &["worker", "token", "--name", worker, "--dir", text(&dir)]);
            let state = fleet.state(worker);
            let mut words: Vec<&str> = printed.split_whitespace().skip(1).collect();
            words.extend(["--state-dir", text(&state)]);
            fleet.said(worker, "laneyard-agent", &words);
            fleet.start_agent(worker);
        }
        until("both workers are ready", Duration::from_secs(30), || {
            let listed = fleet.workers();
            if listed.iter().filter(|worker| worker["state"] == "ready").count() == 2 { Ok(()) } else { Err(listed) }
        });
        fleet
    }

    /// State directory of a host's program.
    #[must_use]
    pub fn state(&self, host: &str) -> PathBuf {
        self.world.path(&format!("hosts/{host}"))
    }

    fn controller_dir(&self) -> PathBuf {
        self.state("controller").join("controller")
    }

    fn token(&self) -> PathBuf {
        self.world.path("client.token")
    }

    /// The controller's address as clients name it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}:{PORT}", self.network.host("controller").address())
    }

    /// Variables of a host's programs from their next start on, in place of former ones.
    pub fn set_environment(&mut self, host: &str, variables: Vec<(String, String)>) {
        self.options.environment.retain(|(of, ..)| of != host);
        let named = variables.into_iter().map(|(name, value)| (host.to_owned(), name, value));
        self.options.environment.extend(named);
    }

    /// A program on a host, with that host's state directory.
    #[must_use]
    pub fn command(&self, host: &str, program: &str) -> Command {
        let state = self.state(host);
        fs::create_dir_all(&state).expect("a directory");
        let mut command = if program == "laneyard" { self.world.laneyard() } else { self.world.agent() };
        command.env("LANEYARD_STATE", &state).stdin(Stdio::null());
        for (_, name, value) in self.options.environment.iter().filter(|(of, ..)| of == host) {
            command.env(name, value);
        }
        self.network.host(host).place(&mut command);
        command
    }

    /// Runs a program on a host to its end; it must succeed. Gives its standard output.
    ///
    /// # Panics
    /// It fails.
    #[track_caller]
    pub fn said(&self, host: &str, program: &str, words: &[&str]) -> String {
        let output = self.command(host, program).args(words).output().expect("the program runs");
        assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// `laneyard` on the client's host, against the controller.
    #[must_use]
    pub fn client(&self, words: &[&str]) -> Command {
        let mut command = self.command("client", "laneyard");
        command.args(words).args(self.credentials());
        command
    }

    /// The same, run to its end.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn asked(&self, words: &[&str]) -> Output {
        self.client(words).output().expect("laneyard runs")
    }

    fn credentials(&self) -> [String; 6] {
        let ca = self.controller_dir().join("identity/ca.pem");
        let of = |path: &Path| text(path).to_owned();
        ["--controller".into(), self.url(), "--ca".into(), of(&ca), "--token-file".into(), of(&self.token())]
    }

    /// The workers as the controller lists them.
    #[must_use]
    pub fn workers(&self) -> Vec<Value> {
        self.listed(&["workers", "list", "--json"])
    }

    /// What a command of the client prints, one object a line.
    fn listed(&self, words: &[&str]) -> Vec<Value> {
        let printed = self.asked(words).stdout;
        printed.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    /// Starts (again) the controller, and waits until it listens.
    ///
    /// # Panics
    /// It does not.
    pub fn start_controller(&mut self) {
        let mut command = self.command("controller", "laneyard");
        let listen = format!("{}:{PORT}", self.network.host("controller").address());
        let dir = self.controller_dir();
        command.args(["serve", "--listen", &listen, "--dir", text(&dir)]).args(&self.options.serve);
        command.stdout(Stdio::piped()).stderr(self.log("controller"));
        let mut child = command.spawn().expect("the controller starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert!(line.starts_with("listening on https://"), "serve said `{line}`");
        self.processes.push(("controller".to_owned(), child));
    }

    /// Starts (again) a worker's agent.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start_agent(&mut self, worker: &str) {
        let state = self.state(worker);
        let mut command = self.command(worker, "laneyard-agent");
        command.args(["run", "--state-dir", text(&state), "--labels", &format!("host={worker}")]);
        command.arg("--engine").arg(self.world.engine.address()).stdout(Stdio::null()).stderr(self.log(worker));
        let child = command.spawn().expect("the agent starts");
        self.processes.push((worker.to_owned(), child));
    }

    /// As by `kill -9`; the program's attempts go on or wait for it.
    ///
    /// # Panics
    /// It does not run.
    pub fn kill(&mut self, name: &str) {
        let at =
            self.processes.iter().position(|(of, _)| of == name).unwrap_or_else(|| panic!("`{name}` does not run"));
        let (_, mut child) = self.processes.swap_remove(at);
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Waits for the death of a program at its fault point.
    ///
    /// # Panics
    /// It does not die, or otherwise.
    #[track_caller]
    pub fn until_killed(&mut self, name: &str) {
        let at =
            self.processes.iter().position(|(of, _)| of == name).unwrap_or_else(|| panic!("`{name}` does not run"));
        let (_, mut child) = self.processes.swap_remove(at);
        let status = until(&format!("{name} dies"), LIMIT, || child.try_wait().ok().flatten().ok_or(()));
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(9), "{name} died by itself: {}", self.logged(name));
    }

    /// Attempts that a client named: their submission was acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> Vec<String> {
        let lanes = fs::read_dir(self.world.path("lanes")).into_iter().flatten().flatten();
        let said = lanes.filter_map(|lane| fs::read_to_string(lane.path().join("stderr")).ok());
        said.filter_map(|said| named(&said)).collect()
    }

    /// Starts what was killed.
    pub fn restart(&mut self, name: &str) {
        if name == "controller" { self.start_controller() } else { self.start_agent(name) }
    }

    fn log(&self, name: &str) -> fs::File {
        let path = self.world.path(&format!("{name}.log"));
        fs::OpenOptions::new().create(true).append(true).open(path).expect("a log")
    }

    /// What a program of this fleet logged.
    #[must_use]
    pub fn logged(&self, name: &str) -> String {
        fs::read_to_string(self.world.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Starts a lane on the client's host: the model serves these steps.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn lane(&mut self, steps: &[Value], words: &[&str]) -> Lane {
        self.lane_that("read-only", steps, words)
    }

    /// The same for a lane that may write.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn writer(&mut self, steps: &[Value], words: &[&str]) -> Lane {
        self.lane_that("isolated-write", steps, words)
    }

    fn lane_that(&mut self, mode: &str, steps: &[Value], words: &[&str]) -> Lane {
        self.lanes += 1;
        let id = format!("net-{}", self.lanes);
        let dir = self.world.directory(&format!("lanes/{id}"));
        let prompt = format!("Do it. FAKE:{}\n", json!({"id": id, "steps": steps}));
        fs::write(dir.join("prompt.md"), prompt).expect("a prompt");
        let at = |name: &str| dir.join(name);
        let mut command = self.command("client", "laneyard");
        command.args(["run", "--verbose", "--mode", mode, "--parent", "codex", "--provider", "claude"]);
        command.args(["--model", "fake-model", "--effort", "high", "--cwd", text(&self.world.path("work"))]);
        for (flag, file) in [("--prompt", "prompt.md"), ("--output", "out.md"), ("--receipt", "receipt.json")] {
            command.arg(flag).arg(at(file));
        }
        command.args(self.credentials()).args(words);
        command.env("ANTHROPIC_BASE_URL", &self.model_url).env("ANTHROPIC_API_KEY", "sk-fake-key");
        command.env("LANEYARD_MAX_RETRIES", "0").stdout(Stdio::null());
        command.stderr(fs::File::create(at("stderr")).expect("a file"));
        let child = command.spawn().expect("laneyard starts");
        Lane { id, dir, child }
    }

    /// Waits until the model was asked by this lane.
    ///
    /// # Panics
    /// It was not in time.
    #[track_caller]
    pub fn until_asked(&self, lane: &Lane) {
        until("the model is asked", LIMIT, || {
            if self.model.count(&lane.id).requests > 0 { Ok(()) } else { Err(lane.stderr()) }
        });
    }

    /// The attempts as the client lists them.
    #[must_use]
    pub fn attempts(&self) -> Vec<Value> {
        self.listed(&["attempts", "--json"])
    }

    /// The kept events of an attempt, as the controller has them.
    #[must_use]
    pub fn events(&self, attempt: &str) -> Vec<Value> {
        self.listed(&["logs", attempt, "--json"])
    }

    /// Bytes of the largest pack that a host's program has received a part of.
    #[must_use]
    pub fn arriving(&self, host: &str) -> u64 {
        let (mut open, mut most) = (vec![self.state(host)], 0);
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    // Neither attempts nor objects: those are many and hold no packs on their way.
                    if !["attempts", "git", "run"].iter().any(|name| path.ends_with(name)) {
                        open.push(path);
                    }
                } else if path.extension().is_some_and(|ending| ending == "part") {
                    most = entry.metadata().map_or(most, |meta| most.max(meta.len()));
                }
            }
        }
        most
    }

    /// A host.
    #[must_use]
    pub fn host(&self, name: &str) -> &Host {
        self.network.host(name)
    }

    /// Everything that a fleet with nothing open must be: see the invariants (a) to (e).
    ///
    /// # Panics
    /// One of them does not hold.
    #[track_caller]
    pub fn assert_settled(&self) {
        super::invariants::assert_settled(self);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for (_, child) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
        for worker in WORKERS {
            let owner = fs::read_to_string(self.state(worker).join("owner")).unwrap_or_default();
            for container in self.world.engine.containers(&format!("laneyard.owner={}", owner.trim())) {
                self.world.engine.remove(&container.id);
            }
        }
        if std::thread::panicking() {
            for name in ["controller", WORKERS[0], WORKERS[1]] {
                let log = self.logged(name);
                let tail: Vec<&str> = log.lines().rev().take(15).collect();
                eprintln!("--- {name}, newest first:\n{}", tail.join("\n"));
            }
        }
    }
}

/// A lane whose client runs.
pub struct Lane {
    pub id: String,
    dir: PathBuf,
    child: Child,
}

impl Lane {
    /// What the client said so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.dir.join("stderr")).unwrap_or_default()
    }

    /// The attempt's id, once the client said it.
    ///
    /// # Panics
    /// It did not in time.
    #[must_use]
    pub fn attempt(&self) -> String {
        until("the client names its attempt", LIMIT, || {
            let said = self.stderr();
            named(&said).ok_or(said)
        })
    }

    /// Waits until the client says something.
    ///
    /// # Panics
    /// It does not in time.
    #[track_caller]
    pub fn until_said(&self, part: &str) {
        until(&format!("the client says `{part}`"), LIMIT, || {
            let said = self.stderr();
            if said.contains(part) { Ok(()) } else { Err(said) }
        });
    }

    /// Sends the client a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// True once the client has ended.
    #[must_use]
    pub fn is_over(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits for the client's end; gives its exit code.
    ///
    /// # Panics
    /// It does not end in time.
    #[track_caller]
    pub fn wait(&mut self) -> Option<i32> {
        let (child, dir) = (&mut self.child, &self.dir);
        let said = || fs::read_to_string(dir.join("stderr")).unwrap_or_default();
        until("the client ends", LIMIT, || match child.try_wait() {
            Ok(Some(status)) => Ok(status.code()),
            other => Err((other, said())),
        })
    }

    /// Waits for the end of a lane that delivers this answer.
    ///
    /// # Panics
    /// It ends otherwise.
    #[track_caller]
    pub fn delivers(&mut self, answer: &str) {
        let code = self.wait();
        let receipt = self.receipt();
        assert_eq!((code, receipt["status"].as_str()), (Some(0), Some("complete")), "{receipt:#}\n{}", self.stderr());
        assert_eq!(fs::read_to_string(self.dir.join("out.md")).unwrap_or_default(), answer);
    }

    /// Where its answer is.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.dir.join("out.md")
    }

    /// The receipt's file; null if there is no whole one.
    #[must_use]
    pub fn receipt(&self) -> Value {
        let file = fs::read_to_string(self.dir.join("receipt.json")).unwrap_or_default();
        serde_json::from_str(&file).unwrap_or(Value::Null)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The attempt that a client names.
fn named(said: &str) -> Option<String> {
    said.lines().find_map(|line| line.strip_prefix("attempt ")?.split(';').next().map(str::to_owned))
}

/// What an engine has beside containers and images.
pub(super) fn networks_and_volumes(engine: Engine) -> BTreeSet<String> {
    let networks = engine.networks().into_iter().map(|name| format!("network {name}"));
    networks.chain(engine.volumes().into_iter().map(|name| format!("volume {name}"))).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}
