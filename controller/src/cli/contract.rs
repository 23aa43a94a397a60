//! Entry of the contract helper.

use std::ffi::OsString;
use std::process::ExitCode;

/// The helper under its own name; `words` without the program name.
pub fn helper(_words: &[OsString]) -> ExitCode {
    ExitCode::from(64)
}

/// `laneyard contract …`.
pub fn command(words: &[OsString]) -> ExitCode {
    helper(words)
}
