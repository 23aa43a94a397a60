//! `host:port` in one spelling, so that an allowlist can be compared exactly.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A host and a port. Lower case, no trailing dot, IP literals in canonical form; names are kept as given otherwise (a
/// name in IDNA form and its Unicode form are two names). Written `host:port` or `[v6]:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    host: String,
    port: u16,
}

/// The text names no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no exact host: {problem}; write `host` or `host:port`, an IPv6 address in brackets")]
pub struct HostError {
    text: String,
    problem: &'static str,
}

impl HostPort {
    /// Normalizes a host and joins it with a port.
    ///
    /// # Errors
    /// An empty or too long name, a wildcard, or characters that no host name has.
    pub fn new(host: &str, port: u16) -> Result<Self, HostError> {
        let fail = |problem| HostError { text: host.chars().take(300).collect(), problem };
        if port == 0 {
            return Err(fail("port 0 cannot be connected to"));
        }
        if let Some(inner) = host.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(|| fail("the bracket is not closed"))?;
            let address: Ipv6Addr = inner.parse().map_err(|_| fail("not an IPv6 address"))?;
            return Ok(Self { host: address.to_string(), port });
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Self { host: address.to_string(), port });
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_lowercase();
        if name.is_empty() {
            return Err(fail("it is empty"));
        }
        if name.len() > 253 || name.split('.').any(|label| label.len() > 63) {
            return Err(fail("it is too long for a host name"));
        }
        if name.contains('*') {
            return Err(fail("wildcards are not supported"));
        }
        let good = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.') || !c.is_ascii() && !c.is_control();
        if !name.chars().all(good) || name.split('.').any(str::is_empty) {
            return Err(fail("it has characters that a host name cannot have"));
        }
        Ok(Self { host: name, port })
    }

    /// Reads `host` or `host:port`, with a port for the first form.
    ///
    /// # Errors
    /// As [`HostPort::new`], and a port that is no number from 1 to 65535.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, HostError> {
        let bad_port = || HostError { text: text.chars().take(300).collect(), problem: "the port is not 1 to 65535" };
        if text.parse::<Ipv6Addr>().is_ok() {
            return Self::new(text, default_port);
        }
        if text.contains('/') {
            let problem = "it is a URL or a path, and all of a host is allowed or nothing";
            return Err(HostError { text: text.chars().take(300).collect(), problem });
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
                let port = if digits { port.parse().map_err(|_| bad_port())? } else { return Err(bad_port()) };
                Self::new(host, port)
            }
            _ => Self::new(text, default_port),
        }
    }

    /// Host and port of an `http://` or `https://` URL; anything else of it is ignored.
    ///
    /// # Errors
    /// Another scheme, or a host as refused by [`HostPort::new`].
    pub fn of_url(url: &str) -> Result<Self, HostError> {
        // The URL itself may hold a password: errors carry the host alone.
        let fail = |problem| HostError { text: "the URL".to_owned(), problem };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| fail("it has no scheme"))?;
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "http" => 80,
            "https" => 443,
            _ => return Err(fail("its scheme is neither http nor https")),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        Self::parse(authority.rsplit('@').next().unwrap_or_default(), default_port)
    }

    /// The host without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The address, if the host is an IP literal.
    #[must_use]
    pub fn literal(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for HostPort {
    type Err = HostError;
    /// `host` means port 443.
    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text, 443)
    }
}

impl TryFrom<String> for HostPort {
    type Error = HostError;
    fn try_from(text: String) -> Result<Self, HostError> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(host: HostPort) -> String {
        host.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(
            text.parse::<HostPort>().map_or_else(|_| "refused".to_owned(), |h| h.to_string()),
            expected,
            "{text}"
        );
    }

    #[test]
    fn a_host_has_one_spelling() {
        check("API.Example.COM", "api.example.com:443");
        check("api.example.com.:8443", "api.example.com:8443");
        check("[0:0:0:0:0:0:0:1]:80", "[::1]:80");
        check("::1", "[::1]:443");
        check("127.0.0.1:9", "127.0.0.1:9");
        check("xn--bcher-kva.example", "xn--bcher-kva.example:443");
        check("bücher.example", "bücher.example:443");
        for bad in
            ["", ".", "a..b", "*.example.com", "a b", "a/b", "a@b", "host:0", "host:65536", "host:+1", "host:", "[::1"]
        {
            check(bad, "refused");
        }
    }

    #[test]
    fn an_endpoint_url_gives_its_host_and_default_port_and_never_its_password() {
        assert_eq!(HostPort::of_url("http://127.0.0.1:8080/v1?key=x").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(HostPort::of_url("HTTPS://user:pass@Gw.Example/v1").unwrap().to_string(), "gw.example:443");
        assert_eq!(HostPort::of_url("http://gw.example").unwrap().to_string(), "gw.example:80");
        let error = HostPort::of_url("ftp://user:hunter2@host/").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let error = HostPort::of_url("http://user:hunter2@ho st/").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
