//! Questions asked without the client library's types: they reject words that engines do use (Podman's `stopped`) and
//! leave out fields that we need (Podman's `Rootless`).

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::http::response::Parts;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::container::EngineError;

/// What an engine says of itself before anything was agreed on.
#[derive(Debug)]
pub(super) struct Pong {
    /// The newest API version that it speaks, as it writes it; empty of something that is no engine.
    pub(super) api: String,
    pub(super) podman: bool,
}

/// The one question that an engine answers without looking around: in the headers stands what it is. `/version` takes
/// Docker ten milliseconds and Podman 4 seven hundred.
pub(super) async fn ping(socket: &str, operation: &str, deadline: Duration) -> Result<Pong, EngineError> {
    let (head, _) = within(socket, operation, "/_ping", deadline).await?;
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    Ok(Pong {
        api: header("api-version").unwrap_or_default().to_owned(),
        podman: header("libpod-api-version").is_some(),
    })
}

/// One GET of JSON; `path` begins with `/`.
pub(super) async fn get(socket: &str, operation: &str, path: &str, deadline: Duration) -> Result<Value, EngineError> {
    let (_, body) = within(socket, operation, path, deadline).await?;
    serde_json::from_slice(&body)
        .map_err(|error| EngineError::Answer { operation: operation.to_owned(), reason: error.to_string() })
}

async fn within(socket: &str, operation: &str, path: &str, deadline: Duration) -> Result<(Parts, Bytes), EngineError> {
    match tokio::time::timeout(deadline, ask(socket, operation, path)).await {
        Ok(answer) => answer,
        Err(_) => {
            Err(EngineError::Deadline { address: socket.to_owned(), operation: operation.to_owned(), after: deadline })
        }
    }
}

/// Head and body of an answer that is no refusal.
async fn ask(socket: &str, operation: &str, path: &str) -> Result<(Parts, Bytes), EngineError> {
    let unreachable = |reason: String| EngineError::Unreachable {
        address: socket.to_owned(),
        operation: operation.to_owned(),
        reason,
    };
    let stream =
        tokio::net::UnixStream::connect(Path::new(socket)).await.map_err(|error| unreachable(error.to_string()))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| unreachable(error.to_string()))?;
    let request = hyper::Request::get(path).header("host", "engine").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| unreachable(error.to_string()))?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        Ok::<_, hyper::Error>((head, body.collect().await?.to_bytes()))
    };
    // The connection has to be driven while we wait. It may end a moment before the last bytes are taken out of it.
    tokio::pin!(exchange);
    tokio::pin!(connection);
    let outcome = tokio::select! {
        done = &mut exchange => done,
        _ = &mut connection => exchange.await,
    };
    let (head, body) = outcome.map_err(|error| unreachable(error.to_string()))?;
    if !head.status.is_success() {
        let told: Option<Value> = serde_json::from_slice(&body).ok();
        let told = told.and_then(|json| json.get("message").and_then(Value::as_str).map(str::to_owned));
        let message = told.unwrap_or_else(|| String::from_utf8_lossy(&body).trim().to_owned());
        let message = if message.is_empty() { "no reason given".to_owned() } else { message };
        return Err(EngineError::Refused { operation: operation.to_owned(), status: head.status.as_u16(), message });
    }
    Ok((head, body))
}

/// Words of other engines for a container's state, said as Docker says them.
pub(super) fn docker_words(status: &mut Value) {
    let Some(text) = status.as_str() else { return };
    let word = match text {
        "stopped" => "exited",
        "configured" | "initialized" => "created",
        "stopping" => "running",
        "created" | "running" | "paused" | "restarting" | "removing" | "exited" | "dead" => return,
        _ => "",
    };
    *status = Value::from(word);
}
