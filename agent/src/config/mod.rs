//! The configuration file: [`raw`] is exactly what it says, [`resolve`] makes it complete, typed and absolute.

mod controller;
mod raw;
mod resolve;

pub use controller::{ControllerAddress, Proof};
pub use raw::{RawAge, RawConfig, RawController, RawInstance, RawKeep, RawLimits, RawRetention, RawWorker};
pub use resolve::{Config, ConfigError, Environment, Instance, check_limits};
