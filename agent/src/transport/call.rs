//! One request and one answer, with a deadline, and every way in which that can fail.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BoxError, RequestBody, ResponseBody, Transport, whole};
use crate::wire::error::ErrorBody;

/// Longest JSON answer that is read, in bytes.
const ANSWER_LIMIT: usize = 64 << 20;
/// A short request is answered within this time or counts as lost.
pub const CALL_LIMIT: Duration = Duration::from_secs(30);

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The controller answered with a refusal.
    #[error("{}{}", body.message, body.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Refused { status: StatusCode, body: ErrorBody },
    /// Nothing reached the controller, or nothing came back. The request may or may not have been carried out.
    #[error("no answer from the controller: {}", chain(source))]
    Lost { source: BoxError },
    /// There is no secure connection to the controller; `problem` says why, and what to do. Nothing was sent.
    #[error("no secure connection to the controller: {problem}")]
    Insecure { problem: String },
    /// The answer took too long. The request may or may not have been carried out.
    #[error("no answer from the controller within {} s", limit.as_secs())]
    Late { limit: Duration },
    /// The answer cannot be understood.
    #[error("the controller's answer cannot be understood ({status}): {reason}; are both of the same version?")]
    Garbled { status: StatusCode, reason: String },
}

impl CallError {
    /// True when the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::Late { .. } => true,
            Self::Insecure { .. } => false,
            Self::Refused { status, .. } | Self::Garbled { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
        }
    }

    /// True if another credential could do what this one could not.
    #[must_use]
    pub fn is_of_credential(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN),
            Self::Insecure { .. } => true,
            Self::Lost { .. } | Self::Late { .. } | Self::Garbled { .. } => false,
        }
    }

    /// True if the request certainly never left: there was no connection to send it over.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Insecure { .. } => true,
            Self::Lost { source } => source.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect),
            Self::Refused { .. } | Self::Late { .. } | Self::Garbled { .. } => false,
        }
    }

    /// True if what we show counts no more, or never did. Only another credential, or the right time, cures that.
    #[must_use]
    pub fn shuts_out(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED)
    }

    fn of_transfer(source: BoxError) -> Self {
        match super::tls::explain(&*source) {
            Some(problem) => Self::Insecure { problem },
            None => Self::Lost { source },
        }
    }

    /// The stable code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { body, .. } => Some(&body.code),
            Self::Lost { .. } | Self::Insecure { .. } | Self::Late { .. } | Self::Garbled { .. } => None,
        }
    }

    /// True for a refusal with this code.
    #[must_use]
    pub fn is(&self, code: &str) -> bool {
        self.code() == Some(code)
    }
}

/// An error with its causes; the outermost one alone ("error sending request") says nothing.
fn chain(error: &BoxError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    let mut garbled = false;
    while let Some(inner) = cause {
        garbled |= inner.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse);
        let mut more = inner.to_string();
        // The library's own words end with a link to its manual.
        if more.contains("close_notify") {
            more = "the connection was cut".to_owned();
        }
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    if garbled {
        text.push_str("; if that is a controller's TLS port, write https:// and name its authority with --ca");
    }
    text
}

/// A request being put together.
#[derive(Debug)]
pub struct Call {
    request: http::request::Builder,
    body: RequestBody,
    limit: Duration,
}

impl Call {
    /// A request without a body.
    #[must_use]
    pub fn new(method: Method, path: &str) -> Self {
        Self { request: Request::builder().method(method).uri(path), body: whole(Bytes::new()), limit: CALL_LIMIT }
    }

    /// `GET path`.
    #[must_use]
    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    /// `POST path` with a JSON body.
    ///
    /// # Errors
    /// The value has no JSON form.
    pub fn post(path: &str, value: &impl Serialize) -> Result<Self, CallError> {
        let bytes = serde_json::to_vec(value)
            .map_err(|error| CallError::Garbled { status: StatusCode::BAD_REQUEST, reason: error.to_string() })?;
        Ok(Self::new(Method::POST, path).header(CONTENT_TYPE.as_str(), "application/json").body(whole(bytes)))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: RequestBody) -> Self {
        self.body = body;
        self
    }

    /// Changes how long the answer's head (or, for JSON, the whole answer) may take.
    #[must_use]
    pub const fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl Transport {
    /// Sends a request and reads its JSON answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn json<T: DeserializeOwned + Send>(&self, call: Call) -> BoxFuture<'static, Result<T, CallError>> {
        let limit = call.limit;
        let opening = self.open(call);
        let answer = async move {
            let response = opening.await?;
            let status = response.status();
            let bytes = collect(response, ANSWER_LIMIT).await?;
            serde_json::from_slice(&bytes).map_err(|error| CallError::Garbled { status, reason: error.to_string() })
        };
        Box::pin(async move { tokio::time::timeout(limit, answer).await.unwrap_or(Err(CallError::Late { limit })) })
    }

    /// Sends a request and returns the successful answer with its body still to be read.
    ///
    /// # Errors
    /// See [`CallError`]; a refusal is read and returned as one.
    pub fn open(&self, call: Call) -> BoxFuture<'static, Result<Response<ResponseBody>, CallError>> {
        let Call { request, body, limit } = call;
        let transport = self.clone();
        let head = async move {
            let request = request
                .body(body)
                .map_err(|error| CallError::Garbled { status: StatusCode::BAD_REQUEST, reason: error.to_string() })?;
            let response = transport.send(request).await.map_err(CallError::of_transfer)?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let bytes = collect(response, 1 << 20).await?;
            match serde_json::from_slice(&bytes) {
                Ok(body) => Err(CallError::Refused { status, body }),
                Err(error) => Err(CallError::Garbled { status, reason: error.to_string() }),
            }
        };
        Box::pin(async move { tokio::time::timeout(limit, head).await.unwrap_or(Err(CallError::Late { limit })) })
    }
}

async fn collect(response: Response<ResponseBody>, limit: usize) -> Result<Vec<u8>, CallError> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|source| CallError::Lost { source })?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > limit {
            return Err(CallError::Lost { source: format!("an answer of more than {limit} bytes").into() });
        }
    }
    Ok(bytes)
}
