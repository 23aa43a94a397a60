//! The way over HTTP/1.1: a pool of TLS, loopback or unix-socket connections, with a bearer token, a client
//! certificate, or both.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt as _;

use super::credentials::Credentials;
use super::endpoint::{Endpoint, EndpointError};
use super::{BoxError, RequestBody, ResponseBody, tls};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Http {
    pool: Arc<Mutex<Pool>>,
    endpoint: Endpoint,
    credentials: Credentials,
    authorization: Option<HeaderValue>,
}

/// Connections that all show the same certificate.
#[derive(Debug)]
struct Pool {
    client: reqwest::Client,
    version: u64,
}

impl Http {
    pub(super) fn new(endpoint: &Endpoint, credentials: Credentials) -> Result<Self, EndpointError> {
        let authorization = match &credentials.token {
            None => None,
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose()))
                    .map_err(|error| EndpointError::Client(error.into()))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let pool = Arc::new(Mutex::new(pool(endpoint, &credentials)?));
        Ok(Self { pool, endpoint: endpoint.clone(), credentials, authorization })
    }

    /// The same with a connection pool of its own, which another runtime may drive.
    pub(super) fn separate(&self) -> Result<Self, EndpointError> {
        let pool = Arc::new(Mutex::new(pool(&self.endpoint, &self.credentials)?));
        Ok(Self { pool, ..self.clone() })
    }

    /// The pool of the present certificate. Requests of a former pool end on its connections.
    fn client(&self) -> Result<reqwest::Client, EndpointError> {
        let mut current = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if current.version != self.credentials.version() {
            *current = pool(&self.endpoint, &self.credentials)?;
        }
        Ok(current.client.clone())
    }

    pub(super) async fn send(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut outgoing = reqwest::Request::new(parts.method, self.endpoint.base.join(path)?);
        *outgoing.headers_mut() = parts.headers;
        if let Some(value) = &self.authorization {
            outgoing.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        *outgoing.body_mut() = Some(reqwest::Body::wrap(body));
        let response: Response<reqwest::Body> = self.client()?.execute(outgoing).await?.into();
        Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
    }
}

fn pool(endpoint: &Endpoint, credentials: &Credentials) -> Result<Pool, EndpointError> {
    let failed = |error: BoxError| EndpointError::Client(error);
    let shown = credentials.shown();
    let tls = tls::client(&credentials.trust, shown.certificate.as_deref()).map_err(|error| failed(error.into()))?;
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .tcp_keepalive(Duration::from_secs(15));
    if let Some(path) = &endpoint.socket {
        builder = builder.unix_socket(path.as_path());
    }
    let client = builder.build().map_err(|error| failed(error.into()))?;
    Ok(Pool { client, version: shown.version })
}
