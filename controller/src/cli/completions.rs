//! `laneyard completions`: words for the shell's tab key.

use std::process::ExitCode;

use super::output;

/// Print a completion script.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell it is for.
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the script.
    pub fn run(&self) -> ExitCode {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::words_known(), "laneyard", &mut script);
        output::raw(&String::from_utf8_lossy(&script));
        ExitCode::SUCCESS
    }
}
