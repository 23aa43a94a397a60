//! The configuration file: [`raw`] is exactly what it says, [`resolve`] makes it complete, typed and absolute.

mod controller;
mod raw;
mod resolve;

pub use controller::{ControllerAddress, Proof};
pub use raw::{
    RawAge, RawConfig, RawController, RawInstance, RawKeep, RawLimits, RawRetention, RawSnapshot, RawWorker,
    WorktreeWay,
};
pub use resolve::{Config, ConfigError, Environment, Instance, SnapshotSettings, check_limits, check_ref};
