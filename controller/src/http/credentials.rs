//! Credentials: made, listed and revoked by administrators; workers join and renew.

use std::time::Duration;

use agent::ids::WorkerId;
use agent::wire::attempt::Page;
use agent::wire::error::code;
use agent::wire::identity::{
    CreateCredential, CreatedCredential, CredentialView, Issued, Join, Kind, LONGEST_JOIN, LONGEST_LIFE, Renew,
    RevokedWorker, Role,
};
use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use tracing::{info, warn};

use super::App;
use super::attempts::page;
use super::auth::refuse;
use super::error::{ApiError, full};
use super::request::{Body, Id, Paging, Params};
use crate::identity::authority::{AuthorityError, Signed};
use crate::identity::{Authority, Grant, RegistryError};
use crate::reactor::tick;

/// Longest name of a credential, in bytes.
const NAME_LIMIT: usize = 100;

pub(super) async fn create(
    State(app): State<App>,
    Body(wanted): Body<CreateCredential>,
) -> Result<(StatusCode, Json<CreatedCredential>), ApiError> {
    check(&app, &wanted)?;
    let registry = &app.registry;
    let life = wanted.expires_in_s.map(Duration::from_secs);
    let ca_fingerprint = registry.authority().ok().map(|authority| authority.fingerprint().to_string());
    let created = match wanted.kind {
        Kind::Token | Kind::Join => {
            let made = registry.make_token(wanted.kind, wanted.role, &wanted.name, life);
            let (credential, secret) = made.await?;
            CreatedCredential { credential, secret: Some(secret), certificate: None, ca_fingerprint }
        }
        Kind::Certificate => {
            let csr = wanted.csr.as_deref().unwrap_or_default();
            let (credential, signed) = registry.make_certificate(wanted.role, &wanted.name, csr, life).await?;
            CreatedCredential { credential, secret: None, certificate: Some(signed.pem), ca_fingerprint }
        }
    };
    let view = &created.credential;
    info!(credential = view.id, name = view.name, role = %view.role, "made a credential");
    Ok((StatusCode::CREATED, Json(created)))
}

fn check(app: &App, wanted: &CreateCredential) -> Result<(), ApiError> {
    let bad = |message: &str| Err(ApiError::bad(code::BAD_CREDENTIAL, message));
    app.registry.authority()?;
    if wanted.expires_in_s == Some(0) {
        return bad("a credential lives for at least a second");
    }
    let longest = if wanted.kind == Kind::Join { LONGEST_JOIN } else { LONGEST_LIFE };
    if wanted.expires_in_s.is_some_and(|life| life > longest.as_secs()) {
        let days = longest.as_secs() / 86_400;
        return bad(&format!("a {} lives for at most {days} days", wanted.kind.as_str()));
    }
    if wanted.kind == Kind::Join {
        let fits = wanted.name.is_empty() || wanted.name.parse::<WorkerId>().is_ok();
        return if fits { Ok(()) } else { bad("the name of a join token is a worker's name, or empty") };
    }
    if wanted.role == Role::Worker {
        return bad("role `worker` is for workers that join: make a join token");
    }
    let good = (1..=NAME_LIMIT).contains(&wanted.name.len()) && !wanted.name.chars().any(char::is_control);
    if good { Ok(()) } else { bad("a credential has a name of 1 to 100 visible characters") }
}

pub(super) async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<CredentialView>>, ApiError> {
    let (limit, after) = (paging.limit(), paging.after::<String>()?);
    let views = app.registry.list().into_iter().filter(|view| after.as_ref().is_none_or(|after| view.id > *after));
    Ok(Json(page(views.take(limit + 1).collect(), limit, |view| view.id.clone())))
}

pub(super) async fn revoke(State(app): State<App>, Id(id): Id<String>) -> Result<Json<CredentialView>, ApiError> {
    let revoked = app.registry.revoke(&id).await?;
    if let (Kind::Certificate, Role::Worker, Ok(worker)) = (revoked.kind, revoked.role, revoked.name.parse()) {
        shut_out(&app, worker).await?;
    }
    Ok(Json(revoked))
}

pub(super) async fn revoke_worker(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
) -> Result<Json<RevokedWorker>, ApiError> {
    let revoked = app.registry.revoke_worker(&worker).await?;
    shut_out(&app, worker.clone()).await?;
    Ok(Json(RevokedWorker { worker, revoked }))
}

/// A worker without a certificate that counts is not waited for until its lease ends.
async fn shut_out(app: &App, worker: WorkerId) -> Result<(), ApiError> {
    if app.registry.revoked_workers().contains(worker.as_str()) {
        app.supervisor.ask(move |world, effects, now| tick::on_shut_out(world, effects, now, &worker)).await?;
    }
    Ok(())
}

/// The one route beside health and description that needs no credential: the join token is in the body.
pub(super) async fn join(State(app): State<App>, Body(join): Body<Join>) -> Result<Json<Issued>, ApiError> {
    let joined = app.registry.join(&join.token, &join.worker, &join.csr).await;
    let (view, signed) = joined.inspect_err(|problem| {
        warn!(worker = %join.worker, %problem, "a worker was not let in");
    })?;
    Ok(Json(issued(view, signed, app.registry.authority()?)))
}

pub(super) async fn renew(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    shown: Option<Extension<Grant>>,
    Body(renew): Body<Renew>,
) -> Result<Json<Issued>, ApiError> {
    let shown = shown.as_ref().map(|Extension(grant)| grant.id.as_str());
    let (view, signed) = app.registry.renew(&worker, &renew.csr, shown).await?;
    info!(%worker, credential = view.id, "renewed a certificate");
    Ok(Json(issued(view, signed, app.registry.authority()?)))
}

fn issued(view: CredentialView, signed: Signed, authority: &Authority) -> Issued {
    Issued { id: view.id, certificate: signed.pem, ca: authority.pem().to_owned(), expires_at: signed.not_after }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        let message = error.to_string();
        match error {
            RegistryError::Denied(denied) => refuse(&denied),
            RegistryError::NoIdentity => Self::new(StatusCode::CONFLICT, code::NO_IDENTITY, message)
                .hint("stop the controller, run `laneyard init` on its machine, start it again"),
            RegistryError::Missing(_) => Self::new(StatusCode::NOT_FOUND, code::NO_SUCH_CREDENTIAL, message)
                .hint("`laneyard token list --all` shows the ids"),
            RegistryError::NameTaken(_) => Self::new(StatusCode::CONFLICT, code::NAME_TAKEN, message)
                .hint("join under another --name, or first run `laneyard worker revoke` for this one"),
            RegistryError::OtherName { .. } => Self::new(StatusCode::FORBIDDEN, code::NOT_YOUR_WORKER, message)
                .hint("join under that name, or make another token"),
            RegistryError::Authority(AuthorityError::Request(_)) => Self::bad(code::BAD_CSR, message),
            RegistryError::Authority(AuthorityError::Life { .. }) => Self::bad(code::BAD_CREDENTIAL, message),
            RegistryError::Authority(failure) => Self::internal(&failure),
            RegistryError::Store(crate::store::StoreError::Full { .. }) => full(),
            RegistryError::Store(failure) => failure.into(),
        }
    }
}
