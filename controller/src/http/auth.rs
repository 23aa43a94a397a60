//! Who asks, and whether they may.

use std::sync::Arc;

use agent::transport::Token;
use agent::wire::error::code;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::error::ApiError;

/// What a credential allows. Each role includes those before it, but for workers, who are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Speaks for a worker, and for nothing else.
    Worker,
    /// Submits attempts and watches them.
    Submit,
    /// Answers approvals.
    Approve,
    /// Everything, workers included.
    Admin,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Shown as the submitter.
    pub name: String,
    pub role: Role,
}

/// The known credentials.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Requests of this very process.
    Local(Principal),
    /// Bearer tokens. Only their digests are known here.
    Tokens(Arc<Vec<([u8; 32], Principal)>>),
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

    fn recognize(&self, request: &Request) -> Option<Principal> {
        let tokens = match self {
            Self::Local(principal) => return Some(principal.clone()),
            Self::Tokens(tokens) => tokens,
        };
        let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = header.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // Digests are compared, so the time that it takes tells nothing about the token.
        let digest = Auth::digest(&Token::parse(token.trim())?);
        tokens.iter().find(|(known, _)| *known == digest).map(|(_, principal)| principal.clone())
    }
}

/// Lets known credentials pass and puts their [`Principal`] into the request.
pub(super) async fn authenticate(State(auth): State<Auth>, mut request: Request, next: Next) -> Response {
    match auth.recognize(&request) {
        Some(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        None => {
            warn!(path = request.uri().path(), "a request without a known credential");
            ApiError::new(StatusCode::UNAUTHORIZED, code::UNAUTHENTICATED, "no known credential")
                .hint("pass the controller's token file with --token-file")
                .into_response()
        }
    }
}

/// Lets workers and administrators pass.
pub(super) async fn workers_only(request: Request, next: Next) -> Response {
    allow(request, next, |role| matches!(role, Role::Worker | Role::Admin)).await
}

/// Lets everybody but workers pass.
pub(super) async fn clients_only(request: Request, next: Next) -> Response {
    allow(request, next, |role| role >= Role::Submit).await
}

/// Lets administrators pass.
pub(super) async fn admins_only(request: Request, next: Next) -> Response {
    allow(request, next, |role| role == Role::Admin).await
}

async fn allow(request: Request, next: Next, may: impl Fn(Role) -> bool) -> Response {
    let principal = request.extensions().get::<Principal>();
    if principal.is_some_and(|principal| may(principal.role)) {
        return next.run(request).await;
    }
    let name = principal.map(|principal| principal.name.clone()).unwrap_or_default();
    warn!(name, path = request.uri().path(), "a request beyond its credential's role");
    ApiError::new(StatusCode::FORBIDDEN, code::FORBIDDEN, "this credential's role does not allow that")
        .hint("use a credential with the right role")
        .into_response()
}
