//! Where a controller listens and what proves that we may talk to it.

use std::path::PathBuf;

use crate::transport::certificate::authorities;
use crate::transport::{ClientCertificate, Credentials, Endpoint, EndpointError, Token, Transport, Trust};

/// A controller and our credentials for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerAddress {
    pub url: String,
    pub proof: Proof,
}

/// Files that prove who we are, and who the controller is.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proof {
    /// The authority (PEM) that the controller's certificate must be of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// A bearer token.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// A client certificate (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<PathBuf>,
    /// Its key (PEM); absent: in the same file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
}

impl Proof {
    /// These files, and where one is not named, the other's. A token or certificate that is named is used alone: beside the
    /// other's token, a certificate would prove nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let ca = self.ca.or(other.ca);
        if self.token_file.is_some() || self.client_cert.is_some() {
            return Self { ca, ..self };
        }
        let client_key = self.client_key.or(other.client_key);
        Self { ca, client_key, ..other }
    }

    /// The flag of a file that is named, if any is.
    #[must_use]
    pub const fn any(&self) -> Option<&'static str> {
        match self {
            Self { token_file: Some(_), .. } => Some("token-file"),
            Self { ca: Some(_), .. } => Some("ca"),
            Self { client_cert: Some(_), .. } => Some("client-cert"),
            Self { client_key: Some(_), .. } => Some("client-key"),
            _ => None,
        }
    }

    /// The flag of a file that counts over TLS only, if one is named.
    #[must_use]
    pub const fn of_tls(&self) -> Option<&'static str> {
        match self {
            Self { ca: Some(_), .. } => Some("ca"),
            Self { client_cert: Some(_), .. } => Some("client-cert"),
            Self { client_key: Some(_), .. } => Some("client-key"),
            _ => None,
        }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be used, or a key has no certificate.
    pub fn credentials(&self) -> Result<Credentials, EndpointError> {
        let token = self.token_file.as_deref().map(Token::read).transpose()?;
        let mut credentials = Credentials::none().with_token(token);
        if let Some(ca) = &self.ca {
            credentials = credentials.trusting(Trust::Authorities(authorities(ca)?));
        }
        match (&self.client_cert, &self.client_key) {
            (Some(certificate), key) => {
                let key = key.as_ref().unwrap_or(certificate);
                Ok(credentials.with_certificate(ClientCertificate::read(certificate, key)?))
            }
            (None, Some(_)) => Err(EndpointError::KeyAlone),
            (None, None) => Ok(credentials),
        }
    }
}

impl ControllerAddress {
    /// A controller and the files for it.
    #[must_use]
    pub fn new(url: &str, proof: Proof) -> Self {
        Self { url: url.trim_end_matches('/').to_owned(), proof }
    }

    /// The way to it.
    ///
    /// # Errors
    /// The address or a file cannot be used, or nothing proves who we are.
    pub fn transport(&self) -> Result<Transport, EndpointError> {
        let endpoint: Endpoint = self.url.parse()?;
        if self.proof.token_file.is_none() && self.proof.client_cert.is_none() {
            return Err(EndpointError::NoCredential);
        }
        if endpoint.is_tls() && self.proof.ca.is_none() {
            return Err(EndpointError::NoAuthority { url: self.url.clone() });
        }
        Transport::with(&endpoint, self.proof.credentials()?)
    }
}
