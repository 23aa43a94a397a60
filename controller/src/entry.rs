//! First fork of the program: the two helpers that parents start for every decision are answered before any argument
//! parser, runtime or configuration exists, because their whole process counts (`policy next` within 1.5 times an empty
//! program). Under their own names they are programs of their own as well, for the same reason: most of what a start of
//! the large program costs is that its code lies far apart. All other words go on to the command line proper.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use crate::cli;

/// Runs the program under the name and with the words of `args`, the first of which is the program's own path.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let name = args.next().map(|path| program(&path)).unwrap_or_default();
    let mut words: Vec<OsString> = args.collect();
    match name.as_str() {
        // A link to `laneyard` under the helper's name.
        "pstack-model-policy" => return cli::policy::helper(&words),
        "pstack-worker-contract" => return cli::contract::helper(&words),
        _ => {}
    }
    match words.first().and_then(|word| word.to_str()) {
        Some("policy") => cli::policy::command(&words[1..]),
        Some("contract") => cli::contract::command(&words[1..]),
        _ => cli::lane_main(&name, std::mem::take(&mut words)),
    }
}

/// The whole of `pstack-model-policy`.
pub fn model_policy(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::policy::helper(&args.into_iter().skip(1).collect::<Vec<_>>())
}

/// The whole of `pstack-worker-contract`.
pub fn worker_contract(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::contract::helper(&args.into_iter().skip(1).collect::<Vec<_>>())
}

fn program(path: &OsStr) -> String {
    Path::new(path).file_name().unwrap_or(path).to_string_lossy().into_owned()
}
