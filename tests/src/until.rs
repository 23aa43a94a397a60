//! Waiting for a condition: a deadline, and a failure that says what was found instead.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// Waits until `look` gives a value.
///
/// # Panics
/// The deadline passes first; the message has `what` and the last thing seen.
#[track_caller]
pub fn until<T, S: Debug>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T, S>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() >= deadline => {
                panic!("{what}: not within {} s; last seen: {seen:?}", limit.as_secs())
            }
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}
