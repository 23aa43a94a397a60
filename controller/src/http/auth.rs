//! Who asks, and whether they may. Judged at every request: a revocation counts on open connections too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::ids::WorkerId;
use agent::transport::Token;
use agent::wire::error::code;
pub use agent::wire::identity::Role;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tracing::{Span, warn};

use super::error::ApiError;
use super::guard::guard;
use crate::identity::{Bearer, Denied, Grant, Registry};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Shown as the submitter; of a worker, its name.
    pub name: String,
    pub role: Role,
}

impl Principal {
    /// True for what may speak for this worker: its own certificate, or an administrator.
    #[must_use]
    pub fn speaks_for(&self, worker: &str) -> bool {
        match self.role {
            Role::Worker => self.name == worker,
            Role::Admin => true,
            Role::Submit | Role::Approve => false,
        }
    }

    /// Refuses to let one worker speak for another.
    pub(super) fn check_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        if self.speaks_for(worker.as_str()) { Ok(()) } else { Err(not_your_worker(&self.name)) }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Address, for the log.
    pub address: String,
    /// SHA-256 of the client certificate; the client has proven that it holds the key.
    pub certificate: Option<[u8; 32]>,
    known: Arc<AtomicBool>,
}

impl Peer {
    /// Somebody at this address, with a certificate or without.
    #[must_use]
    pub fn new(address: String, certificate: Option<[u8; 32]>) -> Self {
        Self { address, certificate, known: Arc::default() }
    }

    /// True once the connection has brought a good credential.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }
}

/// The known credentials.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Requests of this very process.
    Local(Principal),
    /// The one token of a controller without an identity.
    File([u8; 32]),
    /// Registered tokens and certificates.
    Registry(Arc<Registry>),
}

impl Auth {
    /// A single user in a single process.
    #[must_use]
    pub fn local() -> Self {
        Self::Local(Principal { name: "local".to_owned(), role: Role::Admin })
    }

    /// Digest of a token, as it is stored.
    #[must_use]
    pub fn digest(token: &Token) -> [u8; 32] {
        Sha256::digest(token.expose().as_bytes()).into()
    }

    fn recognize(&self, request: &Request) -> Result<(Principal, Option<Grant>), Denied> {
        let token = bearer(request);
        match self {
            Self::Local(principal) => Ok((principal.clone(), None)),
            Self::File(known) => {
                let shown = Self::digest(&token.ok_or(Denied::Unknown)?);
                let same = bool::from(shown.ct_eq(known));
                let principal = Principal { name: "token".to_owned(), role: Role::Admin };
                if same { Ok((principal, None)) } else { Err(Denied::Unknown) }
            }
            Self::Registry(registry) => {
                let peer = request.extensions().get::<ConnectInfo<Peer>>();
                let certificate = peer.and_then(|ConnectInfo(peer)| peer.certificate.as_ref());
                let grant = match (token, certificate) {
                    (Some(token), _) => registry.token(token.expose())?,
                    (None, Some(digest)) => registry.certificate(digest)?,
                    (None, None) => return Err(Denied::Unknown),
                };
                Ok((Principal { name: grant.name.clone(), role: grant.role }, Some(grant)))
            }
        }
    }
}

fn bearer(request: &Request) -> Option<Token> {
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") { Token::parse(token.trim()) } else { None }
}

/// Lets known credentials pass and puts their [`Principal`] into the request. What a credential has open ends with it.
pub(super) async fn authenticate(State(auth): State<Auth>, mut request: Request, next: Next) -> Response {
    match auth.recognize(&request) {
        Ok((principal, grant)) => {
            if let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<Peer>>() {
                peer.known.store(true, Ordering::Release);
            }
            request.extensions_mut().insert(principal);
            match grant {
                None => next.run(request).await,
                Some(grant) => {
                    Span::current().record("credential", &grant.id);
                    request.extensions_mut().insert(grant.clone());
                    let request = request.map(|body| guard(body, &grant));
                    next.run(request).await.map(|body| guard(body, &grant))
                }
            }
        }
        Err(denied) => {
            let peer = request.extensions().get::<ConnectInfo<Peer>>();
            let peer = peer.map(|ConnectInfo(peer)| peer.address.as_str()).unwrap_or_default();
            warn!(peer, path = request.uri().path(), reason = %denied, "a request without a good credential");
            refuse(&denied).into_response()
        }
    }
}

/// A worker whose certificate counts no more.
const REJOIN: &str = "to let the worker in again, get a new join command with `laneyard worker token` and run it on the \
                      worker as `laneyard-agent join --replace …`, in the same state directory: a running agent takes \
                      the new identity by itself";
const ANOTHER_JOIN_TOKEN: &str = "ask an administrator for a new one: `laneyard worker token` prints it, with the whole \
                                  command";

