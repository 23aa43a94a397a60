//! A lane without a provider: a container of our specification whose first process is a shell script.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use agent::assignment::Limits;
use agent::container::cgroup::Cgroup;
use agent::container::prepare::{Prepared, prepare};
use agent::container::{ContainerId, ContainerSpec, ContainerState, Engine, Labels, SystemPaths, image};
use agent::descriptor::Mode;
use agent::ids::{AttemptId, Generation, OwnerId};
use agent::worktree::{self, WorktreePlan, git::Git};
use tempfile::TempDir;

/// An ordinary user of this machine with a rootless engine.
pub(crate) const ORDINARY: &str = "laneyard-test";
pub(crate) const IMAGE: &str = "laneyard/codex:current";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Docker,
    Podman,
    Rootless,
}

impl Which {
    pub(crate) fn socket(self) -> PathBuf {
        match self {
            Self::Docker => "/var/run/docker.sock".into(),
            Self::Podman => "/run/podman/podman.sock".into(),
            Self::Rootless => format!("/run/user/{}/podman/podman.sock", ordinary_uid()).into(),
        }
    }

    /// Who owns the worktrees that this engine can write.
    pub(crate) fn natural_owner(self) -> u32 {
        if self == Self::Rootless { ordinary_uid() } else { 0 }
    }

    pub(crate) async fn open(self) -> Engine {
        Engine::open(&self.socket()).await.unwrap_or_else(|error| panic!("{error}: run deploy/engines up"))
    }
}

pub(crate) fn ordinary_uid() -> u32 {
    nix::unistd::User::from_name(ORDINARY).unwrap().expect("deploy/engines up makes the user").uid.as_raw()
}

/// One attempt's directories and a worktree, owned by `owner`.
pub(crate) struct Lane {
    pub(crate) engine: Engine,
    pub(crate) attempt: AttemptId,
    pub(crate) owner: OwnerId,
    pub(crate) base: TempDir,
    pub(crate) attempt_dir: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) system_paths: SystemPaths,
    pub(crate) env: BTreeMap<String, String>,
}

impl Lane {
    pub(crate) async fn new(which: Which) -> Self {
        let engine = which.open().await;
        // Not below /tmp: that is a tmpfs inside, and worktrees are elsewhere more often than not.
        let base = tempfile::Builder::new().prefix("laneyard-engine-").tempdir_in("/var/tmp").unwrap();
        let attempt_dir = base.path().join("state/attempt");
        let run_dir = attempt_dir.join("run");
        std::fs::create_dir_all(&run_dir).unwrap();
        std::fs::write(run_dir.join("marker"), "ours").unwrap();
        let lane = Self {
            engine,
            attempt: AttemptId::generate(),
            owner: format!("test-{}", AttemptId::generate().short()).parse().unwrap(),
            base,
            attempt_dir,
            run_dir,
            limits: Limits { memory: 256 << 20, pids: 64, scratch: 64 << 20, ..Limits::default() },
            system_paths: SystemPaths::Masked,
            env: BTreeMap::new(),
        };
        if which == Which::Rootless {
            // The agent would be this user itself; here root plays it, so everything must be the user's.
            lane.give(lane.base.path(), ordinary_uid());
        }
        lane
    }

    /// Changes the owner of a tree of the test's own.
    pub(crate) fn give(&self, path: &Path, uid: u32) {
        run("chown", &["-R", &format!("{uid}:{uid}"), path.to_str().unwrap()]);
    }

    pub(crate) fn directory(&self, name: &str, uid: u32) -> PathBuf {
        let path = self.base.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        self.give(&path, uid);
        path
    }

    pub(crate) async fn plan(&self, cwd: &Path, mode: Mode) -> WorktreePlan {
        worktree::plan(&Git::new(), cwd, mode, &self.attempt_dir, &[]).await.unwrap()
    }

    pub(crate) fn prepare(&self, plan: &WorktreePlan) -> Prepared {
        prepare(self.engine.info(), plan, &self.attempt_dir, &self.run_dir).unwrap()
    }

