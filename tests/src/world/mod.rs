//! One test's surroundings: directories, a fake model, an engine, and the real program on them. Dropping a world removes
//! what it left; [`World::assert_nothing_left`] is how a test says that there is nothing.

mod engine;
mod lane;
mod leftovers;

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub use engine::{Container, Engine};
pub use lane::{Cli, Ended, Killed, Lane, Mode, Running};

use crate::fake_model::FakeModel;

/// Longest wait for anything in these tests; a loaded machine is slow, a hanging one never ends.
pub const LIMIT: Duration = Duration::from_secs(180);

/// See the module.
pub struct World {
    root: TempDir,
    /// The engine of this world's lanes.
    pub engine: Engine,
    /// The model behind this world's lanes.
    pub model: FakeModel,
    lanes: Cell<u32>,
}

impl World {
    /// A world on an engine, with an empty state directory and one plain working directory.
    ///
    /// # Panics
    /// The engine does not answer or the program is not built: both are part of what is tested.
    #[must_use]
    pub fn on(engine: Engine) -> Self {
        engine.assert_answers();
        let root = tempfile::Builder::new().prefix("ly").tempdir().expect("a temporary directory");
        // Another user's lanes (rootless) come through here.
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o711)).expect("permissions");
        let model = FakeModel::start().expect("a fake model");
        let world = Self { root, engine, model, lanes: Cell::new(0) };
        world.give(world.root.path());
        for name in ["home", "work", "lanes"] {
            world.directory(name);
        }
        world
    }

    /// A path in this world.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The state directory of this world's program.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// A directory of the user who runs the lanes.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("a directory");
        self.give(&path);
        path
    }

    /// A file of the user who runs the lanes.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a file");
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        if let Some((uid, gid)) = self.engine.user() {
            std::os::unix::fs::lchown(path, Some(uid), Some(gid)).expect("ownership");
        }
    }

    /// A repository with one commit in `work`; gives its path.
    ///
    /// # Panics
    /// Git does not do it.
    pub fn repository(&self) -> PathBuf {
        self.file("work/README.md", "# a repository\n");
        for arguments in [
            &["init", "--quiet", "--initial-branch", "main"][..],
            &["add", "README.md"],
            &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "-m", "first"],
        ] {
            let output = self.command("git").current_dir(self.path("work")).args(arguments).output().expect("git runs");
            assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        self.path("work")
    }

    /// The program `laneyard` (or a link's name), as the user who runs the lanes, with nothing of this process's
    /// environment but `PATH`.
    #[must_use]
    pub fn laneyard(&self) -> Command {
        let mut command = self.command(program("laneyard"));
        command.env("LANEYARD_STATE", self.state());
        command
    }

    /// The same in a mount namespace of its own, where `files` is seen at `place`: a machine of its own, as far as the
    /// working directory goes. Needs root.
    #[must_use]
    pub fn laneyard_apart(&self, files: &Path, place: &Path) -> Command {
        let mut command = self.command("unshare");
        let script = "mount --bind \"$1\" \"$2\" && cd / && shift 2 && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(files).arg(place).arg(program("laneyard"));
        command.env("LANEYARD_STATE", self.state());
        command
    }

    /// The program `laneyard-agent`, as the same user.
    #[must_use]
    pub fn agent(&self) -> Command {
        self.command(program("laneyard-agent"))
    }

    /// Runs `laneyard` with these words to its end.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        self.laneyard().args(words).output().expect("laneyard runs")
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.path("work")).env("HOME", self.path("home"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        if let Some((uid, gid)) = self.engine.user() {
            command.gid(gid).uid(uid).env("XDG_RUNTIME_DIR", format!("/run/user/{uid}"));
        }
        command
    }

    /// A lane of this CLI, with a script of its own.
    pub fn lane(&self, cli: Cli) -> Lane<'_> {
        self.lanes.set(self.lanes.get() + 1);
        Lane::new(self, cli, self.lanes.get())
    }

    /// Ids of all attempts in the state directory, oldest first.
    #[must_use]
    pub fn attempts(&self) -> Vec<String> {
        let entries = fs::read_dir(self.state().join("attempts")).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Directory of an attempt.
    #[must_use]
    pub fn attempt(&self, id: &str) -> PathBuf {
        self.state().join("attempts").join(id)
    }

    /// The journal's entries by name, in order.
    #[must_use]
    pub fn journal(&self, attempt: &str) -> Vec<Value> {
        json_lines(&self.attempt(attempt).join("journal.jsonl"))
    }

    /// The decisions of the egress proxy.
    #[must_use]
    pub fn egress(&self, attempt: &str) -> Vec<Value> {
        json_lines(&self.attempt(attempt).join("egress.jsonl"))
    }

    /// This world's containers, running or not.
    #[must_use]
    pub fn containers(&self) -> Vec<Container> {
        let owner = fs::read_to_string(self.state().join("owner")).unwrap_or_default();
        if owner.is_empty() { Vec::new() } else { self.engine.containers(&format!("laneyard.owner={owner}")) }
    }

    /// Asserts that ended lanes left nothing: no container, network, mount, process or run directory.
    ///
    /// # Panics
    /// Something is left after a while.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        crate::until::until("nothing is left", Duration::from_secs(30), || {
            let left = leftovers::of(self);
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for container in self.containers() {
            self.engine.remove(&container.id);
        }
        leftovers::end_processes(self);
    }
}

/// A program of this workspace.
///
/// # Panics
/// It is not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let profile = own.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let path = profile.join(name);
    assert!(path.exists(), "`{}` is not built: run `cargo build --workspace --bins` first", path.display());
    path
}

fn json_lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
