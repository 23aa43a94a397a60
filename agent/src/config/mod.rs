//! The configuration file: [`raw`] is exactly what it says, [`resolve`] makes it complete, typed and absolute.

mod raw;
mod resolve;

pub use raw::{RawConfig, RawController, RawInstance, RawLimits};
pub use resolve::{Config, ConfigError, ControllerAddress, Environment, Instance, check_limits};
