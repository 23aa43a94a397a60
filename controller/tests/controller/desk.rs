//! The real program as a client of a served controller.

use std::path::PathBuf;
use std::process::Stdio;

use agent::ids::AttemptId;
use controller::client::Client;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::identity::Secure;
pub(crate) use crate::room::Seen;
use crate::room::{LANE, Room};
use crate::support::{Served, soon};

/// A room, and a controller to talk to.
pub(crate) struct Desk {
    room: Room,
    address: String,
    token: PathBuf,
    ca: Option<PathBuf>,
    state: &'static str,
}

impl Desk {
    pub(crate) fn at(served: &Served) -> Self {
        let room = Room::new();
        std::fs::write(room.path("sheet.md"), "swarm workers: claude:opus@high\n").unwrap();
        Self { room, address: served.address.clone(), token: served.dir.join("token"), ca: None, state: "state" }
    }

    /// At a controller with an identity, with this token.
    pub(crate) fn of(secure: &Secure, secret: &str) -> Self {
        let mut desk = Self { ca: Some(secure.ca()), ..Self::at(&secure.served) };
        desk.bear("first.token", secret);
        desk
    }

    /// From now on with another token, in a file of its own.
    pub(crate) fn bear(&mut self, name: &str, secret: &str) {
        self.token = self.path(name);
        agent::secret_file::write(&self.token, secret).unwrap();
    }

    /// From now on with another state directory: as on another machine.
    pub(crate) fn elsewhere(&mut self, state: &'static str) {
        self.state = state;
    }

    /// From now on through another address of the same controller.
    pub(crate) fn through(&mut self, address: &str) {
        address.clone_into(&mut self.address);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.room.path(name)
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        self.room.json(name)
    }

    /// The program with these words, and where its controller is.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.bare();
        command.args(words).args(["--controller", &self.address]);
        command.arg("--token-file").arg(&self.token).arg("--state-dir").arg(self.path(self.state));
        if let Some(ca) = &self.ca {
            command.arg("--ca").arg(ca);
        }
        command
    }

    fn bare(&self) -> Command {
        let mut command = Command::from(self.room.command(env!("CARGO_BIN_EXE_laneyard")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Starts a lane under the name `pstack-runner`, configured by the text of a file.
    pub(crate) fn compatible(&self, config: &str) -> Child {
        let (program, file) = (self.path("pstack-runner"), self.path("config.toml"));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_laneyard"), &program).unwrap();
        let (address, token) = (&self.address, self.token.display());
        std::fs::write(&file, format!("{config}[controller]\nurl = '{address}'\ntoken-file = '{token}'\n")).unwrap();
        let mut command = Command::from(self.room.command(program));
        command.args(LANE.split_whitespace()).env("LANEYARD_CONFIG", file).env("LANEYARD_STATE", self.path(self.state));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    }

    /// Runs it to its end.
    pub(crate) async fn run(&self, words: &[&str]) -> Seen {
        Seen(soon(self.command(words).output()).await.unwrap())
    }

    /// Starts it.
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        self.command(words).spawn().unwrap()
    }

    /// Runs it on the same machine, with nothing of its controller but what these variables say.
    pub(crate) async fn run_with(&self, words: &[&str], variables: &[(&str, &str)]) -> Seen {
        let mut command = self.bare();
        command.args(words).arg("--state-dir").arg(self.path(self.state)).envs(variables.iter().copied());
        Seen(soon(command.output()).await.unwrap())
    }

    /// Runs it with nothing but these variables.
    pub(crate) async fn run_plain(&self, words: &[&str], variables: &[(&str, &str)]) -> Seen {
        Seen(soon(self.bare().args(words).envs(variables.iter().copied()).output()).await.unwrap())
    }

    /// Runs a word that talks to no controller.
    pub(crate) async fn alone(&self, words: &[&str]) -> Seen {
        Seen(soon(self.bare().args(words).output()).await.unwrap())
    }

    /// Starts a lane, and waits until the controller has it.
    pub(crate) async fn lane(&self, client: &Client, words: &[&str]) -> (Child, AttemptId) {
        self.lane_that("read-only", client, words).await
    }

    /// The same, in another mode.
    pub(crate) async fn lane_that(&self, mode: &str, client: &Client, words: &[&str]) -> (Child, AttemptId) {
        let mut command = self.command(&["run"]);
        command.args(LANE.replace("read-only", mode).split_whitespace());
        let child = command.args(words).spawn().unwrap();
        (child, submitted(client).await)
    }

    /// What the policy makes of the lane's receipt.
    pub(crate) async fn normalized(&self) -> Value {
        let receipt = self.path("receipt.json");
        let words = ["policy", "normalize", "--sheet", "sheet.md", "--role", "swarm workers", "--parent", "codex"];
        let words = [&words[..], &["--mode", "read-only", "--receipt", receipt.to_str().unwrap()]].concat();
        let seen = self.alone(&words).await;
        assert_eq!(seen.code(), 0, "{}", seen.err());
        serde_json::from_str::<Value>(&seen.out()).unwrap()["event"].clone()
    }
}

/// Waits until the controller has an attempt.
pub(crate) async fn submitted(client: &Client) -> AttemptId {
    let submitted = async {
        loop {
            if let Some(view) = client.attempts(None, 1).await.unwrap().items.pop() {
                return view.attempt;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    soon(submitted).await
}

/// Waits for the end of a started program.
pub(crate) async fn ended(child: Child) -> Seen {
    Seen(soon(child.wait_with_output()).await.unwrap())
}

impl Seen {
    pub(crate) fn signal(&self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.0.status)
    }
    /// Lines of JSON on stdout.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
