//! The engine layer on the real engines of this machine: Docker, Podman as root, Podman of an ordinary user.
//! `deploy/engines up` and `images/build` make what is needed; `tests/run` calls both.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod fixture;
mod images; // images that newer ones replaced

mod discovery; // which engine, and why not another
mod end; // causes, removal, sweep
mod odd; // unusual places and repositories
mod owner; // whose files
mod profile; // what the container cannot do
