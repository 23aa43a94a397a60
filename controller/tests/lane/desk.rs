//! A room in which the program stands under its two names, called by lines of words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::room::Room;
pub(crate) use crate::room::{LANE, Seen};

/// See the module.
pub(crate) struct Desk(Room);

impl Desk {
    pub(crate) fn new() -> Self {
        let room = Room::new();
        std::fs::create_dir(room.path("bin")).unwrap();
        for name in ["pstack-runner", "laneyard"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_laneyard"), room.path("bin").join(name)).unwrap();
        }
        Self(room)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn command(&self, program: &str) -> Command {
        self.0.command(self.path("bin").join(program))
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
        self.0.json(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

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
