//! The static supervisor as a real process: run directly, and as first process of a container with an empty image.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bridge;
mod container;
mod steps;
mod streams;
mod survival;
mod world;
