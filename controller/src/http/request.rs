//! What every request gets: an id, a span, parsed parameters, a size limit.

use std::str::FromStr;

use agent::wire::paths::{LAST_EVENT_ID_HEADER, REQUEST_ID_HEADER};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;
use uuid::Uuid;

use super::error::ApiError;

tokio::task_local! {
    static REQUEST_ID: String;
}

/// Id of the request that this task serves.
pub(super) fn current_id() -> String {
    REQUEST_ID.try_with(Clone::clone).unwrap_or_default()
}

/// Gives a request its id, which its answer carries too.
pub(super) async fn identify(request: Request, next: Next) -> Response {
    let id = Uuid::now_v7().to_string();
    let span = tracing::info_span!("request", %id, method = %request.method(), path = request.uri().path(), credential = tracing::field::Empty);
    let value = HeaderValue::try_from(&id);
    let mut response = REQUEST_ID.scope(id, next.run(request).instrument(span)).await;
    if let Ok(value) = value {
        response.headers_mut().insert(REQUEST_ID_HEADER, value);
    }
    response
}

/// A JSON body, whatever its content type says.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;
    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            let status = rejection.status();
            let code = if status == StatusCode::PAYLOAD_TOO_LARGE { "too-large" } else { "broken-upload" };
            ApiError::new(status, code, rejection.body_text())
        })?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|error| ApiError::bad("bad-body", format!("the body is not what is expected here: {error}")))
    }
}

/// One id from the path.
pub(super) struct Id<T>(pub(super) T);

impl<T, S> FromRequestParts<S> for Id<T>
where
    T: FromStr + Send,
    T::Err: std::fmt::Display,
    S: Send + Sync,
{
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let bad = |error: &dyn std::fmt::Display| ApiError::bad("bad-id", error.to_string());
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(|error| bad(&error))?;
        text.parse().map(Self).map_err(|error: T::Err| bad(&error))
    }
}

/// What stands behind the question mark.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(params)| Self(params)).map_err(|error| ApiError::bad("bad-query", error.body_text()))
    }
}

/// Which part of a list is wanted.
#[derive(Debug, Deserialize)]
pub(super) struct Paging {
    after: Option<String>,
    limit: Option<u32>,
}

impl Paging {
    /// Items a page: 1 to 500, by default 100.
    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.limit.unwrap_or(100).clamp(1, 500)).unwrap_or(100)
    }

    /// The item after which the page begins.
    pub(super) fn after<T: FromStr>(&self) -> Result<Option<T>, ApiError> {
        let parse = |text: &String| {
            text.parse().map_err(|_| ApiError::bad("bad-page", format!("`{text}` is no place in this list")))
        };
        self.after.as_ref().map(parse).transpose()
    }
}

/// The record after which a stream resumes; 0 without one.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<u64, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID_HEADER) else { return Ok(0) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| ApiError::bad("bad-event-id", "Last-Event-ID must be a number"))
}
