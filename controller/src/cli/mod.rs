//! The command line.

pub mod contract;
pub mod policy;

use std::ffi::OsString;
use std::process::ExitCode;

/// Everything but the policy and contract helpers. `name` is the program's file name, `words` what follows it.
pub fn lane_main(_name: &str, _words: Vec<OsString>) -> ExitCode {
    ExitCode::from(64)
}
