//! What one proxy is told at its start.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::host::{HostError, HostPort};
use crate::ids::AttemptId;

/// Everything the proxy of one attempt knows. It travels over the child's stdin, never by a file or an argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EgressSpec {
    /// The attempt in the log.
    pub attempt: AttemptId,
    /// Existing directory, private to the agent's user on the host; gets `egress.sock` (mode 0666) and `egress.pid`.
    pub run_dir: PathBuf,
    /// The decision log, appended to: JSON lines.
    pub log: PathBuf,
    /// Exact hosts that may be reached; everything else is refused.
    pub allow: Vec<Allow>,
    /// Allowed hosts that are served from somewhere else; such a target is the operator's own choice and not checked.
    pub routes: Vec<Route>,
    /// Addresses of names, in place of the resolver's answer (as a hosts file); checked like resolved ones.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// A proxy that all entries without route or `trusted` go through. It resolves the names, so that only IP literals
    /// are checked here; how far it may reach is its operator's rule.
    pub upstream: Option<Upstream>,
    /// The proxy ends soon after this file has content: the attempt's durable receipt.
    pub over_when: Option<PathBuf>,
    /// The proxy ends when no connection has been open for so long. Not a deadline on open ones: a model may think for
    /// hours, and a tool may run for hours between two requests.
    pub idle_limit: Duration,
    /// Program that serves [`super::ENTRY`]; `None` is the running one, also after its file was replaced.
    pub program: Option<PathBuf>,
}

impl EgressSpec {
    /// A proxy that lets nothing out, ending after a day without a connection.
    #[must_use]
    pub fn new(attempt: AttemptId, run_dir: PathBuf, log: PathBuf) -> Self {
        Self {
            attempt,
            run_dir,
            log,
            allow: Vec::new(),
            routes: Vec::new(),
            hosts: BTreeMap::new(),
            upstream: None,
            over_when: None,
            idle_limit: Duration::from_secs(24 * 3600),
            program: None,
        }
    }
}

/// One allowed host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Allow {
    pub host: HostPort,
    /// The operator configured exactly this endpoint, so it may be inside: a gateway in the LAN, a server on loopback.
    pub trusted: bool,
}

impl Allow {
    /// A public host: `host` (port 443) or `host:port`.
    ///
    /// # Errors
    /// Text that is no exact host.
    pub fn public(text: &str) -> Result<Self, HostError> {
        Ok(Self { host: text.parse()?, trusted: false })
    }

    /// The endpoint that an operator configured as a URL, such as a provider's base URL.
    ///
    /// # Errors
    /// A URL that is not http or https, or without an exact host.
    pub fn endpoint(url: &str) -> Result<Self, HostError> {
        Ok(Self { host: HostPort::of_url(url)?, trusted: true })
    }
}

/// Sends one allowed host's connections somewhere else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    pub host: HostPort,
    pub to: RouteTarget,
}

/// Where a route ends: `unix:/absolute/path` or `ip:port`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RouteTarget {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl fmt::Display for RouteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl FromStr for RouteTarget {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => Err(format!("`{text}` is no route target: the path of a unix socket is absolute")),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!(
                    "`{text}` is no route target: write `unix:/path` or an IP address with a port, `127.0.0.1:8080`"
                )
            }),
        }
    }
}

impl TryFrom<String> for RouteTarget {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RouteTarget> for String {
    fn from(target: RouteTarget) -> String {
        target.to_string()
    }
}

/// A proxy of the site, asked by HTTP `CONNECT`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Upstream {
    pub address: HostPort,
    /// Value of `Proxy-Authorization`, if the proxy wants one.
    pub authorization: Option<String>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("address", &self.address).finish_non_exhaustive()
    }
}
