//! How client and agent reach the controller: over HTTP, or in the same process through the very same handlers.
//! Requests, answers and streams look alike on both ways; nothing above this module can tell which one it uses.

pub mod call; // one request, one JSON answer
pub mod certificate; // certificates and keys as files
pub mod credentials; // what we show, whom we trust
pub mod endpoint; // where the controller is, and who we are
pub mod events; // server-sent events
mod http;
pub mod tls;

use std::sync::Arc;

use ::http::{Request, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt as _, Full};

pub use self::call::{Call, CallError};
pub use self::certificate::{ClientCertificate, Fingerprint};
pub use self::credentials::Credentials;
pub use self::endpoint::{Endpoint, EndpointError, Token};
pub use self::tls::Trust;

/// Cause of a failed transfer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Body of a request.
pub type RequestBody = BoxBody<Bytes, BoxError>;
/// Body of an answer; it may never end.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
/// The controller's handlers, called without a network.
pub type LocalService = Arc<dyn Fn(Request<RequestBody>) -> BoxFuture<'static, Response<ResponseBody>> + Send + Sync>;

/// A way to the controller. Clones share connections.
#[derive(Clone, Debug)]
pub struct Transport {
    way: Way,
}

#[derive(Clone)]
enum Way {
    Http(Arc<http::Http>),
    InProcess(LocalService),
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http(http) => http.fmt(f),
            Self::InProcess(_) => f.write_str("InProcess"),
        }
    }
}

impl Transport {
    /// Over HTTP to `endpoint`, with `token` in every request.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn http(endpoint: &Endpoint, token: Option<Token>) -> Result<Self, EndpointError> {
        Self::with(endpoint, Credentials::none().with_token(token))
    }

    /// Over HTTP to `endpoint`, with whatever the credentials say.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn with(endpoint: &Endpoint, credentials: Credentials) -> Result<Self, EndpointError> {
        Ok(Self { way: Way::Http(Arc::new(http::Http::new(endpoint, credentials)?)) })
    }

    /// To handlers of this process.
    #[must_use]
    pub const fn in_process(service: LocalService) -> Self {
        Self { way: Way::InProcess(service) }
    }

    /// Sends one request and returns when the answer's head is here. Its path is relative to the controller.
    ///
    /// # Errors
    /// No answer came.
    pub fn send(&self, request: Request<RequestBody>) -> BoxFuture<'static, Result<Response<ResponseBody>, BoxError>> {
        match self.way.clone() {
            Way::Http(http) => Box::pin(async move { http.send(request).await }),
            Way::InProcess(service) => Box::pin(async move { Ok(service(request).await) }),
        }
    }

    /// The same way over connections of its own.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn separate(&self) -> Result<Self, EndpointError> {
        Ok(match &self.way {
            Way::Http(http) => Self { way: Way::Http(Arc::new(http.separate()?)) },
            Way::InProcess(_) => self.clone(),
        })
    }

    /// True when requests need a network, so that losing it is normal.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self.way, Way::Http(_))
    }
}

/// A body that is already here.
#[must_use]
pub fn whole(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}
