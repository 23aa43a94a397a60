//! What the receipt says about an attempt's traffic, read from the decision log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::log::{Line, What};

/// Most entries of each list.
const ENTRIES: usize = 64;
/// Longest line that is read; the proxy writes far shorter ones.
const LINE_LIMIT: u64 = 16 << 10;

/// Traffic of one attempt by host; lists in order of host and port, at most 64 entries each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressSummary {
    pub allowed: Vec<AllowedHost>,
    pub refused: Vec<RefusedHost>,
    /// Something is missing: more entries than fit, or lines of the log that could not be read.
    pub truncated: bool,
}

/// Connections that were allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedHost {
    pub host: String,
    pub port: u16,
    /// All of them, also failed and still open ones.
    pub connections: u64,
    /// Those that could not be made.
    pub failed: u64,
    /// Bytes to the host, of ended connections.
    pub bytes_up: u64,
    /// Bytes from the host, of ended connections.
    pub bytes_down: u64,
}

/// Connections that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedHost {
    /// As asked; empty if the request could not be read.
    pub host: String,
    /// As asked; 0 if the request could not be read.
    pub port: u16,
    pub reason: String,
    pub count: u64,
}

/// Sums up a decision log. No log means no traffic: the proxy writes before it connects.
///
/// # Errors
/// The log exists and cannot be read.
pub fn summary(path: &Path) -> io::Result<EgressSummary> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(EgressSummary::default()),
        file => file?,
    };
    let mut reader = BufReader::new(file);
    let mut truncated = false;
    let mut allowed: BTreeMap<(String, u16), AllowedHost> = BTreeMap::new();
    let mut refused: BTreeMap<(String, u16, String), u64> = BTreeMap::new();
    let mut text = Vec::new();
    loop {
        text.clear();
        if reader.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        let Ok(line) = serde_json::from_slice::<Line>(&text) else {
            truncated = true;
            continue;
        };
        let (host, port) = (line.host.unwrap_or_default(), line.port.unwrap_or_default());
        if line.event == What::Refused {
            let key = (host, port, line.reason.unwrap_or_default());
            if refused.len() < ENTRIES || refused.contains_key(&key) {
                *refused.entry(key).or_default() += 1;
            } else {
                truncated = true;
            }
            continue;
        }
        let key = (host, port);
        if !allowed.contains_key(&key) && allowed.len() >= ENTRIES {
            truncated = true;
            continue;
        }
        let entry = allowed.entry(key).or_insert_with_key(|(host, port)| AllowedHost {
            host: host.clone(),
            port: *port,
            ..AllowedHost::default()
        });
        if line.event == What::Open {
            entry.connections += 1;
        } else {
            entry.failed += u64::from(line.reason.as_deref() == Some(super::proxy::CONNECT_FAILED));
            entry.bytes_up += line.bytes_up.unwrap_or(0);
            entry.bytes_down += line.bytes_down.unwrap_or(0);
        }
    }
    let refused = refused.into_iter().map(|((host, port, reason), count)| RefusedHost { host, port, reason, count });
    Ok(EgressSummary { allowed: allowed.into_values().collect(), refused: refused.collect(), truncated })
}
