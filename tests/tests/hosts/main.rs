//! A fleet on hosts of its own, on a network that fails. Each scenario ends with the invariants of `tests::hosts`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod faults; // killed at named points
mod lines; // cut, slow, lossy
mod machines; // a small disk, a wrong clock
mod processes; // killed while cut off
mod transfers; // killed while directories and results travel
mod random; // a few hundred steps of a seed
