//! The files of an identity: `identity/` under the controller's state directory, mode 0700, every file 0600.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::secret_file;
use agent::transport::certificate::Validity;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;

use super::authority::{Authority, AuthorityError, alternative};

const CA: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const SERVER: &str = "server.pem";
const NAMES: &str = "names";
const ADMIN: &str = "admin.token";
/// Names that every controller's certificate has: the machine itself.
const SELF: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// An identity cannot be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// There is one already.
    #[error(
        "`{}` exists: this controller has an identity. Workers and clients rely on it; to begin anew, stop the \
         controller, move the directory away and run `laneyard init` again",
        path.display()
    )]
    Exists { path: PathBuf },
    /// A file fails.
    #[error("cannot {what} `{}`: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// A key that others may read.
    #[error("`{}` has mode {mode:03o}, others may read it: run chmod 600 on it", path.display())]
    Open { path: PathBuf, mode: u32 },
    /// The authority fails.
    #[error("the identity in `{}` cannot be used: {source}", path.display())]
    Authority { path: PathBuf, source: AuthorityError },
    /// The controller's certificate cannot be used.
    #[error("`{}` cannot be used: {reason}; remove it, and the next start makes a new one", path.display())]
    Server { path: PathBuf, reason: String },
}

/// The directory.
#[derive(Clone, Debug)]
pub struct IdentityDir {
    path: PathBuf,
}

impl IdentityDir {
    /// Under a controller's state directory; nothing is created yet.
    #[must_use]
    pub fn of(controller: &Path) -> Self {
        Self { path: controller.join("identity") }
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The authority's certificate, for clients.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path.join(CA)
    }

    /// The first administrator's token.
    #[must_use]
    pub fn admin_token(&self) -> PathBuf {
        self.path.join(ADMIN)
    }

    /// True once there is an identity.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Makes a new identity: complete or not at all.
    ///
    /// # Errors
    /// There is one already, a name cannot be used, or a file cannot be written.
    pub fn make(&self, names: &[String], admin_token: &str, life: Duration) -> Result<Authority, PlaceError> {
        if self.exists() {
            return Err(PlaceError::Exists { path: self.path.clone() });
        }
        let (authority, key) = Authority::make().map_err(|source| self.bad(source))?;
        let mut fresh = self.path.clone();
        fresh.set_extension(format!("new-{}", std::process::id()));
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| PlaceError::File { what, path, source }
        };
        let made = || -> Result<(), PlaceError> {
            secret_file::directory(&fresh).map_err(io("create", &fresh))?;
            let put = |name: &str, content: &str| {
                let path = fresh.join(name);
                secret_file::write(&path, content).map_err(io("write", &path))
            };
            let (chain, server_key) =
                authority.sign_server(&with_self(names, None), life).map_err(|source| self.bad(source))?;
            put(CA, authority.pem())?;
            put(CA_KEY, &key)?;
            put(SERVER, &format!("{chain}{server_key}"))?;
            put(NAMES, &names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
            put(ADMIN, &format!("{admin_token}\n"))?;
            // Refuses to replace a directory that is not empty.
            std::fs::rename(&fresh, &self.path).map_err(io("create", &self.path))?;
            let parent = self.path.parent().unwrap_or(&self.path);
            std::fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(io("sync", parent))
        };
        if let Err(error) = made() {
            let _ = std::fs::remove_dir_all(&fresh);
            return Err(error);
        }
        Ok(authority)
    }

    /// Reads the authority; `None` if there is no identity.
    ///
    /// # Errors
    /// A file cannot be read, is open to others, or is damaged.
    pub fn authority(&self) -> Result<Option<Authority>, PlaceError> {
        if !self.exists() {
            return Ok(None);
        }
        let (certificate, key) = (self.read(CA)?, self.read(CA_KEY)?);
        Authority::read(&certificate, &key).map(Some).map_err(|source| self.bad(source))
    }

