//! The controller from outside: its pure core under random histories, and its API in process and over loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod api;
mod attached; // lanes of clients that are gone, in other hands
mod delivered; // what a client gave to its caller
mod desk;
mod disk;
mod embedded;
#[path = "../../../agent/tests/fixtures/assignment.rs"]
mod fixture;
mod identity;
mod joining;
mod late; // results that stayed on their worker
mod lifetimes;
mod lost;
mod mangled; // a line that doubles, reorders and replays
mod openapi;
mod owners; // whose attempts are
mod operators;
mod properties;
mod proof; // that a claimed attempt never started
mod refusals;
mod restart;
mod results; // what a writer left
mod revoked; // a waiting client's credential
mod retention;
#[path = "../shared/room.rs"]
mod room;
mod schedule;
mod scripted;
mod shut_out;
mod snapshots;
mod support;
mod toll;
mod wire;
mod writer;
