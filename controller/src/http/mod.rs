//! The API: routes, layers and limits. Handlers only translate between HTTP and the supervisor.

mod attempts;
pub mod auth;
mod commands;
mod credentials;
mod error;
mod gc;
mod guard;
mod own;
mod request;
mod results;
mod snapshots;
mod stream;
mod workers;

use std::sync::Arc;

use agent::transport::{LocalService, ResponseBody};
use agent::wire::attempt::Health;
use agent::wire::{VERSION, paths};
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse as _;
use axum::routing::{MethodRouter, get, post, put};
use axum::{Json, Router};
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use self::auth::{Access, Auth, Role};
use self::error::ApiError;
use crate::depot::Depot;
use crate::hub::Hub;
use crate::identity::Registry;
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
    pub registry: Arc<Registry>,
    /// Snapshots and results; `None` where nothing travels.
    pub depot: Option<Depot>,
    /// Streams end when this is cancelled.
    pub shutdown: CancellationToken,
    pub retention: Arc<Retention>,
}

/// The whole API.
pub fn router(app: App, auth: Auth) -> Router {
    // One line a route: who may call it, where it is, what answers. Nothing else decides about roles.
    let known = Routes::default()
        .add(SUBMIT, "/v1/attempts", post(attempts::submit).layer(DefaultBodyLimit::max(SUBMIT_LIMIT)))
        .add(SUBMIT, "/v1/attempts", get(attempts::list))
        .add(SUBMIT, "/v1/attempts/{id}", get(attempts::show))
        .add(SUBMIT, "/v1/attempts/{id}/events", get(stream::events))
        .add(SUBMIT, "/v1/attempts/{id}/cancel", post(attempts::cancel))
        .add(SUBMIT, "/v1/attempts/{id}/receipt", get(attempts::receipt))
        .add(SUBMIT, "/v1/attempts/{id}/answer", get(attempts::answer))
        .add(SUBMIT, "/v1/attempts/{id}/delivered", post(attempts::delivered))
        .add(SUBMIT, "/v1/attempts/{id}/result", get(results::show))
        .add(SUBMIT, "/v1/attempts/{id}/result/offer", get(results::offered))
        .add(SUBMIT, "/v1/attempts/{id}/result/pack", post(results::pack).get(results::download))
        .add(SUBMIT, "/v1/attempts/{id}/result/packing", get(results::packing))
        .add(SUBMIT, "/v1/attempts/{id}/result/waiting", get(results::waiting))
        .add(SUBMIT, "/v1/attempts/{id}/result/review", post(results::review))
        .add(SUBMIT, "/v1/snapshots/offer", post(snapshots::offer))
        .add(SUBMIT, "/v1/snapshots/upload", post(snapshots::announce))
        .add(SUBMIT, "/v1/snapshots/upload", put(snapshots::upload).layer(DefaultBodyLimit::disable()))
        .add(SUBMIT, "/v1/queue", get(attempts::queue))
        .add(SUBMIT, "/v1/workers", get(workers::list))
        .add(Access::Workers, "/v1/workers", post(workers::register))
        .add(Access::OwnWorker, "/v1/workers/{id}/heartbeat", post(workers::heartbeat))
        .add(Access::OwnWorker, "/v1/workers/{id}/commands", get(commands::commands))
        .add(Access::OwnWorker, "/v1/workers/{id}/claim", post(workers::claim))
        .add(Access::OwnWorker, "/v1/workers/{id}/refuse", post(workers::refuse))
        .add(
            Access::OwnWorker,
            "/v1/workers/{id}/events",
            post(workers::report).layer(DefaultBodyLimit::max(REPORT_LIMIT)),
        )
        .add(Access::OwnWorker, "/v1/workers/{id}/live", post(workers::live))
        .add(Access::OwnWorker, "/v1/workers/{id}/answer", put(workers::answer).layer(DefaultBodyLimit::disable()))
        .add(Access::OwnWorker, "/v1/workers/{id}/snapshot/offer", get(snapshots::offered))
        .add(Access::OwnWorker, "/v1/workers/{id}/snapshot/pack", post(snapshots::pack).get(snapshots::download))
        .add(Access::OwnWorker, "/v1/workers/{id}/snapshot/packing", get(snapshots::packing))
        .add(Access::OwnWorker, "/v1/workers/{id}/result/offer", post(results::offer))
        .add(Access::OwnWorker, "/v1/workers/{id}/result/upload", post(results::announce))
        .add(
            Access::OwnWorker,
            "/v1/workers/{id}/result/upload",
            put(results::upload).layer(DefaultBodyLimit::disable()),
        )
        .add(Access::OwnWorker, "/v1/workers/{id}/result/keep", post(results::keep))
        .add(Access::OwnWorker, "/v1/workers/{id}/kept", post(results::kept))
        .add(Access::OwnWorker, "/v1/workers/{id}/released", post(workers::released))
        .add(Access::OwnWorker, "/v1/workers/{id}/certificate", post(credentials::renew))
        .add(ADMIN, "/v1/workers/{id}/drain", post(workers::drain))
        .add(ADMIN, "/v1/workers/{id}/resume", post(workers::resume))
        .add(ADMIN, "/v1/workers/{id}/remove", post(workers::remove))
        .add(ADMIN, "/v1/workers/{id}/revoke", post(credentials::revoke_worker))
        .add(ADMIN, "/v1/gc", post(gc::collect))
        .add(ADMIN, "/v1/credentials", post(credentials::create))
        .add(ADMIN, "/v1/credentials", get(credentials::list))
        .add(ADMIN, "/v1/credentials/{id}/revoke", post(credentials::revoke));
    known
        .0
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "no-such-route", "nothing is served here"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", "this route has no such method")
        })
        .layer(from_fn_with_state(auth, auth::authenticate))
        // Open to everybody.
        .route(paths::HEALTH, get(health))
        .route(paths::OPENAPI, get(openapi))
        .route(paths::JOIN, post(credentials::join))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn(request::identify))
        .with_state(app)
}

const SUBMIT: Access = Access::AtLeast(Role::Submit);
const ADMIN: Access = Access::AtLeast(Role::Admin);

/// Routes that want a credential. None gets in without saying who may call it.
#[derive(Default)]
struct Routes(Router<App>);

impl Routes {
    fn add(self, access: Access, path: &str, methods: MethodRouter<App>) -> Self {
        Self(self.0.route(path, methods.route_layer(from_fn_with_state(access, auth::allow))))
    }
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
