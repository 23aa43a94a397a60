//! Runs the real program as one of its helpers, in a directory of its own.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// How the program is called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Called {
    /// The program of that name.
    ByName,
    /// A link of that name to `laneyard`.
    ByLink,
    /// As `laneyard <word> … --json`.
    AsSubcommand,
}

/// One of the two helpers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Helper {
    Policy,
    Contract,
}

impl Helper {
    /// The command of a call, to be run in `directory`.
    pub(crate) fn command(self, called: Called, words: &[impl AsRef<OsStr>], directory: &Path) -> Command {
        let (program, name, word) = match self {
            Self::Policy => (env!("CARGO_BIN_EXE_pstack-model-policy"), "pstack-model-policy", "policy"),
            Self::Contract => (env!("CARGO_BIN_EXE_pstack-worker-contract"), "pstack-worker-contract", "contract"),
        };
        let laneyard = env!("CARGO_BIN_EXE_laneyard");
        let mut command = Command::new(if matches!(called, Called::ByName) { program } else { laneyard });
        match called {
            Called::ByName => &mut command,
            Called::ByLink => command.arg0(format!("/some/where/{name}")),
            Called::AsSubcommand => command.arg(word),
        };
        command.args(words).current_dir(directory).env_remove("LANEYARD_AGENTS_DIR");
        command
    }

    /// Runs a call by the helper's own name to its end.
    pub(crate) fn run(self, words: &[impl AsRef<OsStr>], directory: &Path) -> Output {
        self.command(Called::ByName, words, directory).output().unwrap()
    }
}

/// A fresh directory and its real path.
pub(crate) fn fresh() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
