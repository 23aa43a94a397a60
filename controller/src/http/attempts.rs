//! What clients ask for, all but the event stream.

use agent::event::EventBody;
use agent::ids::AttemptId;
use agent::wire::attempt::{AttemptView, Cancel, Deliver, Page, QueueEntry, Submit};
use agent::wire::error::code;
use agent::wire::paths::CLIENT_TIME_HEADER;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio_util::io::ReaderStream;

use super::App;
use super::auth::Principal;
use super::error::{ApiError, full};
use super::own::{own, shown};
use super::request::{Body, Id, Paging, Params};
use super::snapshots::depot;
use crate::core::attempt::State as Phase;
use crate::event::Order;
use crate::reactor::{Refused, client};
use crate::store::answers::{Kept, hex};
use crate::unstarted;

/// A difference of clocks that is smaller may be the time that a submission took to arrive.
const ON_ITS_WAY: time::Duration = time::Duration::seconds(5);
/// Bytes of a long answer that are read at a time.
const PIECE: usize = 64 << 10;

/// A panel with more lanes than this is refused.
const PANEL_LIMIT: u32 = 256;

pub(super) async fn submit(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    Body(submit): Body<Submit>,
) -> Result<(StatusCode, Json<AttemptView>), ApiError> {
    let id = submit.assignment.attempt;
    let order = order(&submit, principal.name, skew(&headers))?;
    let mut assignment = submit.assignment;
    assignment.deadline = None; // its worker's to say
    let admits = app.store.admits();
    // What is repeated, or refused, needs no room and must not touch what the first one holds.
    if (!admits || assignment.snapshot.is_some())
        && let Some(view) = repeated(&app, id, order.clone()).await?
    {
        return Ok((StatusCode::OK, Json(view)));
    }
    if !admits {
        return Err(full());
    }
    if let Some(snapshot) = &assignment.snapshot {
        // Before the attempt is known: a snapshot that it starts from cannot be evicted any more.
        depot(&app)?.hold(&order.submitter, id, snapshot).await?;
    }
    let answer = app.supervisor.ask(move |world, effects, now| {
        let known = world.core.attempt(id).is_some();
        client::on_submit(world, effects, now, order, assignment)?;
        let view = world.core.view(id).ok_or(Refused::NoSuchAttempt(id))?;
        Ok::<_, Refused>((known, view))
    });
    let (known, view) = answer.await??;
    Ok((if known { StatusCode::OK } else { StatusCode::CREATED }, Json(view)))
}

/// The attempt, if this very order has made it.
async fn repeated(app: &App, id: AttemptId, order: Order) -> Result<Option<AttemptView>, ApiError> {
    let known = app.supervisor.ask(move |world, _, _| {
        let known = client::is_repeated(world, id, &order)?;
        Ok::<_, Refused>(known.then(|| world.core.view(id)).flatten())
    });
    Ok(known.await??)
}

/// By how much our clock is ahead of the client's. What a request needs on its way is no difference.
fn skew(headers: &HeaderMap) -> time::Duration {
    let sent = headers.get(CLIENT_TIME_HEADER).and_then(|value| value.to_str().ok()?.parse::<i64>().ok());
    let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
    let ahead = sent.and_then(|sent| i64::try_from(now).ok()?.checked_sub(sent));
    let ahead = time::Duration::milliseconds(ahead.unwrap_or(0));
    if ahead.abs() < ON_ITS_WAY { time::Duration::ZERO } else { ahead }
}

fn order(submit: &Submit, submitter: String, skew: time::Duration) -> Result<Order, ApiError> {
    let text = serde_json::to_vec(submit).map_err(|error| ApiError::bad("bad-body", error.to_string()))?;
    if let Some(panel) = &submit.panel {
        let named = (1..=200).contains(&panel.id.len());
        if !named || panel.size == 0 || panel.size > PANEL_LIMIT {
            return Err(ApiError::bad("bad-panel", "a panel has a name of 1 to 200 bytes and 1 to 256 lanes"));
        }
    }
    let assignment = &submit.assignment;
    Ok(Order {
        digest: hex(&Sha256::digest(&text)),
        submitter,
        provider: assignment.provider,
        model: assignment.model.clone(),
        effort: Some(assignment.effort),
        mode: assignment.mode,
        execution_id: assignment.execution_id.clone(),
        labels: submit.labels.clone(),
        panel: submit.panel.clone(),
        instance: assignment.instance.clone(),
        deadline: assignment.timeout().and_then(|limit| {
            let limit = time::Duration::try_from(limit).ok()?;
            assignment.started_at.checked_add(limit)?.checked_add(skew)
        }),
    })
}

