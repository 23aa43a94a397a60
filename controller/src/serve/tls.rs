//! TLS 1.3 and nothing older. A client certificate is asked for and never demanded: whoever shows one proves in the
//! handshake that it holds the key, and whether the certificate counts is judged at every request, where the answer can
//! say what is wrong.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::warn;

use crate::http::auth::Peer;
use crate::identity::place::Shown;

/// A handshake that takes longer is broken off.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Handshakes at the same time; more wait in the kernel. Each ends within the limit.
const HANDSHAKES: usize = 1024;

/// A listener whose connections have finished their handshake. One that stalls holds up nobody.
pub(super) struct Tls {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, Peer)>>,
}

impl Tls {
    pub(super) fn new(tcp: TcpListener, shown: Arc<Shown>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(AnyClient(provider)))
            .with_cert_resolver(shown);
        // Each connection proves anew who it is.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tcp, acceptor: TlsAcceptor::from(Arc::new(config)), handshakes: JoinSet::new() })
    }
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Peer) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = done {
                        return connection;
                    }
                }
                (tcp, address) = Listener::accept(&mut self.tcp), if self.handshakes.len() < HANDSHAKES => {
                    self.handshakes.spawn(handshake(self.acceptor.clone(), tcp, address));
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        self.tcp.local_addr().map(Peer::from)
    }
}

async fn handshake(acceptor: TlsAcceptor, tcp: TcpStream, address: SocketAddr) -> Option<(TlsStream<TcpStream>, Peer)> {
    match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(tcp)).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate = shown.map(|der| Sha256::digest(der).into());
            Some((stream, Peer::new(address.to_string(), certificate)))
        }
        Ok(Err(error)) => {
            warn!(%address, %error, "a TLS handshake failed");
            None
        }
        Err(_) => {
            warn!(%address, "a TLS handshake took too long");
            None
        }
    }
}

/// Takes every certificate whose key the client has.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
