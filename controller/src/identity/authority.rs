//! The private authority: made at `init`, signs the controller's certificate and those of clients.

use std::net::IpAddr;
use std::time::Duration;

use agent::transport::Fingerprint;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

/// Life of the authority itself.
const LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Certificates begin so long before they are made, at most: clocks differ.
const SKEW: Duration = Duration::from_secs(300);
/// Longest signing request that is read, in bytes.
const REQUEST_LIMIT: usize = 16 << 10;

/// The authority cannot be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The signing library failed.
    #[error("cannot sign: {0}")]
    Sign(#[from] rcgen::Error),
    /// The certificate of the authority cannot be read.
    #[error("the authority's certificate cannot be read: {0}")]
    Unreadable(String),
    /// A name that no certificate can carry.
    #[error("`{name}` is neither a host's name nor an address")]
    Name { name: String },
    /// The request is not one, or its signature does not fit.
    #[error("the signing request cannot be used: {0}")]
    Request(String),
    /// The life is too long for any calendar.
    #[error("a life of {} s is too long", life.as_secs())]
    Life { life: Duration },
}

/// The authority with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("fingerprint", &self.fingerprint().to_string()).finish_non_exhaustive()
    }
}

/// A certificate just signed for a client.
#[derive(Clone, Debug)]
pub struct Signed {
    pub pem: String,
    /// SHA-256 of the certificate.
    pub digest: [u8; 32],
    /// SHA-256 of the public key.
    pub key: [u8; 32],
    pub not_after: OffsetDateTime,
}

impl Authority {
    /// Makes a new authority. Returns its key too, in PEM form.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn make() -> Result<(Self, String), AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = dated(LIFE)?;
        params.distinguished_name = name(&format!("laneyard authority {}", hex(&super::credential::random::<4>()?)));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        let (pem, secret) = (certificate.pem(), key.serialize_pem());
        Ok((Self::read(&pem, &secret)?, secret))
    }

    /// Reads one from its PEM forms.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn read(pem: &str, key: &str) -> Result<Self, AuthorityError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| AuthorityError::Unreadable(error.to_string()))?;
        let issuer = Issuer::from_ca_cert_der(&der, KeyPair::from_pem(key)?)?;
        Ok(Self { issuer, pem: pem.to_owned(), der })
    }

    /// The certificate (PEM).
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// What joining workers pin.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.der)
    }

    /// A certificate for the controller under these names, and its key: both PEM. The authority's own follows in the
    /// chain, so that a client that only knows its fingerprint can check it.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn sign_server(&self, names: &[String], life: Duration) -> Result<(String, String), AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = dated(life)?;
        params.distinguished_name = name(names.first().map_or("laneyard", String::as_str));
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((format!("{}{}", certificate.pem(), self.pem), key.serialize_pem()))
    }

    /// A certificate for a client, under our own choice of names: of the request only the key counts, and that its
    /// sender has it.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn sign_client(
        &self,
        id: &[u8],
        subject: &str,
        request: &str,
        life: Duration,
    ) -> Result<Signed, AuthorityError> {
        if request.len() > REQUEST_LIMIT {
            return Err(AuthorityError::Request(format!("it is longer than {REQUEST_LIMIT} bytes")));
        }
        let request = CertificateSigningRequestParams::from_pem(request)
            .map_err(|error| AuthorityError::Request(error.to_string()))?;
        let mut params = dated(life)?;
        params.serial_number = Some(SerialNumber::from_slice(id));
        params.distinguished_name = name(subject);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&request.public_key, &self.issuer)?;
        Ok(Signed {
            pem: certificate.pem(),
            digest: Sha256::digest(certificate.der()).into(),
            key: Sha256::digest(request.public_key.der_bytes()).into(),
            not_after: params.not_after,
        })
    }

    /// SHA-256 of a request's public key.
    ///
    /// # Errors
    /// It is no request.
    pub fn key_of(request: &str) -> Result<[u8; 32], AuthorityError> {
        if request.len() > REQUEST_LIMIT {
            return Err(AuthorityError::Request(format!("it is longer than {REQUEST_LIMIT} bytes")));
        }
        let request = CertificateSigningRequestParams::from_pem(request)
            .map_err(|error| AuthorityError::Request(error.to_string()))?;
        Ok(Sha256::digest(request.public_key.der_bytes()).into())
    }
}

/// Parameters that hold from about now for `life`, in whole seconds as certificates have them.
fn dated(life: Duration) -> Result<CertificateParams, AuthorityError> {
    let now = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap_or_else(|_| OffsetDateTime::now_utc());
    let too_long = || AuthorityError::Life { life };
    let mut params = CertificateParams::default();
    params.not_before = now - SKEW.min(life / 10);
    let span = time::Duration::try_from(life).map_err(|_| too_long())?;
    params.not_after = now.checked_add(span).ok_or_else(too_long)?;
    Ok(params)
}

fn name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

/// A name or address as a certificate carries it.
///
/// # Errors
/// It is neither.
pub fn alternative(text: &str) -> Result<SanType, AuthorityError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let bad = || AuthorityError::Name { name: text.to_owned() };
    // rustls knows what a host's name looks like.
    rustls::pki_types::DnsName::try_from(text).map_err(|_| bad())?;
    Ok(SanType::DnsName(text.try_into().map_err(|_| bad())?))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    crate::store::answers::hex(bytes)
}
