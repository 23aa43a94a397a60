//! What travels between client, controller and agent: plain data without behaviour, one version in the path (`/v1`).
//! Downward everything is a resumable SSE stream, upward everything is a POST that may be repeated.

pub mod attempt; // clients: submit, watch, cancel
pub mod error; // the one shape of a refusal
pub mod identity; // credentials: join, renew, make, revoke
pub mod paths; // every route, spelled once
pub mod retention; // operators: what goes
pub mod snapshot; // working directories and results
pub mod worker; // agents: register, heartbeat, commands, reports

/// Version of this interface; the first segment of every path.
pub const VERSION: &str = "v1";

/// Serde form of byte strings: standard base64 with padding.
pub mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    /// Writes bytes as base64 text.
    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    /// Reads base64 text into bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}
