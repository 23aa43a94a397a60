//! Every route, spelled once. Ids need no escaping: their alphabets are safe in URLs.

use crate::ids::{AttemptId, WorkerId};

/// Clients submit and list here.
pub const ATTEMPTS: &str = "/v1/attempts";
/// Agents register and operators list here.
pub const WORKERS: &str = "/v1/workers";
/// What waits.
pub const QUEUE: &str = "/v1/queue";
/// Applies retention.
pub const GC: &str = "/v1/gc";
/// Administrators make and list credentials here.
pub const CREDENTIALS: &str = "/v1/credentials";
/// A worker joins here, with nothing but its join token.
pub const JOIN: &str = "/v1/join";
/// Clients bring snapshots here.
pub const SNAPSHOTS: &str = "/v1/snapshots";
/// Alive, without a credential.
pub const HEALTH: &str = "/healthz";
/// The OpenAPI document, without a credential.
pub const OPENAPI: &str = "/v1/openapi.json";

/// Header that carries a blob's SHA-256 as lower-case hexadecimal.
pub const DIGEST_HEADER: &str = "x-content-sha256";
/// Header that carries the request's id.
pub const REQUEST_ID_HEADER: &str = "x-request-id";
/// Header of a submission: milliseconds since 1970 on the client's clock when it was sent, so that a deadline is not judged by
/// two clocks that differ.
pub const CLIENT_TIME_HEADER: &str = "x-client-time-ms";
/// Resumes a stream after this record.
pub const LAST_EVENT_ID_HEADER: &str = "last-event-id";

/// `/v1/attempts/{id}`.
#[must_use]
pub fn attempt(id: AttemptId) -> String {
    format!("{ATTEMPTS}/{id}")
}

/// `/v1/attempts/{id}/{part}` with part `events`, `cancel`, `receipt`, `answer`, `delivered` or `result`.
#[must_use]
pub fn attempt_part(id: AttemptId, part: &str) -> String {
    format!("{ATTEMPTS}/{id}/{part}")
}

/// `/v1/workers/{id}`.
#[must_use]
pub fn worker(id: &WorkerId) -> String {
    format!("{WORKERS}/{id}")
}

/// `/v1/workers/{id}/{part}` with part `commands`, `heartbeat`, `claim`, `refuse`, `events`, `live`, `released`, …
#[must_use]
pub fn worker_part(id: &WorkerId, part: &str) -> String {
    format!("{WORKERS}/{id}/{part}")
}
