//! Where to listen: a loopback address or a unix socket, for there is no encryption yet.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpListener, UnixListener, UnixStream};

/// An address to listen on: `127.0.0.1:7171`, `[::1]:7171` or `unix:/path/to/socket`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("`{text}` is no address to listen on: write 127.0.0.1:PORT or unix:/PATH")]
    Address { text: String },
    #[error(
        "`{address}` is not a loopback address, and a plaintext listener would show tokens and prompts to the network: \
         use 127.0.0.1:PORT or unix:/PATH"
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
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err(bad()) };
        }
        let address: SocketAddr = text.strip_prefix("http://").unwrap_or(text).parse().map_err(|_| bad())?;
        if address.ip().is_loopback() { Ok(Self::Tcp(address)) } else { Err(ListenError::Plaintext { address }) }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listener and the address that it got.
#[derive(Debug)]
pub(super) enum Bound {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

impl Bound {
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(_, address) => Listen::Tcp(*address).to_string(),
            Self::Unix(_, path) => Listen::Unix(path.clone()).to_string(),
        }
    }
}

pub(super) async fn bind(listen: &Listen) -> Result<Bound, ListenError> {
    let failed = |source| ListenError::Bind { listen: listen.clone(), source };
    match listen {
        Listen::Tcp(address) => {
            if !address.ip().is_loopback() {
                return Err(ListenError::Plaintext { address: *address });
            }
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            Ok(Bound::Tcp(listener, address))
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
    fn plaintext_is_offered_only_on_this_machine() {
        assert!("127.0.0.1:0".parse::<Listen>().is_ok());
        assert!("[::1]:80".parse::<Listen>().is_ok());
        assert!("unix:/run/laneyard.sock".parse::<Listen>().is_ok());
        for text in ["0.0.0.0:80", "10.1.2.3:80", "[::]:80"] {
            let error = text.parse::<Listen>().unwrap_err();
            assert!(matches!(error, ListenError::Plaintext { .. }), "{text}: {error}");
            assert!(error.to_string().contains("127.0.0.1:PORT"));
        }
        for text in ["localhost", "unix:relative", "80", ""] {
            assert!(matches!(text.parse::<Listen>(), Err(ListenError::Address { .. })), "{text}");
        }
    }
}
