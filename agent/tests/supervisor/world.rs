//! A supervisor, an agent's listener, and verbs that fail the test when they do not come true in time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
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
    container: Option<String>,
}

impl World {
    /// A supervisor that runs beside the test, without being the first process.
    pub(crate) fn direct() -> Self {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let entry = Entry {
            run_dir: text(dir.path().to_owned()),
            supervisor: text(install(dir.path()).unwrap()),
            home: text(dir.path().join("home")),
            proxy_port: 0,
        };
        let mut command = Command::new(&entry.supervisor);
        command.args(&entry.command()[1..]).env_clear();
        command.envs(entry.environment(&token).iter().map(|pair| pair.split_once('=').unwrap()));
        Self::start(dir, token, command, None)
    }

    /// A supervisor as first process of a hardened container with an empty image. The host's programs are mounted.
    pub(crate) fn contained() -> Self {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let program = install(dir.path()).unwrap();
        let run_dir = "/run/laneyard".to_owned();
        let supervisor = format!("{run_dir}/{}", program.file_name().unwrap().to_str().unwrap());
        let entry = Entry { run_dir, supervisor, home: "/home/lane".to_owned(), proxy_port: 3128 };
        let name = format!("laneyard-supervisor-test-{}", &token.reveal()[..12]);
        let mut command = docker();
        command.args(["run", "--rm", "--name", &name, "--read-only", "--network", "none", "--cap-drop", "ALL"]);
        command.args(["--security-opt", "no-new-privileges", "--user", "1000:1000", "--pids-limit", "256"]);
        command.args(["--tmpfs", "/tmp", "--tmpfs", "/home/lane:uid=1000,mode=0700", "--stop-timeout", "10"]);
        command.args(["--memory", "128m", "--memory-swap", "128m"]);
        command.arg("--volume").arg(format!("{}:/run/laneyard:ro", dir.path().display()));
        for host in ["/usr", "/bin", "/lib", "/lib64", "/etc"].into_iter().filter(|host| Path::new(host).exists()) {
            command.arg("--volume").arg(format!("{host}:{host}:ro"));
        }
        for pair in entry.environment(&token) {
            command.arg("--env").arg(pair);
        }
        command.arg(empty_image()).args(entry.command());
        Self::start(dir, token, command, Some(name))
    }

    fn start(dir: TempDir, token: Token, mut command: Command, container: Option<String>) -> Self {
        let listener = Some(Listener::bind(dir.path(), token.clone()).unwrap());
        let process = command.stdin(Stdio::null()).spawn().unwrap();
        Self { dir, token, process, listener, container }
    }

    /// What the engine says about the container, by a template of its own.
    pub(crate) fn inspect(&self, template: &str) -> String {
        let output = docker().args(["inspect", "-f", template, self.container.as_ref().unwrap()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Asks the engine to stop the container, and returns the exit code that it reports.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let stopped = docker().args(["stop", self.container.as_ref().unwrap()]).stdout(Stdio::null()).status();
        assert!(stopped.unwrap().success());
        self.process.wait().unwrap().code()
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
        if let Some(name) = &self.container {
            let _ = docker().args(["rm", "--force", name]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn docker() -> Command {
    Command::new("docker")
}

/// An image without any file in it.
fn empty_image() -> &'static str {
    let name = "laneyard-test/empty:supervisor";
    let mut import = docker().args(["import", "-", name]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    import.stdin.take().unwrap().write_all(&[0; 1024]).unwrap(); // the end of an archive, and nothing before it
    assert!(import.wait().unwrap().success(), "a running Docker engine is needed");
    name
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
