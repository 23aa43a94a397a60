//! The real program under both of its names, seen from outside. No test here needs a container engine.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod delivery; // a lane against a scripted controller
mod desk; // the program under its names
mod ended; // lanes that end before any container
mod kept; // what stays of ended attempts
mod refused; // usage errors
#[path = "../shared/room.rs"]
mod room; // a directory with everything a lane needs
mod status; // verdicts