/// 401, or 409 for a used join token.
pub(super) fn refuse(denied: &Denied) -> ApiError {
    let (status, code, hint) = match denied {
        Denied::Unknown => (
            StatusCode::UNAUTHORIZED,
            code::UNAUTHENTICATED,
            "pass a token's file with --token-file or a certificate with --client-cert; an administrator makes them \
             with `laneyard token create`",
        ),
        Denied::Foreign => (
            StatusCode::UNAUTHORIZED,
            code::CERTIFICATE_UNKNOWN,
            "get a certificate of this controller: `laneyard token create --certificate`, or for a worker what \
             `laneyard worker token` prints, with --replace",
        ),
        Denied::UnknownJoin => (StatusCode::UNAUTHORIZED, code::UNAUTHENTICATED, ANOTHER_JOIN_TOKEN),
        Denied::Expired { bearer, .. } => (
            StatusCode::UNAUTHORIZED,
            code::CREDENTIAL_EXPIRED,
            match bearer {
                Bearer::Person { .. } => "ask an administrator for a new one, and check this machine's clock",
                Bearer::Worker { .. } => REJOIN,
                Bearer::Joining { .. } => ANOTHER_JOIN_TOKEN,
            },
        ),
        Denied::Revoked { bearer } => (
            StatusCode::UNAUTHORIZED,
            code::CREDENTIAL_REVOKED,
            match bearer {
                Bearer::Person { .. } => "ask an administrator for a new one",
                Bearer::Worker { .. } => REJOIN,
                Bearer::Joining { .. } => ANOTHER_JOIN_TOKEN,
            },
        ),
        Denied::Used { .. } => (
            StatusCode::CONFLICT,
            code::JOIN_TOKEN_USED,
            "ask for another one: `laneyard worker token` prints it; if nobody of yours used this one, revoke that \
             worker",
        ),
    };
    ApiError::new(status, code, denied.to_string()).hint(hint)
}

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// People and CI with this role or a higher one.
    AtLeast(Role),
    /// The worker that the path names, and administrators.
    OwnWorker,
    /// Any worker, and administrators: the handler looks whom the body names.
    Workers,
}

/// Lets those pass who may call the route.
pub(super) async fn allow(State(access): State<Access>, request: Request, next: Next) -> Response {
    let Some(principal) = request.extensions().get::<Principal>() else {
        return refuse(&Denied::Unknown).into_response();
    };
    let refused = match access {
        Access::AtLeast(role) if principal.role >= role => None,
        Access::Workers if matches!(principal.role, Role::Worker | Role::Admin) => None,
        Access::OwnWorker if principal.speaks_for(named_worker(&request)) => None,
        Access::OwnWorker if principal.role == Role::Worker => Some(not_your_worker(&principal.name)),
        Access::AtLeast(_) | Access::Workers | Access::OwnWorker => Some(forbidden(access, principal)),
    };
    let Some(refused) = refused else { return next.run(request).await };
    warn!(name = principal.name, role = %principal.role, path = request.uri().path(), "a request beyond its role");
    refused.into_response()
}

/// The worker in `/v1/workers/{id}/…`. An escaped spelling is no name.
fn named_worker(request: &Request) -> &str {
    request.uri().path().split('/').nth(3).unwrap_or_default()
}

fn forbidden(access: Access, Principal { name, role }: &Principal) -> ApiError {
    let (needed, hint) = match access {
        Access::AtLeast(Role::Worker | Role::Submit) => (
            "`submit`, `approve` or `admin`",
            "pass a credential of such a role with --token-file or --client-cert; an administrator makes one with \
             `laneyard token create --role submit`",
        ),
        Access::AtLeast(Role::Approve) => (
            "`approve` or `admin`",
            "pass a credential of such a role with --token-file or --client-cert; an administrator makes one with \
             `laneyard token create --role approve`",
        ),
        Access::AtLeast(Role::Admin) => (
            "`admin`",
            "pass an administrator's credential with --token-file or --client-cert: the controller's own is in its \
             identity/admin.token, and `laneyard token create --role admin` makes others",
        ),
        Access::OwnWorker | Access::Workers => (
            "`worker` or `admin`",
            "that is for agents: run this machine as a worker with what `laneyard worker token` prints",
        ),
    };
    let message = format!("this needs role {needed}, and the credential of `{name}` has role `{role}`");
    ApiError::new(StatusCode::FORBIDDEN, code::FORBIDDEN, message).hint(hint)
}

fn not_your_worker(name: &str) -> ApiError {
    let message = format!("the certificate of worker `{name}` does not speak for another worker");
    ApiError::new(StatusCode::FORBIDDEN, code::NOT_YOUR_WORKER, message)
        .hint("run the agent under the name that it joined with")
}
