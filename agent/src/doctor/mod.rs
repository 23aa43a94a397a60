//! Checks of this machine as data: what was looked at, what was seen, what to do. Printing is the command's.

use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    Warn,
    Fail,
}

/// One line of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable kebab-case name.
    pub name: &'static str,
    pub state: State,
    /// What was seen, with numbers and paths.
    pub saw: String,
    /// What to do; empty when all is well.
    pub remedy: String,
}
