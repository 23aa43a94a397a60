//! A directory in which lanes can be asked for, the real program in it, and what that showed. Included by its path in
//! every test program that calls `laneyard` as people do.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Flags of an ordinary external lane, relative to the room.
pub(crate) const LANE: &str = "--mode read-only --parent codex --provider claude --model opus --effort high \
                        --prompt prompt.md --cwd repo --output out.md --receipt receipt.json";

/// A prompt and a working directory, in a directory of their own.
pub(crate) struct Room(TempDir);

impl Room {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("repo")).unwrap();
        std::fs::write(dir.path().join("prompt.md"), "say hello\n").unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }

    /// A program in this directory that inherits nothing but `PATH`.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env_clear().env("HOME", self.path("home"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }
}

/// What a program showed.
pub(crate) struct Seen(pub(crate) Output);

impl Seen {
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
