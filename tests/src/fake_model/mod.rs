//! A deterministic model API for driving real provider CLIs offline. One server speaks, on one TCP port and optionally a
//! unix socket: Anthropic Messages (`/v1/messages`, `/v1/messages/count_tokens`), OpenAI Responses (`/v1/responses`), Chat
//! completions (`/v1/chat/completions`), `/v1/models`; streamed or plain. `CONNECT` and absolute-form requests are recorded
//! and refused, a WebSocket upgrade gets 426.
//!
//! The conversation carries its own script, so there is no session state and a resumed session works after a restart.
//! Anywhere in a user message: `FAKE:{"id":"a1","steps":[STEP, …]}`. Step n is served for the n-th model turn after the last
//! message with a script; past the end the last step's text (or `ok`). A request without tools is an auxiliary one (title,
//! summary) and gets the text `aux`, unless the script says `"notools":true`; so is one that offers a single tool which the
//! script never calls. A step is an object; every key is optional:
//!
//! - `"text"`: assistant text. `{{last_user}}`, `{{last_result}}`, `{{match:REGEX}}` (first match in the request outside of
//!   scripts) are filled in, also in strings of `input`
//! - `"tool"`, `"input"`: one tool call (a string input is a custom tool call of Responses); `"tools": [{tool, input}, …]`
//! - `"thinking"`: a thinking block (Messages only)
//! - `"status"`, `"body"`, `"headers"`: an HTTP error instead; with `"times": N` only for the first N tries of this step
//! - `"headers"`: further headers of a success, such as rate limits
//! - `"sleep"`: seconds before the answer; `"stall"`: seconds between the stream's first event and the rest (at most 120)
//! - `"hold"`: a name; the rest of the answer waits until it is released (`POST /__laneyard/release/NAME`), at most 120 s
//! - `"drop": true`: the stream's first event, then the connection is closed (nothing at all if not streamed)
//! - `"model"`: the model that the answer names, in place of the requested one
//! - `"usage": [IN, OUT]`: token counts, by default `[11, 7]`
//!
//! Requests are counted by the script's `id` (without one: by a hash of the first user message): `GET /__laneyard/counts`.

mod chat;
mod http;
mod messages;
mod record;
mod responses;
mod script;
mod serve;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub use record::{Count, Record};
use serve::Server;

/// Settings of a [`FakeModel`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Address to listen on; by default `127.0.0.1`.
    pub host: Option<String>,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// Also listen on this unix socket (mode 0666).
    pub unix: Option<PathBuf>,
    /// JSON lines, one for each request. Values of credentials are never written.
    pub log: Option<PathBuf>,
    /// Keep each request's body in this directory.
    pub bodies: Option<PathBuf>,
    /// Answer 401 to API calls that do not carry this key.
    pub require_key: Option<String>,
}

/// A running server on threads of its own; dropping it stops listening.
pub struct FakeModel {
    server: Arc<Server>,
    port: u16,
    socket: Option<PathBuf>,
}

impl FakeModel {
    /// Starts on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port could be had.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Options::default())
    }

    /// Starts with settings.
    ///
    /// # Errors
    /// The address, the socket, the log or the directory for bodies cannot be used.
    pub fn start_with(options: Options) -> io::Result<Self> {
        let socket = options.unix.clone();
        let (server, port) = Server::start(options)?;
        Ok(Self { server, port, socket })
    }

    /// The TCP port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The base URL, as `ANTHROPIC_BASE_URL` wants it; Codex wants `/v1` after it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The unix socket, if there is one.
    #[must_use]
    pub fn socket(&self) -> Option<&std::path::Path> {
        self.socket.as_deref()
    }

    /// Counts by script id.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, Count> {
        self.server.records.counts()
    }

    /// Counts of one script id.
    #[must_use]
    pub fn count(&self, id: &str) -> Count {
        self.counts().remove(id).unwrap_or_default()
    }

    /// All requests so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Record> {
        self.server.records.all()
    }

    /// Lets the steps that hold this name go on, now and later.
    pub fn release(&self, name: &str) {
        self.server.release(name);
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.server.stop();
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}
