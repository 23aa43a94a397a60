//! The one shape in which a request is refused: stable code, public message, hint; the rest goes to the log.

use agent::snapshot::SnapshotError;
use agent::wire::error::{ErrorBody, code};
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tracing::{error, info};

use super::{own, request};
use crate::depot::DepotError;
use crate::reactor::Refused;
use crate::store::StoreError;
use crate::supervisor::AskError;

/// A refusal.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<&'static str>,
}

impl ApiError {
    /// A refusal with a stable code.
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None }
    }

    /// Says what to do next.
    #[must_use]
    pub(super) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// 400 for a request that cannot be understood.
    pub(super) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// The caller is not told more than that it is our fault.
    pub(super) fn internal(failure: &dyn std::fmt::Display) -> Self {
        error!(%failure, "request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL, "internal error")
            .hint("the controller's log has more under this request id")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let request_id = request::current_id();
        info!(status = self.status.as_u16(), code = self.code, message = self.message, "request refused");
        let hint = self.hint.map(str::to_owned);
        let body = ErrorBody { code: self.code.to_owned(), message: self.message, hint, request_id };
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(http::header::WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        let (status, code, hint) = match refused {
            Refused::NoSuchAttempt(_) => {
                (StatusCode::NOT_FOUND, code::NO_SUCH_ATTEMPT, Some("`laneyard attempts` lists what is known here"))
            }
            Refused::NotYours(..) => (StatusCode::FORBIDDEN, code::NOT_YOUR_ATTEMPT, Some(own::HINT)),
            Refused::IdReused(_) => (StatusCode::CONFLICT, code::ID_REUSED, Some("make a new id for a new attempt")),
            Refused::NoSuchWorker(_) => (StatusCode::NOT_FOUND, code::NO_SUCH_WORKER, Some("register first")),
            Refused::StaleSession(_) => (StatusCode::CONFLICT, code::STALE_SESSION, Some("register again")),
            Refused::NameTaken(_) => (
                StatusCode::CONFLICT,
                code::NAME_TAKEN,
                Some("give each agent a name of its own, or wait until the other one's lease has run out"),
            ),
            Refused::StaleLease(_) => (StatusCode::CONFLICT, code::STALE_LEASE, None),
            Refused::BadReport(..) => (StatusCode::BAD_REQUEST, "bad-report", None),
            Refused::AnswerMissing(_) => {
                (StatusCode::CONFLICT, code::ANSWER_MISSING, Some("store the answer, then send the report again"))
            }
            Refused::WorkerBusy(..) => (
                StatusCode::CONFLICT,
                code::WORKER_BUSY,
                Some(
                    "drain it and wait until it is empty; or abandon them: what may have started then stays \
                     interrupted until the worker comes back",
                ),
            ),
        };
        Self { status, code, message, hint }
    }
}

impl From<AskError> for ApiError {
    fn from(failure: AskError) -> Self {
        match failure {
            AskError::Stopping => stopping(),
            AskError::Store(failure) => store(&failure),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(failure: StoreError) -> Self {
        store(&failure)
    }
}

impl From<DepotError> for ApiError {
    fn from(failure: DepotError) -> Self {
        let message = failure.to_string();
        let refuse = |status, code| Self::new(status, code, message.clone());
        match &failure {
            DepotError::Snapshot(failure) => snapshot(failure),
            DepotError::NoSnapshot { .. } => {
                refuse(StatusCode::CONFLICT, code::NO_SUCH_SNAPSHOT).hint("send it again, then submit again")
            }
            DepotError::NoResult { .. } => refuse(StatusCode::NOT_FOUND, code::NO_RESULT)
                .hint("a reader leaves none, and a writer only once its receipt says so"),
            DepotError::NoPack { .. } => {
                refuse(StatusCode::NOT_FOUND, code::NO_SUCH_PACK).hint("begin again with the offer")
            }
            DepotError::WrongOffset { .. } => {
                refuse(StatusCode::CONFLICT, code::WRONG_OFFSET).hint("announce the pack again to learn the offset")
            }
            DepotError::TooLarge { .. } => refuse(StatusCode::PAYLOAD_TOO_LARGE, "too-large")
                .hint("send less history with --history, or ignore large files"),
            DepotError::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => full(),
            DepotError::File { .. } => Self::internal(&failure),
        }
    }
}

fn snapshot(failure: &SnapshotError) -> ApiError {
    match failure {
        SnapshotError::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::StorageFull => full(),
            std::io::ErrorKind::WouldBlock => {
                let message = "another connection still writes this pack";
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code::UPLOAD_BUSY, message).hint("try again in a moment")
            }
            _ => ApiError::internal(failure),
        },
        SnapshotError::Digest { .. } => ApiError::bad(code::DIGEST_MISMATCH, failure.to_string()),
        SnapshotError::Git(cause) if cause.to_string().contains("No space left on device") => full(),
        SnapshotError::Git(_) | SnapshotError::Damaged { .. } | SnapshotError::NoSnapshot { .. } => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad-objects", failure.to_string())
                .hint("objects are damaged or missing: check the repository with `git fsck`")
        }
        SnapshotError::Holder { .. } => ApiError::bad("bad-id", failure.to_string()),
        _ => ApiError::internal(failure),
    }
}

/// 503: the same request may succeed soon.
pub(super) fn stopping() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code::UNAVAILABLE, "the controller is shutting down")
        .hint("try again in a moment")
}

fn store(failure: &StoreError) -> ApiError {
    match failure {
        StoreError::Full { .. } => full(),
        StoreError::DigestMismatch => ApiError::bad(code::DIGEST_MISMATCH, failure.to_string()),
        StoreError::TooLong { .. } => ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", failure.to_string()),
        StoreError::Upload(_) => ApiError::bad("broken-upload", failure.to_string()),
        StoreError::Database { .. }
        | StoreError::Damaged { .. }
        | StoreError::Newer { .. }
        | StoreError::File { .. } => ApiError::internal(failure),
    }
}

/// 507: nothing of the request was kept.
pub(super) fn full() -> ApiError {
    ApiError::new(
        StatusCode::INSUFFICIENT_STORAGE,
        code::STORAGE_FULL,
        "the controller's disk is full; nothing that was acknowledged is lost",
    )
    .hint("free some space on the controller, or serve with a smaller --reserve, then try again")
}
