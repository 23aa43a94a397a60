//! What a client shows to the controller and whom it trusts. Clones share the certificate: replacing it reaches every
//! connection pool made from them, and connections that are open go on.

use std::sync::{Arc, PoisonError, RwLock};

use super::certificate::ClientCertificate;
use super::endpoint::Token;
use super::tls::Trust;

/// Credentials of one client.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    pub(super) token: Option<Token>,
    pub(super) trust: Trust,
    certificate: Arc<RwLock<Shown>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Grows with each replacement.
    pub(super) version: u64,
    pub(super) certificate: Option<Arc<ClientCertificate>>,
}

impl Credentials {
    /// Shows nothing and trusts nobody.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Sends this token with every request.
    #[must_use]
    pub fn with_token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// Whose word counts about the controller's certificate.
    #[must_use]
    pub fn trusting(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Shows this certificate.
    #[must_use]
    pub fn with_certificate(self, certificate: ClientCertificate) -> Self {
        self.replace(certificate);
        self
    }

    /// Shows another certificate from the next request on.
    pub fn replace(&self, certificate: ClientCertificate) {
        let mut shown = self.certificate.write().unwrap_or_else(PoisonError::into_inner);
        *shown = Shown { version: shown.version + 1, certificate: Some(Arc::new(certificate)) };
    }

    pub(super) fn shown(&self) -> Shown {
        self.certificate.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn version(&self) -> u64 {
        self.certificate.read().unwrap_or_else(PoisonError::into_inner).version
    }
}
