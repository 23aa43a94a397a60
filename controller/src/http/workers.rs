//! What agents say, and what operators do with workers.

use std::collections::BTreeSet;

use agent::ids::{AttemptId, Generation, WorkerId};
use agent::wire::attempt::Page;
use agent::wire::error::code;
use agent::wire::paths::DIGEST_HEADER;
use agent::wire::worker::{
    Acknowledged, Granted, Heartbeat, LeaseRef, Live, Refuse, Register, Registered, Removal, Report, WorkerState,
    WorkerView,
};
use axum::extract::State;
use axum::{Extension, Json};
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

use super::App;
use super::attempts::page;
use super::auth::{Principal, refuse as deny};
use super::error::ApiError;
use super::request::{Body, Id, Paging, Params};
use crate::identity::{Denied, Grant};
use crate::reactor::client::{Steer, on_steer};
use crate::reactor::{lease, worker};
use crate::unstarted;

pub(super) async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<WorkerView>>, ApiError> {
    let (limit, after) = (paging.limit(), paging.after::<WorkerId>()?);
    let items = app.supervisor.ask(move |world, _, _| {
        let workers = world.core.workers().keys().filter(|id| after.as_ref().is_none_or(|after| *id > after));
        workers.take(limit + 1).filter_map(|id| world.core.worker_view(id)).collect::<Vec<_>>()
    });
    let revoked = app.registry.revoked_workers();
    let items = items.await?.into_iter().map(|view| marked(view, &revoked)).collect();
    Ok(Json(page(items, limit, |view| view.worker.to_string())))
}

/// One that is heard has another credential: it was not shut out.
fn marked(view: WorkerView, revoked: &BTreeSet<String>) -> WorkerView {
    let revoked = view.state == WorkerState::Unreachable && revoked.contains(view.worker.as_str());
    WorkerView { revoked, ..view }
}

pub(super) async fn register(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    grant: Option<Extension<Grant>>,
    Body(register): Body<Register>,
) -> Result<Json<Registered>, ApiError> {
    principal.check_worker(&register.worker)?;
    let answer = app.supervisor.ask(move |world, effects, now| {
        // It may have been shut out while this waited for its turn.
        let revoked = grant.is_some_and(|Extension(grant)| grant.is_revoked());
        (!revoked).then(|| worker::on_register(world, effects, now, &register))
    });
    let late = || deny(&Denied::Unknown);
    Ok(Json(answer.await?.ok_or_else(late)??))
}

pub(super) async fn heartbeat(
    State(app): State<App>,
    Id(id): Id<WorkerId>,
    Body(Heartbeat { session, held }): Body<Heartbeat>,
) -> Result<StatusCode, ApiError> {
    let answer =
        app.supervisor.ask(move |world, effects, now| worker::on_heartbeat(world, effects, now, &id, session, &held));
    answer.await??;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn claim(
    State(app): State<App>,
    Id(id): Id<WorkerId>,
    Body(claim): Body<LeaseRef>,
) -> Result<Json<Granted>, ApiError> {
    let answer = app.supervisor.ask(move |world, effects, now| lease::on_claim(world, effects, now, &id, &claim));
    Ok(Json(answer.await??))
}

pub(super) async fn refuse(
    State(app): State<App>,
    Id(id): Id<WorkerId>,
    Body(refuse): Body<Refuse>,
) -> Result<StatusCode, ApiError> {
    let assignment = app.store.assignment(refuse.lease.attempt).await?;
    let receipt =
        assignment.map(|assignment| unstarted::refused(&assignment, &refuse.reason, OffsetDateTime::now_utc()));
    let answer =
        app.supervisor.ask(move |world, effects, now| lease::on_refuse(world, effects, now, &id, &refuse, receipt));
    answer.await??;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn report(
    State(app): State<App>,
    Id(id): Id<WorkerId>,
    Body(report): Body<Report>,
) -> Result<Json<Acknowledged>, ApiError> {
    let answer = app.supervisor.ask(move |world, effects, now| lease::on_report(world, effects, now, &id, report));
    Ok(Json(answer.await??))
}

pub(super) async fn live(
    State(app): State<App>,
    Id(id): Id<WorkerId>,
    Body(live): Body<Live>,
) -> Result<StatusCode, ApiError> {
    let Live { session, attempt, generation, events } = live;
    if app.hub.is_watched(attempt) {
        let claim = LeaseRef { session, attempt, generation };
        app.supervisor.ask(move |world, _, _| lease::check_lease(world, &id, &claim)).await??;
        app.hub.tell_live(attempt, events.into_iter().filter(agent::event::EventBody::is_live).collect());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Whose answer is uploaded.
#[derive(Debug, Deserialize)]
pub(super) struct Upload {
    session: Uuid,
    attempt: AttemptId,
    generation: Generation,
}

pub(super) async fn answer(
    State(app): State<App>,
    Id(id): Id<WorkerId>,
    Params(Upload { session, attempt, generation }): Params<Upload>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<StatusCode, ApiError> {
    let digest = headers.get(DIGEST_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    if digest.len() != 64 || !digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        let message = format!("{DIGEST_HEADER} must be a SHA-256 in lower-case hexadecimal");
        return Err(ApiError::bad(code::DIGEST_MISMATCH, message));
    }
    let claim = LeaseRef { session, attempt, generation };
    let (asked, worker_id) = (claim.clone(), id.clone());
    app.supervisor.ask(move |world, _, _| lease::check_lease(world, &worker_id, &asked)).await??;
    let bytes = app.store.keep_answer(attempt, &digest, body.into_data_stream().map_err(Into::into).boxed()).await?;
    let answer = app
        .supervisor
        .ask(move |world, effects, now| lease::on_answer(world, effects, now, &id, &claim, digest, bytes));
    answer.await??;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn released(
    State(app): State<App>,
    Id(id): Id<WorkerId>,
    Body(LeaseRef { session, attempt, generation }): Body<LeaseRef>,
) -> Result<StatusCode, ApiError> {
    let answer = app
        .supervisor
        .ask(move |world, effects, now| lease::on_released(world, effects, now, &id, session, attempt, generation));
    answer.await??;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn drain(state: State<App>, id: Id<WorkerId>) -> Result<Json<WorkerView>, ApiError> {
    steer(state, id, Steer::Drain).await
}

pub(super) async fn resume(state: State<App>, id: Id<WorkerId>) -> Result<Json<WorkerView>, ApiError> {
    steer(state, id, Steer::Resume).await
}

pub(super) async fn remove(
    state: State<App>,
    id: Id<WorkerId>,
    Body(Removal { abandon }): Body<Removal>,
) -> Result<Json<WorkerView>, ApiError> {
    steer(state, id, Steer::Remove { abandon }).await
}

async fn steer(State(app): State<App>, Id(id): Id<WorkerId>, steer: Steer) -> Result<Json<WorkerView>, ApiError> {
    let answer = app.supervisor.ask(move |world, effects, now| on_steer(world, effects, now, &id, steer));
    Ok(Json(marked(answer.await??, &app.registry.revoked_workers())))
}
