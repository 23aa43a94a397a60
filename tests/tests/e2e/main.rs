//! Whole lanes: the real program, real engines, real provider CLIs, a fake model behind them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

/// One module for each engine, with a test for each function that takes an engine and a CLI.
macro_rules! on_every_engine {
    ($cli:ident: $($name:ident),+ $(,)?) => {
        mod docker {
            $(#[test] fn $name() { super::super::$name(tests::world::Engine::Docker, tests::world::Cli::$cli); })+
        }
        mod podman {
            $(#[test] fn $name() { super::super::$name(tests::world::Engine::Podman, tests::world::Cli::$cli); })+
        }
    };
}

mod crash;
mod fleet;
mod isolation;
mod joined;
mod misbehaviour;
mod outcomes;
mod packing;
mod remote;
mod scripted;
