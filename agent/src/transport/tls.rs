//! TLS 1.3 to the controller: whom we trust, and what went wrong in words that say what to do.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, InvalidMessage, OtherError, RootCertStore, SignatureScheme,
};
use time::OffsetDateTime;

use super::certificate::{ClientCertificate, Fingerprint};
use crate::moment::moment;

/// Whose word counts about the controller. No certificate of the host's own store does.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Nobody's: only for ways that need none.
    #[default]
    Nobody,
    /// These authorities'.
    Authorities(Arc<RootCertStore>),
    /// The one authority with this fingerprint, which the controller shows with its own certificate.
    Pinned(Fingerprint),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The TLS settings of a client.
pub(super) fn client(trust: &Trust, certificate: Option<&ClientCertificate>) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match trust {
        Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()),
        Trust::Authorities(roots) => builder.with_root_certificates(Arc::clone(roots)),
        Trust::Pinned(pin) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { pin: *pin, provider: provider() }))
        }
    };
    let mut config = match certificate {
        Some(certificate) => builder.with_client_auth_cert(certificate.chain.clone(), certificate.key.clone_key())?,
        None => builder.with_no_client_auth(),
    };
    // Each connection shows the present certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Trusts the authority with a known fingerprint, and through it the controller, by name and time as always.
#[derive(Debug)]
struct Pinned {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let other = || rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(OtherAuthority))));
        let pinned = intermediates.iter().find(|der| Fingerprint::of(der) == self.pin).ok_or_else(other)?;
        let mut roots = RootCertStore::empty();
        roots.add(pinned.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        match verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => Err(other()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whoever joins knows a fingerprint and nothing else of the controller.
#[derive(Debug, thiserror::Error)]
#[error(
    "its certificate is of an authority that is not trusted here, since it has another fingerprint: check the address, and \
     pass the --ca-fingerprint that `laneyard worker token` prints at that controller now"
)]
struct OtherAuthority;

/// What is wrong with the TLS connection and what to do, if that is why a transfer failed.
pub(super) fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    let problem = match find(error)? {
        rustls::Error::InvalidCertificate(problem) => certificate(problem),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not speak TLS there: check the port, or whether the address begins with http:// or unix:"
                .to_owned()
        }
        rustls::Error::AlertReceived(rustls::AlertDescription::ProtocolVersion)
        | rustls::Error::PeerIncompatible(_) => {
            "it does not speak TLS 1.3: is it a laneyard controller, or is a proxy between?".to_owned()
        }
        rustls::Error::AlertReceived(alert) => format!("it broke off the TLS handshake ({alert:?}): its log says why"),
        other => format!("TLS failed: {other}"),
    };
    Some(problem)
}

fn certificate(problem: &CertificateError) -> String {
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is of an authority that is not trusted here: pass the controller's own with --ca (its \
             file identity/ca.pem); a worker that has joined joins anew with --replace"
                .to_owned()
        }
        CertificateError::Other(OtherError(problem)) if problem.is::<OtherAuthority>() => problem.to_string(),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "its certificate is not for `{}` but for {}: use one of these names, or add the name to identity/names on \
             the controller and restart it",
            expected.to_str(),
            presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ")
        ),
        CertificateError::NotValidForName => {
            "its certificate is for another name: add the name to identity/names on the controller and restart it"
                .to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "its certificate ended at {}, and it is {} by this machine's clock: set the clock if it is wrong, else \
             restart the controller",
            told(*not_after),
            told(*time)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "its certificate begins at {}, and it is {} by this machine's clock: one of the two clocks is wrong, set it",
            told(*not_before),
            told(*time)
        ),
        CertificateError::Expired | CertificateError::NotValidYet => {
            "its certificate does not hold at this time: check both clocks".to_owned()
        }
        other => format!("its certificate cannot be used: {other:?}"),
    }
}

/// `DnsName("host")` is `host` to people.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')'));
    inner.trim_matches('"')
}

fn told(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map_or_else(|_| format!("{seconds} s"), moment)
}

fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // An I/O error names its inner error's cause as its own, never the inner error itself.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn check(problem: CertificateError, expected: &[&str]) {
        let inner = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(problem));
        let outer = io::Error::other(inner); // as an HTTP client wraps it
        let text = explain(&outer).unwrap();
        for part in expected {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_certificate_at_the_wrong_time_is_told_with_both_times() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let (early, late) = (at(1_800_000_000), at(1_800_003_600));
        let over = CertificateError::ExpiredContext { time: late, not_after: early };
        check(over, &["ended at 2027-01-15T08:00:00Z", "it is 2027-01-15T09:00:00Z", "set the clock"]);
        let soon = CertificateError::NotValidYetContext { time: early, not_before: late };
        check(soon, &["begins at 2027-01-15T09:00:00Z", "one of the two clocks is wrong"]);
    }

    #[test]
    fn an_error_of_another_kind_is_not_explained() {
        assert_eq!(explain(&io::Error::other("connection refused")), None);
    }
}
