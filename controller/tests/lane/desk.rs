//! A directory with everything that a lane needs, and the program under two names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Fresh paths, nothing inherited but `PATH`.
pub(crate) struct Desk {
    dir: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("repo")).unwrap();
        std::fs::write(dir.path().join("prompt.md"), "say hello\n").unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        for name in ["pstack-runner", "laneyard"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_laneyard"), dir.path().join("bin").join(name)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path("bin").join(program));
        command
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"));
        command
    }

    /// Runs a line of words.
    pub(crate) fn run(&self, program: &str, line: &str) -> Seen {
        self.run_with(program, line, &[])
    }

    /// Runs a line of words with some variables.
    pub(crate) fn run_with(&self, program: &str, line: &str, variables: &[(&str, &str)]) -> Seen {
        let output = self.command(program).args(line.split_whitespace()).envs(variables.iter().copied()).output();
        Seen(output.unwrap())
    }

    /// Starts a line of words.
    pub(crate) fn start(&self, program: &str, line: &str) -> Child {
        let mut command = self.command(program);
        command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Everything below the directory, without the programs and the state directory.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let root = self.path("");
        let mut open = vec![root.clone()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
                if ["bin", "home", "state"].contains(&name.as_str()) {
                    continue;
                }
                if path.is_dir() && !path.is_symlink() {
                    open.push(path);
                }
                found.insert(name);
            }
        }
        found
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

/// What a run showed.
pub(crate) struct Seen(Output);

impl Seen {
    pub(crate) const fn of(output: Output) -> Self {
        Self(output)
    }
    pub(crate) fn code(&self) -> i32 {
        self.0.status.code().unwrap()
    }
    pub(crate) fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }
    pub(crate) fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }
}

/// Flags of an ordinary external lane, relative to the desk.
pub(crate) const LANE: &str = "--mode read-only --parent codex --provider claude --model opus --effort high \
                        --prompt prompt.md --cwd repo --output out.md --receipt receipt.json";

/// `LANE` with one flag's value replaced.
pub(crate) fn lane_with(flag: &str, value: &str) -> String {
    let words: Vec<&str> = LANE.split_whitespace().collect();
    let at = words.iter().position(|word| *word == flag).unwrap();
    let mut words = words;
    words[at + 1] = value;
    words.join(" ")
}

/// Permission bits.
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
