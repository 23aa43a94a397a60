//! A supervisor, an agent's listener, and verbs that fail the test when they do not come true in time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent::supervisor::{
    Entry, Listener, Notice, Notices, Phase, Spools, Start, StdinMode, StepId, Supervisor, Token, install,
};
use tempfile::TempDir;
use tokio::time::timeout;

/// Nothing in these tests takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) token: Token,
    pub(crate) process: Child,
    pub(crate) listener: Option<Listener>,
}

impl World {
    /// A supervisor that runs beside the test, without being the first process.
    pub(crate) fn direct() -> Self {
        Self::start(|dir, program, entry, token| {
            let mut command = Command::new(program);
            let words = entry.command();
            command.args(&words[1..]).env_clear();
            for pair in entry.environment(token) {
                let (name, value) = pair.split_once('=').unwrap();
                command.env(name, value);
            }
            command.current_dir(dir);
            command
        })
    }

    /// Starts what `command` says, with an entry whose paths are those of the host.
    pub(crate) fn start(command: impl FnOnce(&Path, &Path, &Entry, &Token) -> Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = install(dir.path()).unwrap();
        let token = Token::generate();
        let listener = Listener::bind(dir.path(), token.clone()).unwrap();
        let entry = Entry {
            run_dir: dir.path().to_str().unwrap().to_owned(),
            supervisor: program.to_str().unwrap().to_owned(),
            home: dir.path().join("home").to_str().unwrap().to_owned(),
            proxy_port: 0,
        };
        let process = command(dir.path(), &program, &entry, &token).stdin(Stdio::null()).spawn().unwrap();
        Self { dir, token, process, listener: Some(listener) }
    }

    pub(crate) async fn call(&self) -> (Supervisor, Notices) {
        self.listener.as_ref().unwrap().accept(PATIENCE).await.unwrap()
    }

    /// The agent dies: its socket and its connections are gone.
    pub(crate) fn agent_dies(&mut self, supervisor: Supervisor, notices: Notices) {
        drop((supervisor, notices));
        self.listener = None;
        fs::remove_file(self.dir.path().join("agent.sock")).unwrap();
    }

    pub(crate) fn agent_returns(&mut self) {
        self.listener = Some(Listener::bind(self.dir.path(), self.token.clone()).unwrap());
    }

    pub(crate) fn spool(&self, step: &str, stream: &str) -> PathBuf {
        self.dir.path().join(format!("{step}.{stream}"))
    }

    pub(crate) fn spools(&self, step: &str) -> Spools {
        let open =
            |stream| -> File { OpenOptions::new().append(true).create(true).open(self.spool(step, stream)).unwrap() };
        Spools { stdout: open("out").into(), stderr: open("err").into() }
    }

    pub(crate) fn out(&self, step: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.spool(step, "out")).unwrap()).into_owned()
    }

    /// Starts a shell line as a step; it must run.
    pub(crate) async fn run(&self, supervisor: &Supervisor, step: &str, line: &str) -> u32 {
        self.begin(supervisor, shell(step, line)).await
    }

    pub(crate) async fn begin(&self, supervisor: &Supervisor, start: Start) -> u32 {
        let spools = self.spools(start.step.as_str());
        match supervisor.start(start, spools).await.unwrap().phase {
            Phase::Running { pid } | Phase::Exited { pid, .. } => pid,
            Phase::NotStarted { errno, message } => panic!("not started: {message} ({errno})"),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn shell(step: &str, line: &str) -> Start {
    program(step, &["/bin/sh", "-c", line])
}

pub(crate) fn program(step: &str, argv: &[&str]) -> Start {
    Start {
        step: StepId::from(step),
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        cwd: "/".to_owned(),
        stdin: StdinMode::Null,
        output_limit: u64::MAX,
        deadline_ms: None,
    }
}

pub(crate) fn with_stdin(start: Start) -> Start {
    Start { stdin: StdinMode::Pipe, ..start }
}

/// The next notice that `wanted` picks something from.
pub(crate) async fn until<T>(notices: &mut Notices, mut wanted: impl FnMut(&Notice) -> Option<T>) -> T {
    let mut seen = Vec::new();
    let search = async {
        loop {
            let notice = notices.next().await;
            if let Some(found) = wanted(&notice) {
                return found;
            }
            assert!(!matches!(notice, Notice::Lost { .. }), "lost after {seen:?}");
            seen.push(notice);
        }
    };
    match timeout(PATIENCE, search).await {
        Ok(found) => found,
        Err(_) => panic!("nothing of the kind came in {PATIENCE:?}"),
    }
}

pub(crate) async fn exited(notices: &mut Notices, name: &str) -> agent::supervisor::End {
    until(notices, |notice| match notice {
        Notice::Exited { step, end } if step.as_str() == name => Some(*end),
        _ => None,
    })
    .await
}

pub(crate) async fn drained(notices: &mut Notices, name: &str) -> agent::supervisor::Streams {
    until(notices, |notice| match notice {
        Notice::Drained { step, streams } if step.as_str() == name => Some(*streams),
        _ => None,
    })
    .await
}

/// Both notices, in whichever order.
pub(crate) async fn finished(
    notices: &mut Notices,
    name: &str,
) -> (agent::supervisor::End, agent::supervisor::Streams) {
    let (mut end, mut all) = (None, None);
    until(notices, |notice| {
        match notice {
            Notice::Exited { step, end: this } if step.as_str() == name => end = Some(*this),
            Notice::Drained { step, streams } if step.as_str() == name => all = Some(*streams),
            _ => {}
        }
        end.zip(all)
    })
    .await
}

/// Resident memory in KiB.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
