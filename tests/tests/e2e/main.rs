//! Whole lanes: the real program, real engines, real provider CLIs, a fake model behind them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

/// Scenarios, each a function that takes an engine, and the engines on which each is a test: `scenario::engine`.
macro_rules! on_engines {
    (@engine docker) => { tests::world::Engine::Docker };
    (@engine podman) => { tests::world::Engine::Podman };
    (@engine rootless) => { tests::world::Engine::PodmanRootless };
    (@scenario [$($engine:ident)+] $name:ident) => {
        mod $name { $( #[test] fn $engine() { super::$name(on_engines!(@engine $engine)); } )+ }
    };
    ($($engines:tt $($name:ident),+ $(,)?;)+) => { $($( on_engines!(@scenario $engines $name); )+)+ };
}

mod crash;
mod fleet;
mod isolation;
mod joined;
mod misbehaviour;
mod outcomes;
mod packing;
mod remembered;
mod remote;
mod scripted;
