//! Certificates and keys as files: read, checked for who may read them, and a digest to recognize them by.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use crate::secret_file;

/// A certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file cannot be read.
    #[error("cannot read the {what} `{}`: {source}", path.display())]
    Read { what: &'static str, path: PathBuf, source: std::io::Error },
    /// The private key is readable by others.
    #[error("the key file `{}` has mode {mode:03o}, others may read it: run chmod 600 on it", path.display())]
    OpenKey { path: PathBuf, mode: u32 },
    /// Not what it should be.
    #[error("`{}` holds no {what} (PEM): {reason}", path.display())]
    Bad { what: &'static str, path: PathBuf, reason: String },
    /// Key and certificate do not belong together.
    #[error("the key in `{}` does not belong to the certificate in `{}`: {reason}", key.display(), certificate.display())]
    Mismatch { certificate: PathBuf, key: PathBuf, reason: String },
}

/// SHA-256 of a certificate, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a certificate's DER form.
    #[must_use]
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// The digest itself.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no fingerprint: write sha256: and 64 hexadecimal digits");
        let digits = text.strip_prefix("sha256:").unwrap_or(text).replace(':', "");
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (byte, place) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&digits[place..place + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }
}

/// When a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

impl Validity {
    /// Reads it from a certificate's DER form.
    #[must_use]
    pub fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let validity = certificate.validity();
        Some(Self { not_before: validity.not_before.to_datetime(), not_after: validity.not_after.to_datetime() })
    }

    /// The moment from which it should be renewed: two thirds of its life are over.
    #[must_use]
    pub fn renew_at(&self) -> OffsetDateTime {
        self.not_after - (self.not_after - self.not_before) / 3
    }
}

/// Why a file without a certificate has none.
fn without(text: &[u8]) -> &'static str {
    if text.trim_ascii().is_empty() {
        "the file is empty"
    } else {
        "there is no `-----BEGIN CERTIFICATE-----` in it: is it another file, or one in binary form?"
    }
}

/// The authorities of a PEM file.
///
/// # Errors
/// See [`CertificateError`].
pub fn authorities(path: &Path) -> Result<Arc<RootCertStore>, CertificateError> {
    let what = "certificate of an authority";
    let text = std::fs::read(path).map_err(|source| CertificateError::Read { what, path: path.to_owned(), source })?;
    let bad = |reason: String| CertificateError::Bad { what, path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(&text) {
        let der = der.map_err(|error| bad(error.to_string()))?;
        roots.add(der).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() { Err(bad(without(&text).to_owned())) } else { Ok(Arc::new(roots)) }
}

/// A client's certificate with its key. The key cannot be printed.
pub struct ClientCertificate {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    validity: Option<Validity>,
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl ClientCertificate {
    /// Reads a certificate and its key, which may stand in one file.
    ///
    /// # Errors
    /// See [`CertificateError`]; a key that others may read is one.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let read = |what, path: &Path| {
            std::fs::read(path).map_err(|source| CertificateError::Read { what, path: path.to_owned(), source })
        };
        let text = read("client certificate", certificate)?;
        let secret = read("client key", key)?;
        if let Ok(Some(mode)) = secret_file::open_mode(key) {
            return Err(CertificateError::OpenKey { path: key.to_owned(), mode });
        }
        let bad = |what, path: &Path, reason: String| CertificateError::Bad { what, path: path.to_owned(), reason };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| bad("client certificate", certificate, error.to_string()))?;
        let Some(first) = chain.first() else {
            return Err(bad("client certificate", certificate, without(&text).to_owned()));
        };
        let validity = Validity::of(first);
        let key_der =
            PrivateKeyDer::from_pem_slice(&secret).map_err(|error| bad("private key", key, format!("{error:?}")))?;
        let read = Self { chain, key: key_der, validity };
        read.check().map_err(|error| CertificateError::Mismatch {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(read)
    }

    fn check(&self) -> Result<(), rustls::Error> {
        let provider = rustls::crypto::ring::default_provider();
        rustls::sign::CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), &provider).map(drop)
    }

    /// When it holds; `None` if it cannot be told.
    #[must_use]
    pub const fn validity(&self) -> Option<Validity> {
        self.validity
    }
}
