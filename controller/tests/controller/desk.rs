//! The real program as a client of a served controller.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use agent::ids::AttemptId;
use controller::client::Client;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::identity::Secure;
use crate::support::{Served, soon};

/// A directory with a prompt and a working directory, and a controller to talk to.
pub(crate) struct Desk {
    dir: tempfile::TempDir,
    address: String,
    token: PathBuf,
    ca: Option<PathBuf>,
    state: &'static str,
}

impl Desk {
    pub(crate) fn at(served: &Served) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("repo")).unwrap();
        std::fs::write(dir.path().join("prompt.md"), "say hello\n").unwrap();
        std::fs::write(dir.path().join("sheet.md"), "swarm workers: claude:opus@high\n").unwrap();
        Self { dir, address: served.address.clone(), token: served.dir.join("token"), ca: None, state: "state" }
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
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.path(name)).unwrap()).unwrap()
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneyard"));
        command.current_dir(self.dir.path()).env_clear().env("HOME", self.path("home"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs it to its end.
    pub(crate) async fn run(&self, words: &[&str]) -> Seen {
        Seen(soon(self.command(words).output()).await.unwrap())
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
        let mut command = self.command(&["run", "--mode", mode, "--parent", "codex", "--provider", "claude"]);
        command.args("--model opus --effort high --prompt prompt.md --cwd repo --output out.md".split(' '));
        let child = command.args(["--receipt", "receipt.json"]).args(words).spawn().unwrap();
        let submitted = async {
            loop {
                if let Some(view) = client.attempts(None, 1).await.unwrap().items.pop() {
                    return view.attempt;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        (child, soon(submitted).await)
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

/// Waits for the end of a started program.
pub(crate) async fn ended(child: Child) -> Seen {
    Seen(soon(child.wait_with_output()).await.unwrap())
}

/// What a program showed.
pub(crate) struct Seen(Output);

impl Seen {
    pub(crate) fn code(&self) -> i32 {
        self.0.status.code().unwrap()
    }
    pub(crate) fn signal(&self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.0.status)
    }
    pub(crate) fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }
    pub(crate) fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }
    /// Lines of JSON on stdout.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
