//! Building, starting and reading one `laneyard run`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{LIMIT, World};
use crate::until::until;

/// Provider CLIs that these tests run for real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cli {
    Claude,
    Codex,
}

/// What a lane may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    ReadOnly,
    Writer,
}

impl Cli {
    const fn words(self) -> [&'static str; 3] {
        // Provider, a model that the fake API serves, and a parent for which it is no native lane.
        match self {
            Self::Claude => ["claude", "fake-model", "codex"],
            Self::Codex => ["codex", "gpt-5.6-sol", "claude"],
        }
    }

    /// A step in which the model runs a shell command.
    #[must_use]
    pub fn shell(self, command: &str) -> Value {
        match self {
            Self::Claude => {
                json!({"text": "running", "tool": "Bash", "input": {"command": command, "description": "d"}})
            }
            Self::Codex => {
                let command = Value::from(command);
                json!({"text": "running", "tool": "exec", "input":
                    format!("const r = await tools.exec_command({{cmd:{command}}}); text(JSON.stringify(r));")})
            }
        }
    }

    /// A step in which the model writes a file by the CLI's own tool.
    #[must_use]
    pub fn write(self, path: &str, content: &str) -> Value {
        match self {
            Self::Claude => {
                json!({"text": "writing", "tool": "Write", "input": {"file_path": path, "content": content}})
            }
            Self::Codex => {
                let lines: String = content.lines().map(|line| format!("+{line}\n")).collect();
                let patch = Value::from(format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"));
                json!({"text": "writing", "tool": "exec", "input":
                    format!("text(JSON.stringify(await tools.apply_patch({patch})));")})
            }
        }
    }
}

/// A lane that has not started. The prompt is a script for the fake model, under an id of its own.
pub struct Lane<'w> {
    world: &'w World,
    cli: Cli,
    number: u32,
    mode: Mode,
    model: String,
    prompt: Option<Vec<u8>>,
    steps: Vec<Value>,
    words: Vec<OsString>,
    environment: Vec<(String, String)>,
    fault: Option<String>,
    cwd: PathBuf,
    apart: Option<PathBuf>,
}

impl<'w> Lane<'w> {
    pub(super) fn new(world: &'w World, cli: Cli, number: u32) -> Self {
        let [_, model, _] = cli.words();
        Self {
            world,
            cli,
            number,
            mode: Mode::ReadOnly,
            model: model.to_owned(),
            prompt: None,
            steps: Vec::new(),
            words: Vec::new(),
            environment: Vec::new(),
            fault: None,
            cwd: world.path("work"),
            apart: None,
        }
    }

    /// By default read-only.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Model name as requested.
    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        model.clone_into(&mut self.model);
        self
    }

    /// The next step of the model; see [`crate::fake_model`].
    #[must_use]
    pub fn step(mut self, step: Value) -> Self {
        self.steps.push(step);
        self
    }

    /// A step that only says something.
    #[must_use]
    pub fn says(self, text: &str) -> Self {
        self.step(json!({ "text": text }))
    }

    /// A prompt in place of the script.
    #[must_use]
    pub fn prompt(mut self, prompt: impl Into<Vec<u8>>) -> Self {
        self.prompt = Some(prompt.into());
        self
    }

    /// A further word on the command line.
    #[must_use]
    pub fn word(mut self, word: impl Into<OsString>) -> Self {
        self.words.push(word.into());
        self
    }

    /// A flag with its value.
    #[must_use]
    pub fn flag(self, flag: &str, value: &str) -> Self {
        self.word(flag).word(value)
    }

    /// A variable of the caller; an empty value removes one of the defaults.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Kills the program at this point of its journal: `before:judged`, `after:step-intent-workload`, …
    #[must_use]
    pub fn fault(mut self, point: &str) -> Self {
        self.fault = Some(point.to_owned());
        self
    }

    /// Another working directory than the world's `work`.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    /// Runs in `cwd`, where only its own client sees the files of `files`: to everybody else the directory is empty.
    #[must_use]
    pub fn apart(mut self, files: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Self {
        self.apart = Some(files.into());
        self.cwd = cwd.into();
        self
    }

    /// The id under which the fake model counts.
    #[must_use]
    pub fn id(&self) -> String {
        format!("lane-{}", self.number)
    }

    /// The command line, without starting it.
    #[must_use]
    pub fn command(&self) -> Command {
        let world = self.world;
        let at = |name: &str| world.path(&format!("lanes/{}/{name}", self.number));
        world.directory(&format!("lanes/{}", self.number));
        let script = json!({"id": self.id(), "steps": self.steps});
        let prompt = self.prompt.clone().unwrap_or_else(|| format!("Do it. FAKE:{script}\n").into_bytes());
        let prompt = world.file(&format!("lanes/{}/prompt.md", self.number), prompt);
        let [provider, _, parent] = self.cli.words();
        let mut command = match &self.apart {
            Some(files) => world.laneyard_apart(files, &self.cwd),
            None => world.laneyard(),
        };
        command.arg("run");
        let mode = if self.mode == Mode::ReadOnly { "read-only" } else { "isolated-write" };
        for (flag, value) in [("mode", mode), ("parent", parent), ("provider", provider), ("effort", "high")] {
            command.arg(format!("--{flag}")).arg(value);
        }
        command.arg("--model").arg(&self.model).arg("--prompt").arg(&prompt).arg("--cwd").arg(&self.cwd);
        command.arg("--output").arg(at("out.md")).arg("--receipt").arg(at("receipt.json"));
        // With a controller the engine is the worker's.
        if !self.words.iter().any(|word| word == "--controller") {
            command.arg("--engine").arg(world.engine.address());
        }
        command.args(&self.words);
        let url = world.model.url();
        let defaults = match self.cli {
            Cli::Claude => [("ANTHROPIC_BASE_URL", url), ("ANTHROPIC_API_KEY", "sk-fake-key".to_owned())],
            Cli::Codex => [("OPENAI_BASE_URL", format!("{url}/v1")), ("CODEX_API_KEY", "sk-fake-key".to_owned())],
        };
        command.envs(defaults).env("LANEYARD_MAX_RETRIES", "0");
        for (name, value) in &self.environment {
            if value.is_empty() {
                command.env_remove(name)
            } else {
                command.env(name, value)
            };
        }
        if let Some(fault) = &self.fault {
            command.env("LANEYARD_FAULT", fault);
        }
        command
    }

    /// Starts it.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn start(self) -> Running<'w> {
        let at = |name: &str| self.world.path(&format!("lanes/{}/{name}", self.number));
        let mut command = self.command();
        let (out, err) = (at("stdout"), at("stderr"));
        command.stdin(Stdio::null());
        command.stdout(File::create(&out).expect("a file")).stderr(File::create(&err).expect("a file"));
        let child = command.spawn().expect("laneyard starts");
        Running { world: self.world, number: self.number, child }
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(self) -> Ended {
        self.start().wait()
    }
}