    pub(crate) async fn spec(&self, plan: &WorktreePlan, prepared: &Prepared, script: &str) -> ContainerSpec {
        let found =
            image::resolve(&self.engine, &IMAGE.parse().unwrap(), image::PullPolicy::Never, None).await.unwrap();
        let mut env = plan.environment.clone();
        env.extend(self.env.clone());
        ContainerSpec {
            labels: Labels {
                owner: self.owner.clone(),
                worker: "test".parse().unwrap(),
                attempt: self.attempt,
                generation: Generation(1),
            },
            image: found.id,
            entrypoint: vec!["/bin/sh".into(), "-c".into()],
            args: vec![script.into()],
            env,
            workdir: plan.cwd.clone(),
            identity: prepared.identity,
            mounts: prepared.mounts.clone(),
            limits: self.limits,
            system_paths: self.system_paths,
            private_dir: self.attempt_dir.clone(),
        }
    }

    /// Creates and starts; the container stays until [`Running::remove`] or the test's end.
    pub(crate) async fn start(&self, plan: &WorktreePlan, script: &str) -> Running {
        let mut prepared = self.prepare(plan);
        let spec = self.spec(plan, &prepared, script).await;
        let id = self.engine.create(&spec).await.unwrap();
        let running = Running { engine: self.engine.clone(), id, spec };
        self.engine.start(&running.id).await.unwrap();
        prepared.release();
        running
    }

    /// Runs a script to its end: exit code and what it printed.
    pub(crate) async fn script(&self, plan: &WorktreePlan, script: &str) -> (i64, String) {
        let running = self.start(plan, script).await;
        let ended = running.ended().await;
        let text = self.engine.log_tail(&running.id).await.unwrap();
        self.engine.remove(&running.id).await.unwrap();
        match ended {
            ContainerState::Exited { code, .. } => (code, text),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) struct Running {
    pub(crate) engine: Engine,
    pub(crate) id: ContainerId,
    pub(crate) spec: ContainerSpec,
}

impl Running {
    pub(crate) async fn ended(&self) -> ContainerState {
        tokio::time::timeout(Duration::from_secs(120), self.engine.wait(&self.id)).await.expect("it ends").unwrap()
    }

    pub(crate) async fn cgroup(&self) -> Option<Cgroup> {
        let pid = self.engine.inspect(&self.id).await.unwrap().state.pid()?;
        Cgroup::of(pid, &self.id)
    }

    /// Waits until the container printed `text`: scripts say so when they are ready.
    pub(crate) async fn printed(&self, text: &str) {
        for _ in 0..600 {
            if self.engine.log_tail(&self.id).await.unwrap().contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("`{text}` was never printed: {}", self.engine.log_tail(&self.id).await.unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failing test leaves nothing behind either; a removed container makes this a no-op.
        let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&self.engine.info().address) else { return };
        let id = self.id.as_str();
        let request = format!("DELETE /containers/{id}?force=1&v=1 HTTP/1.0\r\nhost: engine\r\n\r\n");
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Git for building fixtures, as nobody in particular.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let mut all =
        vec!["-C", dir.to_str().unwrap(), "-c", "safe.directory=*", "-c", "user.name=t", "-c", "user.email=t@t"];
    all.extend_from_slice(args);
    run("git", &all)
}

/// A repository with one commit.
pub(crate) fn repository(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "-q", "-b", "main"]);
    std::fs::write(dir.join("tracked"), "one\n").unwrap();
    git(dir, &["add", "."]);
    git(dir, &["commit", "-q", "-m", "first"]);
}

/// The same test on all three engines.
macro_rules! on_every_engine {
    ($($(#[$doc:meta])* $name:ident = $check:ident;)+) => {
        mod docker { $( $(#[$doc])* #[tokio::test] async fn $name() { super::$check(crate::fixture::Which::Docker).await; } )+ }
        mod podman { $( $(#[$doc])* #[tokio::test] async fn $name() { super::$check(crate::fixture::Which::Podman).await; } )+ }
        mod rootless { $( $(#[$doc])* #[tokio::test] async fn $name() { super::$check(crate::fixture::Which::Rootless).await; } )+ }
    };
}
pub(crate) use on_every_engine;
