//! An assignment as clients send them, and what benchmarks of many of them need.

#[path = "../../../agent/tests/fixtures/assignment.rs"]
mod fixture;

use std::time::Duration;

use agent::assignment::Assignment;

/// A lane with a prompt of 4 kB.
pub(crate) fn assignment() -> Assignment {
    Assignment { prompt: vec![b'x'; 4000], ..fixture::assignment() }
}

/// The value that this part of the sorted values does not exceed.
pub(crate) fn percentile(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a rank")]
    sorted[((last as f64) * part) as usize]
}

/// As many open files as this machine allows.
#[allow(dead_code, reason = "not every benchmark opens many")]
pub(crate) fn many_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}
