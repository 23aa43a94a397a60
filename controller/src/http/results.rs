//! Results up from workers and down to the clients whose attempts they are.

use agent::ids::{AttemptId, WorkerId};
use agent::snapshot::transfer::{Have, Offer, Packing, Ticket};
use agent::wire::error::code;
use agent::wire::snapshot::{Announce, Arrived, KeepResult, Kept, Let, ResultView, Waiting, WaitingView};
use agent::wire::worker::WorkerState;
use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use http::StatusCode;

use super::App;
use super::attempts::receipt_of;
use super::auth::Principal;
use super::error::ApiError;
use super::own::own;
use super::request::{Body, Id, Params};
use super::snapshots::{Incoming, Of, Piece, announced, bytes, depot, held, sweep, uploaded};
use crate::core::attempt::State as Phase;
use crate::depot::{DepotError, Goods, Left};

/// Objects of an attempt's result are named by its own project only.
fn same_project(project: &agent::snapshot::ProjectId, of: &agent::snapshot::ProjectId) -> Result<(), ApiError> {
    if project == of { Ok(()) } else { Err(ApiError::bad("bad-project", "this is not the attempt's project")) }
}

pub(super) async fn offer(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Params(of): Params<Of>,
    Body(offer): Body<Offer>,
) -> Result<Json<Have>, ApiError> {
    let (submitter, snapshot) = held(&app, worker, &of).await?;
    same_project(&offer.project, &snapshot.project)?;
    Ok(Json(depot(&app)?.answer(&submitter, &offer).await?))
}

pub(super) async fn announce(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Params(of): Params<Of>,
    Body(announce): Body<Announce>,
) -> Result<Json<Arrived>, ApiError> {
    let (submitter, snapshot) = held(&app, worker, &of).await?;
    same_project(&announce.project, &snapshot.project)?;
    announced(&app, &submitter, &announce).await
}

pub(super) async fn upload(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Params(of): Params<Of>,
    Params(incoming): Params<Incoming>,
    body: axum::body::Body,
) -> Result<Json<Arrived>, ApiError> {
    let (submitter, snapshot) = held(&app, worker, &of).await?;
    same_project(&incoming.project, &snapshot.project)?;
    uploaded(&app, &submitter, &incoming, body).await
}

pub(super) async fn keep(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Params(of): Params<Of>,
    Body(KeepResult { result }): Body<KeepResult>,
) -> Result<Json<ResultView>, ApiError> {
    let (submitter, snapshot) = held(&app, worker, &of).await?;
    let depot = depot(&app)?;
    depot.keep_result(&submitter, of.attempt, &snapshot, &result).await?;
    Ok(Json(depot.left(of.attempt)?.into()))
}

/// Which of the worktrees that a worker still has may go. The worker says by the same why results are still there.
pub(super) async fn kept(
    State(app): State<App>,
    Id(worker): Id<WorkerId>,
    Body(Kept { attempts, waiting }): Body<Kept>,
) -> Result<Json<Let>, ApiError> {
    let depot = depot(&app)?;
    let reviewed: Vec<AttemptId> = attempts.into_iter().filter(|attempt| depot.is_reviewed(*attempt)).collect();
    let name = worker.clone();
    let theirs = app.supervisor.ask(move |world, _, _| {
        let theirs = |id: &AttemptId| world.core.attempt(*id).is_some_and(|known| known.worker() == Some(&worker));
        let waiting: Vec<Waiting> = waiting.into_iter().filter(|waiting| theirs(&waiting.attempt)).collect();
        (reviewed.into_iter().filter(theirs).collect(), waiting)
    });
    let (release, waiting) = theirs.await?;
    depot.told_waiting(&name, waiting);
    Ok(Json(Let { release }))
}

/// Where a result is that is not here: as its worker said lately, else as the receipt says.
pub(super) async fn waiting(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
) -> Result<Json<WaitingView>, ApiError> {
    own(&app, &principal, id).await?;
    let depot = depot(&app)?;
    let none = || ApiError::from(DepotError::NoResult { attempt: id });
    if depot.left(id).is_ok() {
        let message = format!("nothing of attempt {id} waits on its worker: the result is here");
        return Err(ApiError::new(StatusCode::NOT_FOUND, code::NO_RESULT, message));
    }
    if depot.is_reviewed(id) {
        return Err(none().hint("somebody has let it go"));
    }
    let seen = app.supervisor.ask(move |world, _, _| {
        let attempt = world.core.attempt(id).filter(|attempt| matches!(attempt.state, Phase::Ended { .. }))?;
        let worker = attempt.worker()?;
        let view = world.core.worker_view(worker);
        let connected = view.is_some_and(|view| view.state != WorkerState::Unreachable);
        Some((worker.clone(), connected, attempt.ended_at?))
    });
    let (worker, connected, since) = seen.await?.ok_or_else(none)?;
    if let Some(Waiting { attempt, path, since, reason, refused }) = depot.waiting(id) {
        return Ok(Json(WaitingView { attempt, worker, connected, path: Some(path), since, reason, refused }));
    }
    let result = receipt_of(&app, id).await?["result"].take();
    if result["keptBy"] != "worker" {
        return Err(none());
    }
    let path = result["worktree"]["path"].as_str().map(str::to_owned);
    let reason = result["reason"].as_str().unwrap_or("the receipt does not say why").to_owned();
    Ok(Json(WaitingView { attempt: id, worker, connected, path, since, reason, refused: false }))
}

async fn left(app: &App, principal: &Principal, id: AttemptId) -> Result<Left, ApiError> {
    own(app, principal, id).await?;
    Ok(depot(app)?.left(id)?)
}

pub(super) async fn show(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
) -> Result<Json<ResultView>, ApiError> {
    Ok(Json(left(&app, &principal, id).await?.into()))
}

pub(super) async fn offered(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
) -> Result<Json<Offer>, ApiError> {
    let left = left(&app, &principal, id).await?;
    let goods = Goods::Result(left.result);
    Ok(Json(depot(&app)?.offered(&left.submitter, &left.snapshot, &goods, true).await?))
}

pub(super) async fn pack(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
    Body(have): Body<Have>,
) -> Result<Json<Ticket>, ApiError> {
    let left = left(&app, &principal, id).await?;
    let goods = Goods::Result(left.result);
    Ok(Json(depot(&app)?.pack(&left.submitter, &left.snapshot, &goods, &have).await?))
}

/// How far the pack is that the client waits for.
pub(super) async fn packing(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
) -> Result<Json<Option<Packing>>, ApiError> {
    let left = left(&app, &principal, id).await?;
    Ok(Json(depot(&app)?.packing(&left.submitter, &left.snapshot, &Goods::Result(left.result))))
}

pub(super) async fn download(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
    Params(piece): Params<Piece>,
) -> Result<Response, ApiError> {
    let left = left(&app, &principal, id).await?;
    bytes(&app, &left.submitter, &left.snapshot, &piece).await
}

/// Taken, or let go: what is kept of it may be removed.
pub(super) async fn review(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
) -> Result<StatusCode, ApiError> {
    own(&app, &principal, id).await?;
    depot(&app)?.review(id)?;
    sweep(&app);
    Ok(StatusCode::NO_CONTENT)
}