/// A lane whose program runs.
pub struct Running<'w> {
    world: &'w World,
    number: u32,
    child: Child,
}

impl<'w> Running<'w> {
    /// The program's process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The id under which the fake model counts.
    #[must_use]
    pub fn id(&self) -> String {
        format!("lane-{}", self.number)
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid()), signal);
    }

    /// The attempt's id, once it was accepted.
    ///
    /// # Panics
    /// It was not accepted in time.
    #[must_use]
    pub fn attempt(&self) -> String {
        let receipt = self.world.path(&format!("lanes/{}/receipt.json", self.number)).to_string_lossy().into_owned();
        until("the attempt is accepted", LIMIT, || {
            let found = self.world.attempts().into_iter().find(|attempt| {
                let text = fs::read_to_string(self.world.attempt(attempt).join("assignment.json")).unwrap_or_default();
                text.contains(&receipt)
            });
            found.ok_or_else(|| self.world.attempts())
        })
    }

    /// Waits until the model was asked: the provider runs.
    ///
    /// # Panics
    /// It was not asked in time, or the program ended before.
    pub fn until_asked(&mut self) {
        let id = self.id();
        until("the model is asked", LIMIT, || {
            if self.world.model.count(&id).requests > 0 {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the program ended before the model was asked: {status}\n{}", self.text("stderr"));
            }
            Err(self.world.model.counts())
        });
    }

    /// What the program has said so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.text("stderr")
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// It does not end in time.
    #[must_use]
    pub fn wait(mut self) -> Ended {
        let status = until("laneyard run ends", LIMIT, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err((other, self.text("stderr"))),
        });
        self.ended(status.code())
    }

    /// Waits for the end of a program that is being killed; the lane may go on without it.
    ///
    /// # Panics
    /// It does not end in time.
    #[must_use]
    pub fn wait_killed(mut self) -> Killed<'w> {
        let status = until("laneyard run is killed", LIMIT, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err((other, self.text("stderr"))),
        });
        Killed { code: status.code(), stderr: self.text("stderr"), running: self }
    }

    /// What the lane has left so far, with the program's exit code.
    #[must_use]
    pub fn ended(&self, code: Option<i32>) -> Ended {
        let output = self.world.path(&format!("lanes/{}/out.md", self.number));
        Ended {
            code,
            stdout: self.text("stdout"),
            stderr: self.text("stderr"),
            receipt: serde_json::from_str(&self.text("receipt.json")).unwrap_or(Value::Null),
            output: fs::read(output).ok(),
            count: self.world.model.count(&self.id()),
        }
    }

    fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.world.path(&format!("lanes/{}/{name}", self.number))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A lane whose program was killed.
pub struct Killed<'w> {
    /// `None` if a signal ended it, as it should.
    pub code: Option<i32>,
    pub stderr: String,
    running: Running<'w>,
}

impl Killed<'_> {
    /// What the lane has left by now.
    #[must_use]
    pub fn again(&self) -> Ended {
        self.running.ended(self.code)
    }
}

/// A lane whose program has ended.
#[derive(Debug)]
pub struct Ended {
    /// `None` if a signal ended the program.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// `null` if there is no whole receipt.
    pub receipt: Value,
    /// Content of the output file, if it exists.
    pub output: Option<Vec<u8>>,
    /// What the model was asked.
    pub count: crate::fake_model::Count,
}

impl Ended {
    /// The receipt's status, or what there was instead.
    #[must_use]
    pub fn status(&self) -> &str {
        self.receipt["status"].as_str().unwrap_or("no receipt")
    }

    /// Asserts how the lane ended, with everything that explains why not.
    ///
    /// # Panics
    /// It ended otherwise.
    #[track_caller]
    pub fn assert(&self, status: &str, code: i32) -> &Self {
        let found = (self.status(), self.code);
        assert_eq!(found, (status, Some(code)), "receipt: {:#}\nstderr: {}", self.receipt, self.stderr);
        self
    }

    /// The answer as text.
    #[must_use]
    pub fn answer(&self) -> String {
        String::from_utf8_lossy(self.output.as_deref().unwrap_or_default()).into_owned()
    }
}
