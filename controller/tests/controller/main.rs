//! The controller from outside: its pure core under random histories, and its API in process and over loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod api;
mod disk;
mod embedded;
mod openapi;
mod properties;
mod restart;
mod schedule;
mod scripted;
mod support;
mod wire;
