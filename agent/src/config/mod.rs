//! The configuration file: [`raw`] is exactly what it says, [`resolve`] makes it complete, typed and absolute.

mod raw;
mod resolve;

pub use raw::{RawAge, RawConfig, RawController, RawInstance, RawKeep, RawLimits, RawRetention, RawWorker};
pub use resolve::{Config, ConfigError, ControllerAddress, Environment, Instance, check_limits};
