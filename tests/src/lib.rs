//! What the end-to-end tests stand on: a fake model API, and a world of engines, directories and real programs.

#![allow(clippy::expect_used, reason = "the harness fails by panicking, with the reason")]

pub mod fake_model; // the model behind real provider CLIs
pub mod hosts; // several hosts on one machine
pub mod noise; // bytes that stay large
pub mod redact; // stable times, paths and ids
pub mod until; // waiting with a deadline
pub mod world; // directories, engines and the real program
