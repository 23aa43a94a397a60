//! The API: routes, layers and limits. Handlers only translate between HTTP and the supervisor.

mod attempts;
pub mod auth;
mod commands;
mod error;
mod gc;
mod request;
mod stream;
mod workers;

use std::sync::Arc;

use agent::transport::{LocalService, ResponseBody};
use agent::wire::attempt::Health;
use agent::wire::{VERSION, paths};
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse as _;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use self::auth::Auth;
use self::error::ApiError;
use crate::hub::Hub;
use crate::retention::Retention;
use crate::store::Store;
use crate::supervisor::Supervisor;

/// Longest submission, in bytes: a prompt of 64 MiB in base64, and what stands around it.
const SUBMIT_LIMIT: usize = 96 << 20;
/// Longest report of a worker, in bytes. Agents cut at half a MiB, but one event may be larger.
const REPORT_LIMIT: usize = 128 << 20;
/// Longest other body, in bytes.
const BODY_LIMIT: usize = 4 << 20;

/// What handlers need.
#[derive(Clone, Debug)]
pub struct App {
    pub supervisor: Supervisor,
    pub store: Store,
    pub hub: Arc<Hub>,
    /// Streams end when this is cancelled.
    pub shutdown: CancellationToken,
    pub retention: Arc<Retention>,
}

/// The whole API.
pub fn router(app: App, auth: Auth) -> Router {
    let clients = Router::new()
        .route("/v1/attempts", post(attempts::submit).layer(DefaultBodyLimit::max(SUBMIT_LIMIT)))
        .route("/v1/attempts", get(attempts::list))
        .route("/v1/attempts/{id}", get(attempts::show))
        .route("/v1/attempts/{id}/events", get(stream::events))
        .route("/v1/attempts/{id}/cancel", post(attempts::cancel))
        .route("/v1/attempts/{id}/receipt", get(attempts::receipt))
        .route("/v1/attempts/{id}/answer", get(attempts::answer))
        .route("/v1/queue", get(attempts::queue))
        .route("/v1/workers", get(workers::list))
        .layer(from_fn(auth::clients_only));
    let agents = Router::new()
        .route("/v1/workers", post(workers::register))
        .route("/v1/workers/{id}/heartbeat", post(workers::heartbeat))
        .route("/v1/workers/{id}/commands", get(commands::commands))
        .route("/v1/workers/{id}/claim", post(workers::claim))
        .route("/v1/workers/{id}/refuse", post(workers::refuse))
        .route("/v1/workers/{id}/events", post(workers::report).layer(DefaultBodyLimit::max(REPORT_LIMIT)))
        .route("/v1/workers/{id}/live", post(workers::live))
        .route("/v1/workers/{id}/answer", put(workers::answer).layer(DefaultBodyLimit::disable()))
        .route("/v1/workers/{id}/released", post(workers::released))
        .layer(from_fn(auth::workers_only));
    let admins = Router::new()
        .route("/v1/workers/{id}/drain", post(workers::drain))
        .route("/v1/workers/{id}/resume", post(workers::resume))
        .route("/v1/workers/{id}/remove", post(workers::remove))
        .route("/v1/gc", post(gc::collect))
        .layer(from_fn(auth::admins_only));
    Router::new()
        .merge(clients)
        .merge(agents)
        .merge(admins)
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "no-such-route", "nothing is served here"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", "this route has no such method")
        })
        .layer(from_fn_with_state(auth, auth::authenticate))
        .route(paths::HEALTH, get(health))
        .route(paths::OPENAPI, get(openapi))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn(request::identify))
        .with_state(app)
}

async fn health() -> Json<Health> {
    Json(Health { status: "ok".to_owned(), version: VERSION.to_owned() })
}

/// The description of this API. The tests hold real answers against it.
async fn openapi() -> impl axum::response::IntoResponse {
    ([(http::header::CONTENT_TYPE, "application/json")], include_str!("openapi.json"))
}

/// The same handlers for callers of this process.
#[must_use]
pub fn local_service(router: Router) -> LocalService {
    Arc::new(move |request| {
        let answering = router.clone().oneshot(request.map(axum::body::Body::new));
        Box::pin(async move {
            let response = match answering.await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            response.into_response().map(|body| -> ResponseBody { body.map_err(Into::into).boxed_unsync() })
        })
    })
}
