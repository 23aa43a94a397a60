//! Where to listen: TLS on any address once the controller has an identity; plaintext only where no network is.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpListener, UnixListener, UnixStream};

/// An address to listen on: `0.0.0.0:7410`, `http://127.0.0.1:7410` or `unix:/path/to/socket`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TLS if the controller has an identity; without one a loopback address stays plaintext.
    Tcp(SocketAddr),
    /// Plaintext on a loopback address, asked for with `http://`.
    Plain(SocketAddr),
    Unix(PathBuf),
}

/// The address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("`{text}` is no address to listen on: write ADDRESS:PORT, http://127.0.0.1:PORT or unix:/PATH")]
    Address { text: String },
    #[error(
        "`{address}` is not a loopback address, and a plaintext listener would show tokens and prompts to the network: \
         run `laneyard init --name HOST` first and listen without http://, or use http://127.0.0.1:PORT or unix:/PATH"
    )]
    Plaintext { address: SocketAddr },
    #[error("cannot listen on {listen}: {source}")]
    Bind { listen: Listen, source: std::io::Error },
    #[error("another process listens on `unix:{}`: stop it first", path.display())]
    InUse { path: PathBuf },
}

impl FromStr for Listen {
    type Err = ListenError;
    fn from_str(text: &str) -> Result<Self, ListenError> {
        let bad = || ListenError::Address { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err(bad()) };
        }
        if let Some(text) = text.strip_prefix("http://") {
            let address: SocketAddr = text.parse().map_err(|_| bad())?;
            return if address.ip().is_loopback() {
                Ok(Self::Plain(address))
            } else {
                Err(ListenError::Plaintext { address })
            };
        }
        text.strip_prefix("https://").unwrap_or(text).parse().map(Self::Tcp).map_err(|_| bad())
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Plain(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listener and the address that it got.
#[derive(Debug)]
pub(super) enum Bound {
    Tls(TcpListener, SocketAddr),
    Plain(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

impl Bound {
    /// As clients write it.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tls(_, address) => format!("https://{address}"),
            Self::Plain(_, address) => format!("http://{address}"),
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// As a client on this very machine writes it.
    pub(super) fn local_address(&self) -> String {
        match self {
            Self::Tls(_, address) if address.ip().is_unspecified() => format!("https://localhost:{}", address.port()),
            _ => self.address(),
        }
    }
}

/// Binds; `identity` says whether TLS can be spoken.
pub(super) async fn bind(listen: &Listen, identity: bool) -> Result<Bound, ListenError> {
    let failed = |source| ListenError::Bind { listen: listen.clone(), source };
    match listen {
        Listen::Tcp(address) | Listen::Plain(address) => {
            let tls = identity && matches!(listen, Listen::Tcp(_));
            if !tls && !address.ip().is_loopback() {
                return Err(ListenError::Plaintext { address: *address });
            }
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            Ok(if tls { Bound::Tls(listener, address) } else { Bound::Plain(listener, address) })
        }
        Listen::Unix(path) => {
            if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
                // A socket that nobody answers on was left by a killed process.
                if UnixStream::connect(path).await.is_ok() {
                    return Err(ListenError::InUse { path: path.clone() });
                }
                std::fs::remove_file(path).map_err(failed)?;
            }
            let listener = UnixListener::bind(path).map_err(failed)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
            Ok(Bound::Unix(listener, path.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_what_it_wants() {
        assert!(matches!("127.0.0.1:0".parse(), Ok(Listen::Tcp(_))));
        assert!(matches!("0.0.0.0:80".parse(), Ok(Listen::Tcp(_))));
        assert!(matches!("https://[::]:80".parse(), Ok(Listen::Tcp(_))));
        assert!(matches!("http://[::1]:80".parse(), Ok(Listen::Plain(_))));
        assert!(matches!("unix:/run/laneyard.sock".parse(), Ok(Listen::Unix(_))));
        assert_eq!("unix:///run/x".parse::<Listen>().unwrap(), Listen::Unix("/run/x".into()));
        assert!(matches!("http://10.1.2.3:80".parse::<Listen>(), Err(ListenError::Plaintext { .. })));
        for text in ["localhost", "unix:relative", "80", ""] {
            assert!(matches!(text.parse::<Listen>(), Err(ListenError::Address { .. })), "{text}");
        }
    }

    #[tokio::test]
    async fn plaintext_is_offered_only_on_this_machine() {
        for text in ["0.0.0.0:0", "[::]:0"] {
            let error = bind(&text.parse().unwrap(), false).await.unwrap_err();
            assert!(matches!(error, ListenError::Plaintext { .. }), "{text}: {error}");
            assert!(error.to_string().contains("laneyard init"));
        }
    }
}
