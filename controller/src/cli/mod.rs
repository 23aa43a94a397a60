//! The command line.

pub mod contract;
pub mod helper;
pub mod policy;
pub mod table;

use std::ffi::OsString;
use std::process::ExitCode;

/// Everything but the policy and contract helpers. `name` is the program's file name, `words` what follows it.
pub fn lane_main(_name: &str, _words: Vec<OsString>) -> ExitCode {
    ExitCode::from(64)
}
