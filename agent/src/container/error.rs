//! What can go wrong between us and the engine. Branch on variants, never on text.

use std::path::PathBuf;
use std::time::Duration;

use crate::container::spec::ContainerId;

/// One engine call that did not do what it was for.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The container does not exist (any more).
    #[error("container {container} is gone")]
    Gone { container: ContainerId },
    /// The image is not on this engine and the policy forbids (or failed) to fetch it.
    #[error("image `{reference}` is not on the {engine} engine at {address}: {remedy}")]
    NoImage { reference: String, engine: &'static str, address: String, remedy: String },
    /// The image was built for another CPU or operating system (it would end in "exec format error").
    #[error(
        "image `{reference}` is for {image}, the engine runs {engine}: build or pull the image for {engine}, or name another with --image"
    )]
    WrongPlatform { reference: String, image: String, engine: String },
    /// The engine is too old: it speaks no version that we do.
    #[error(
        "the engine at {address} speaks API {engine} at most, laneyard speaks {ours_min} to {ours_max}: update the engine"
    )]
    Version { address: String, engine: String, ours_min: String, ours_max: String },
    /// No connection, or it broke in the middle.
    #[error("the engine at {address} cannot be reached to {operation}: {reason}")]
    Unreachable { address: String, operation: String, reason: String },
    /// The engine took too long.
    #[error("the engine at {address} did not {operation} within {} s", after.as_secs())]
    Deadline { address: String, operation: String, after: Duration },
    /// The engine said no.
    #[error("the engine refused to {operation} (HTTP {status}): {message}")]
    Refused { operation: String, status: u16, message: String },
    /// More processors than there are.
    #[error(
        "the lane asks for {asked} CPUs and the engine has {has}: name at most {has} with --cpus, or as `cpus` in the \
         configuration's [limits]"
    )]
    Cpus { asked: f64, has: u32 },
    /// The engine's answer makes no sense.
    #[error("the engine's answer to {operation} cannot be read: {reason}")]
    Answer { operation: String, reason: String },
    /// The specification cannot be expressed on this engine.
    #[error("`{path}` cannot be mounted on this engine: {reason}")]
    Mount { path: PathBuf, reason: String },
    /// A private file of the attempt could not be written for the engine.
    #[error("cannot write `{path}`")]
    File { path: PathBuf, source: std::io::Error },
}

impl EngineError {
    /// True when the container is proven absent.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// True when the engine could not be asked: nothing is known about the container.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Deadline { .. })
    }
}