    /// Names that clients may reach the controller by.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn names(&self) -> Result<Vec<String>, PlaceError> {
        let text = self.read(NAMES)?;
        Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// The controller's certificate, made anew if it is missing, late in its life, or without one of its names. With
    /// the moment at which to ask again.
    ///
    /// # Errors
    /// It cannot be made, written or read.
    pub fn server(
        &self,
        authority: &Authority,
        listen: Option<IpAddr>,
        life: Duration,
    ) -> Result<(CertifiedKey, OffsetDateTime), PlaceError> {
        let names = with_self(&self.names()?, listen);
        let path = self.path.join(SERVER);
        if let Ok(text) = self.read(SERVER)
            && let Ok((key, validity)) = certified(&text, &path)
            && validity.renew_at() > OffsetDateTime::now_utc()
            && key.cert.first().is_some_and(|der| covers(der, &names))
        {
            return Ok((key, validity.renew_at()));
        }
        let (chain, key) = authority.sign_server(&names, life).map_err(|source| self.bad(source))?;
        let text = format!("{chain}{key}");
        secret_file::write(&path, &text).map_err(|source| PlaceError::File {
            what: "write",
            path: path.clone(),
            source,
        })?;
        let (key, validity) = certified(&text, &path)?;
        Ok((key, validity.renew_at()))
    }

    fn read(&self, name: &str) -> Result<String, PlaceError> {
        let path = self.path.join(name);
        let read = secret_file::open_mode(&path).and_then(|mode| Ok((mode, std::fs::read_to_string(&path)?)));
        match read {
            // A certificate or a list of names is no secret; a key is.
            Ok((Some(mode), _)) if name == CA_KEY || name == SERVER => Err(PlaceError::Open { path, mode }),
            Ok((_, text)) => Ok(text),
            Err(source) => Err(PlaceError::File { what: "read", path, source }),
        }
    }

    fn bad(&self, source: AuthorityError) -> PlaceError {
        PlaceError::Authority { path: self.path.clone(), source }
    }
}

/// The given names, the machine's own, and the address that is listened on; each once.
fn with_self(names: &[String], listen: Option<IpAddr>) -> Vec<String> {
    let own = SELF.iter().map(|name| (*name).to_owned());
    let listen = listen.filter(|address| !address.is_unspecified()).map(|address| address.to_string());
    let mut all: Vec<String> = Vec::new();
    for name in names.iter().cloned().chain(own).chain(listen) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn certified(text: &str, path: &Path) -> Result<(CertifiedKey, Validity), PlaceError> {
    let bad = |reason: String| PlaceError::Server { path: path.to_owned(), reason };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| bad(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| bad(error.to_string()))?;
    let validity = chain.first().and_then(|der| Validity::of(der)).ok_or_else(|| bad("it has no dates".to_owned()))?;
    let key = CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| bad(error.to_string()))?;
    Ok((key, validity))
}

/// True if the certificate is for all these names.
fn covers(der: &CertificateDer<'_>, names: &[String]) -> bool {
    let Ok(certificate) = rustls::server::ParsedCertificate::try_from(der) else { return false };
    names.iter().all(|name| {
        rustls::pki_types::ServerName::try_from(name.as_str())
            .is_ok_and(|name| rustls::client::verify_server_name(&certificate, &name).is_ok())
    })
}

/// Refuses names that no certificate can carry.
///
/// # Errors
/// The first such name.
pub fn check_names(names: &[String]) -> Result<(), AuthorityError> {
    names.iter().try_for_each(|name| alternative(name).map(drop))
}

/// The certificate that is shown right now; it is exchanged while connections live.
#[derive(Debug)]
pub struct Shown(std::sync::RwLock<Arc<CertifiedKey>>);

impl Shown {
    /// Begins with this one.
    #[must_use]
    pub fn new(key: CertifiedKey) -> Self {
        Self(std::sync::RwLock::new(Arc::new(key)))
    }

    /// Shows another one from the next connection on.
    pub fn replace(&self, key: CertifiedKey) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(key);
    }
}

impl rustls::server::ResolvesServerCert for Shown {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)))
    }
}
