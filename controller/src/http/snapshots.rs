//! Snapshots up from clients and down to workers.

use std::time::Duration;

use agent::ids::{AttemptId, Generation, WorkerId};
use agent::shuttle::SILENCE;
use agent::snapshot::transfer::{Have, Offer, Packing, Ticket};
use agent::snapshot::{ObjectFormat, ProjectId};
use agent::wire::error::code;
use agent::wire::snapshot::{Announce, Arrived, SnapshotRef};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use futures_util::StreamExt as _;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use tokio_util::io::{ReaderStream, StreamReader};

use super::App;
use super::auth::Principal;
use super::error::{ApiError, full};
use super::request::{Body, Id, Params};
use crate::core::attempt::State as Phase;
use crate::depot::{Depot, Goods};
use crate::reactor::lease;

/// Which pack, and from where.
#[derive(Debug, Deserialize)]
pub(super) struct Piece {
    pub(super) sha256: String,
    #[serde(default)]
    pub(super) offset: u64,
}

/// Which pack of which project, and from where.
#[derive(Debug, Deserialize)]
pub(super) struct Incoming {
    pub(super) project: ProjectId,
    pub(super) format: ObjectFormat,
    pub(super) sha256: String,
    #[serde(default)]
    pub(super) offset: u64,
}

/// For which attempt a worker asks.
#[derive(Debug, Deserialize)]
pub(super) struct Of {
    pub(super) attempt: AttemptId,
    pub(super) generation: Generation,
}

pub(super) async fn offer(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Body(offer): Body<Offer>,
) -> Result<Json<Have>, ApiError> {
    Ok(Json(depot(&app)?.answer(&principal.name, &offer).await?))
}

pub(super) async fn announce(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Body(announce): Body<Announce>,
) -> Result<Json<Arrived>, ApiError> {
    announced(&app, &principal.name, &announce).await
}

pub(super) async fn announced(app: &App, submitter: &str, announce: &Announce) -> Result<Json<Arrived>, ApiError> {
    room(app, announce.ticket.bytes)?;
    Ok(Json(depot(app)?.announce(submitter, announce).await?))
}

pub(super) async fn upload(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Params(incoming): Params<Incoming>,
    body: axum::body::Body,
) -> Result<Json<Arrived>, ApiError> {
    uploaded(&app, &principal.name, &incoming, body).await
}

pub(super) async fn uploaded(
    app: &App,
    submitter: &str,
    incoming: &Incoming,
    body: axum::body::Body,
) -> Result<Json<Arrived>, ApiError> {
    // A lost or silent connection is the end of its bytes: what has come stays.
    let pieces = futures_util::stream::unfold(body.into_data_stream(), async |mut body| {
        match tokio::time::timeout(SILENCE, body.next()).await {
            Ok(Some(Ok(piece))) => Some((Ok::<_, std::io::Error>(piece), body)),
            Ok(Some(Err(_)) | None) | Err(_) => None,
        }
    });
    let (project, format) = (&incoming.project, incoming.format);
    let place = (incoming.sha256.as_str(), incoming.offset);
    let reader = StreamReader::new(pieces.boxed());
    let arrived = depot(app)?.accept(submitter, (project, format), place, reader).await?;
    if arrived.complete {
        sweep(app);
    }
    Ok(Json(arrived))
}

/// Stays free beside a pack, in bytes, for what running attempts still have to say.
const BESIDE: u64 = 64 << 20;

/// Refuses what would not fit beside what running attempts need.
fn room(app: &App, bytes: u64) -> Result<(), ApiError> {
    let tight = app.store.free_bytes().is_some_and(|free| free < BESIDE.saturating_add(bytes));
    let hint =
        "free some space on the controller: 64 MiB stay free beside a directory that travels, whatever --reserve says";
    if tight { Err(full().hint(hint)) } else { Ok(()) }
}

pub(super) fn depot(app: &App) -> Result<&Depot, ApiError> {
    app.depot.as_ref().ok_or_else(|| {
        let message = "working directories do not travel to a controller in the same process";
        ApiError::new(StatusCode::NOT_FOUND, code::NO_SUCH_SNAPSHOT, message)
    })
}

/// Lets go what no attempt needs any more; nobody waits for it.
pub(super) fn sweep(app: &App) {
    let Some(depot) = app.depot.clone() else { return };
    let supervisor = app.supervisor.clone();
    tokio::spawn(async move {
        let held = depot.held();
        let ended = supervisor.ask(move |world, _, _| {
            let known = held.into_iter().filter_map(|id| Some((id, world.core.attempt(id)?)));
            known.map(|(id, attempt)| (id, matches!(attempt.state, Phase::Ended { .. }))).collect()
        });
        // Nothing is let go on a guess.
        let Ok(ended) = ended.await else { return };
        let swept = tokio::time::timeout(Duration::from_secs(3600), depot.sweep(&ended));
        if swept.await.is_err() {
            tracing::warn!("the snapshots were not swept to the end");
        }
    });
}

/// Whose attempt a worker holds, and what it starts from.
pub(super) async fn held(app: &App, worker: WorkerId, of: &Of) -> Result<(String, SnapshotRef), ApiError> {
    let (attempt, generation) = (of.attempt, of.generation);
    let submitter = app.supervisor.ask(move |world, _, _| {
        lease::check_holder(world, &worker, attempt, generation).map(|attempt| attempt.submitter().to_owned())
    });
    let submitter = submitter.await??;
    let assignment = app.store.assignment(attempt).await?;
    let snapshot = assignment.and_then(|assignment| assignment.snapshot).ok_or_else(|| {
        let message = format!("attempt {attempt} starts from no snapshot");
        ApiError::new(StatusCode::NOT_FOUND, code::NO_SUCH_SNAPSHOT, message)
    })?;
    Ok((submitter, snapshot))
}

pub(super) async fn offered(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Params(of): Params<Of>,
) -> Result<Json<Offer>, ApiError> {
    let (submitter, snapshot) = held(&app, worker, &of).await?;
    Ok(Json(depot(&app)?.offered(&submitter, &snapshot, &Goods::Snapshot, false).await?))
}

pub(super) async fn pack(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Params(of): Params<Of>,
    Body(have): Body<Have>,
) -> Result<Json<Ticket>, ApiError> {
    let (submitter, snapshot) = held(&app, worker, &of).await?;
    Ok(Json(depot(&app)?.pack(&submitter, &snapshot, &Goods::Snapshot, &have).await?))
}

/// How far the pack is that the worker waits for.
pub(super) async fn packing(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Params(of): Params<Of>,
) -> Result<Json<Option<Packing>>, ApiError> {
    let (submitter, snapshot) = held(&app, worker, &of).await?;
    Ok(Json(depot(&app)?.packing(&submitter, &snapshot, &Goods::Snapshot)))
}

pub(super) async fn download(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Params(of): Params<Of>,
    Params(piece): Params<Piece>,
) -> Result<Response, ApiError> {
    let (submitter, snapshot) = held(&app, worker, &of).await?;
    bytes(&app, &submitter, &snapshot, &piece).await
}

/// The rest of a pack.
pub(super) async fn bytes(
    app: &App,
    submitter: &str,
    snapshot: &SnapshotRef,
    piece: &Piece,
) -> Result<Response, ApiError> {
    let (file, rest) = depot(app)?.open_pack(submitter, snapshot, &piece.sha256, piece.offset).await?;
    let mut response = axum::body::Body::from_stream(ReaderStream::with_capacity(file, 64 << 10)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(rest));
    Ok(response)
}
