//! Where the controller is, and who we are.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Address of a controller: `http://127.0.0.1:7171`, `https://host[:port]` or `unix:/path/to/socket`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) base: reqwest::Url,
    pub(crate) socket: Option<PathBuf>,
}

/// The address or the credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not an address at all.
    #[error("`{text}` is no controller address: {reason}; write http://127.0.0.1:PORT, https://HOST or unix:/PATH")]
    Address { text: String, reason: String },
    /// Plaintext would cross a network.
    #[error(
        "`{text}` would send the token in plaintext over a network: use https://, a loopback address or unix:/PATH"
    )]
    Plaintext { text: String },
    /// The token file cannot be read.
    #[error("cannot read the token file `{}`; copy it from the controller", path.display())]
    ReadToken { path: PathBuf, source: std::io::Error },
    /// The token file is readable by others.
    #[error("the token file `{}` has mode {mode:03o}, others may read it: run chmod 600 on it", path.display())]
    OpenToken { path: PathBuf, mode: u32 },
    /// The token file holds no token.
    #[error("the token file `{}` holds no token (one line of 16 to 512 visible characters)", path.display())]
    BadToken { path: PathBuf },
    /// Nothing proves who we are.
    #[error(
        "no credential for the controller: name a token's file with --token-file, or a certificate with --client-cert \
         and --client-key, or either in the configuration's [controller] table"
    )]
    NoCredential,
    /// Nobody vouches for the controller.
    #[error(
        "nothing says which authority `{url}` must be of: name the controller's own with --ca or as `ca` in the \
         configuration (its file identity/ca.pem)"
    )]
    NoAuthority { url: String },
    /// A key without its certificate.
    #[error("a client key without a certificate: name it with --client-cert")]
    KeyAlone,
    /// A certificate, key or authority cannot be used.
    #[error(transparent)]
    Certificate(#[from] super::certificate::CertificateError),
    /// The HTTP client cannot be set up.
    #[error("cannot set up the HTTP client: {0}")]
    Client(#[source] super::BoxError),
}

impl FromStr for Endpoint {
    type Err = EndpointError;
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let bad = |reason: &str| EndpointError::Address { text: text.to_owned(), reason: reason.to_owned() };
        let parse = |address: &str| reqwest::Url::parse(address).map_err(|error| bad(&error.to_string()));
        if let Some(path) = text.strip_prefix("unix:") {
            // `unix:///path` is another spelling of `unix:/path`.
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            if !path.is_absolute() {
                return Err(bad("the socket path must be absolute"));
            }
            return Ok(Self { base: parse("http://localhost/")?, socket: Some(path) });
        }
        let base = parse(text)?;
        let host = base.host_str().ok_or_else(|| bad("it names no host"))?;
        if !base.username().is_empty() || base.password().is_some() {
            return Err(bad("it carries a user or password"));
        }
        if base.path() != "/" || base.query().is_some() || base.fragment().is_some() {
            return Err(bad("it must end after the host and port"));
        }
        match base.scheme() {
            "https" => {}
            "http" if is_loopback(host) => {}
            "http" => return Err(EndpointError::Plaintext { text: text.to_owned() }),
            _ => return Err(bad("unknown scheme")),
        }
        Ok(Self { base, socket: None })
    }
}

impl Endpoint {
    /// True for `https://`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.base.scheme() == "https"
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "unix:{}", path.display()),
            None => f.write_str(self.base.as_str().trim_end_matches('/')),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A bearer token. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Reads the one line of a file that only its owner may read.
    ///
    /// # Errors
    /// The file is missing, open to others, or holds no token.
    pub fn read(path: &Path) -> Result<Self, EndpointError> {
        let failed = |source| EndpointError::ReadToken { path: path.to_owned(), source };
        let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(EndpointError::OpenToken { path: path.to_owned(), mode });
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Self::parse(text.trim()).ok_or_else(|| EndpointError::BadToken { path: path.to_owned() })
    }

    /// Takes 16 to 512 visible ASCII characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let good = (16..=512).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        good.then(|| Self(text.to_owned()))
    }

    /// The secret itself, for the one header that carries it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let got = text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()).map_err(|error| error.to_string());
        match expected {
            Ok(shown) => assert_eq!(got.unwrap(), shown, "{text}"),
            Err(part) => assert!(got.as_ref().unwrap_err().contains(part), "{text}: {got:?}"),
        }
    }

    #[test]
    fn plaintext_stays_on_this_machine() {
        check("http://127.0.0.1:7171", Ok("http://127.0.0.1:7171"));
        check("http://[::1]:7171/", Ok("http://[::1]:7171"));
        check("http://localhost:1", Ok("http://localhost:1"));
        check("https://build.example", Ok("https://build.example"));
        check("unix:/run/laneyard.sock", Ok("unix:/run/laneyard.sock"));
        check("http://10.0.0.1:7171", Err("plaintext"));
        check("http://build.example", Err("plaintext"));
        check("http://localhost.evil.example", Err("plaintext"));
        check("unix:///run/laneyard.sock", Ok("unix:/run/laneyard.sock"));
        check("unix:relative", Err("absolute"));
        check("ftp://localhost", Err("scheme"));
        check("localhost:7171", Err("no controller address"));
        check("http://user:word@localhost", Err("user or password"));
        check("http://localhost/v1", Err("must end"));
    }

    #[test]
    fn a_token_is_read_only_from_a_private_file_and_never_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Token::read(&path), Err(EndpointError::OpenToken { mode: 0o644, .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let token = Token::read(&path).unwrap();
        assert_eq!(token.expose(), "0123456789abcdef");
        assert!(!format!("{token:?}").contains("0123"));
    }
}