pub(super) async fn show(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
) -> Result<Json<AttemptView>, ApiError> {
    let view = app.supervisor.ask(move |world, _, _| world.core.view(id)).await?;
    Ok(Json(shown(view.ok_or(Refused::NoSuchAttempt(id))?, &principal)))
}

pub(super) async fn list(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<AttemptView>>, ApiError> {
    let (limit, after) = (paging.limit(), paging.after::<AttemptId>()?);
    let items = app.supervisor.ask(move |world, _, _| {
        let older = world.core.attempts().range(..after.unwrap_or_else(AttemptId::last));
        let items = older.rev().take(limit + 1).filter_map(|(id, _)| Some(shown(world.core.view(*id)?, &principal)));
        items.collect::<Vec<_>>()
    });
    Ok(Json(page(items.await?, limit, |view| view.attempt.to_string())))
}

/// Cuts the one item too many that shows that there is more.
pub(super) fn page<T>(mut items: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(place);
    Page { items, next }
}

pub(super) async fn queue(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<QueueEntry>>, ApiError> {
    let (limit, after) = (paging.limit(), paging.after::<u32>()?.unwrap_or(0));
    let items = app.supervisor.ask(move |world, _, _| world.core.queue_view(after, limit + 1)).await?;
    Ok(Json(page(items, limit, |entry| entry.position.to_string())))
}

pub(super) async fn cancel(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
    Body(Cancel { signal }): Body<Cancel>,
) -> Result<(StatusCode, Json<AttemptView>), ApiError> {
    own(&app, &principal, id).await?;
    let by = principal.name;
    let assignment = app.store.assignment(id).await?;
    let receipt = assignment.map(|assignment| unstarted::cancelled(&assignment, signal, OffsetDateTime::now_utc()));
    let view = app.supervisor.ask(move |world, effects, now| {
        client::on_cancel(world, effects, now, id, (signal, by), receipt)?;
        world.core.view(id).ok_or(Refused::NoSuchAttempt(id))
    });
    Ok((StatusCode::ACCEPTED, Json(view.await??)))
}

pub(super) async fn delivered(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
    Body(Deliver { status }): Body<Deliver>,
) -> Result<Json<AttemptView>, ApiError> {
    own(&app, &principal, id).await?;
    let view = app.supervisor.ask(move |world, effects, now| {
        client::on_delivered(world, effects, now, id, status)?;
        world.core.view(id).ok_or(Refused::NoSuchAttempt(id))
    });
    Ok(Json(view.await??))
}

/// What an ended attempt left.
struct End {
    last_seq: u64,
    answer: Option<(String, u64)>,
}

async fn end(app: &App, id: AttemptId) -> Result<End, ApiError> {
    let end = app.supervisor.ask(move |world, _, _| {
        let attempt = world.core.attempt(id).ok_or(Refused::NoSuchAttempt(id))?;
        let end = || End { last_seq: attempt.last_seq, answer: attempt.answer.clone() };
        Ok::<_, Refused>(matches!(attempt.state, Phase::Ended { .. }).then(end))
    });
    end.await??.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, code::NOT_YET, format!("attempt {id} has not ended"))
            .hint("follow its events, and ask again when it has")
    })
}

pub(super) async fn receipt(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
) -> Result<Json<Value>, ApiError> {
    own(&app, &principal, id).await?;
    Ok(Json(receipt_of(&app, id).await?))
}

/// The receipt, as the worker wrote it.
///
/// # Errors
/// The attempt has not ended, or its receipt is gone.
pub(super) async fn receipt_of(app: &App, id: AttemptId) -> Result<Value, ApiError> {
    let end = end(app, id).await?;
    let last = app.store.events(id, end.last_seq.saturating_sub(1), 1).await?.pop();
    match last.map(|event| event.body) {
        Some(EventBody::Terminal { receipt, .. }) => Ok(receipt),
        _ => Err(ApiError::new(
            StatusCode::GONE,
            "not-kept",
            format!("the receipt of attempt {id} is not kept any more"),
        )),
    }
}

pub(super) async fn answer(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
) -> Result<Response, ApiError> {
    own(&app, &principal, id).await?;
    let end = end(&app, id).await?;
    let Some((digest, _)) = end.answer else {
        let message = format!("attempt {id} delivered no answer");
        return Err(ApiError::new(StatusCode::NOT_FOUND, code::NO_ANSWER, message).hint("its receipt says why"));
    };
    let (body, bytes) = match app.store.answer(id, &digest).await? {
        Kept::Whole(bytes) => (bytes.clone().into(), bytes.len() as u64),
        Kept::Long { file, length } => {
            (axum::body::Body::from_stream(ReaderStream::with_capacity(file, PIECE)), length)
        }
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    if let Ok(digest) = HeaderValue::try_from(digest) {
        headers.insert(agent::wire::paths::DIGEST_HEADER, digest);
    }
    Ok(response)
}
