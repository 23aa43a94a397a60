//! The egress proxy as its users see it: a process behind a socket, and its log.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod lifetime;
mod policy;
mod traffic;
mod world;
