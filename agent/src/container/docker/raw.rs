//! Questions asked without the client library's types: they reject words that engines do use (Podman's `stopped`) and
//! leave out fields that we need (Podman's `Rootless`).

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::container::EngineError;

/// One GET; `path` begins with `/`.
pub(super) async fn get(socket: &str, operation: &str, path: &str, deadline: Duration) -> Result<Value, EngineError> {
    match tokio::time::timeout(deadline, ask(socket, operation, path)).await {
        Ok(answer) => answer,
        Err(_) => {
            Err(EngineError::Deadline { address: socket.to_owned(), operation: operation.to_owned(), after: deadline })
        }
    }
}

async fn ask(socket: &str, operation: &str, path: &str) -> Result<Value, EngineError> {
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
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        Ok::<_, hyper::Error>((status, answer.into_body().collect().await?.to_bytes()))
    };
    // The connection has to be driven while we wait. It may end a moment before the last bytes are taken out of it.
    tokio::pin!(exchange);
    tokio::pin!(connection);
    let outcome = tokio::select! {
        done = &mut exchange => done,
        _ = &mut connection => exchange.await,
    };
    let (status, body) = outcome.map_err(|error| unreachable(error.to_string()))?;
    let json: Result<Value, _> = serde_json::from_slice(&body);
    if !status.is_success() {
        let told = json.ok().and_then(|json| json.get("message").and_then(Value::as_str).map(str::to_owned));
        let message = told.unwrap_or_else(|| String::from_utf8_lossy(&body).trim().to_owned());
        let message = if message.is_empty() { "no reason given".to_owned() } else { message };
        return Err(EngineError::Refused { operation: operation.to_owned(), status: status.as_u16(), message });
    }
    json.map_err(|error| EngineError::Answer { operation: operation.to_owned(), reason: error.to_string() })
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
