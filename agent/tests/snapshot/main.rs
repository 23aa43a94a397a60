//! Snapshots and results on real git, with trees that are as ugly as the file system allows.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod world; // repositories, two stores, and the way between them

mod apply; // results onto the user's files
mod crash; // killed in the middle
mod drawn; // any tree
mod left;
mod shape; // what is in a snapshot
mod travel; // there and back
