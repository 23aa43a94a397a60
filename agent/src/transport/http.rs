//! The way over HTTP/1.1: a TCP or unix-socket connection pool with a bearer token.

use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt as _;

use super::endpoint::{Endpoint, EndpointError, Token};
use super::{BoxError, RequestBody, ResponseBody};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Http {
    client: reqwest::Client,
    endpoint: Endpoint,
    authorization: Option<HeaderValue>,
}

impl Http {
    pub(super) fn new(endpoint: &Endpoint, token: Option<Token>) -> Result<Self, EndpointError> {
        let authorization = match token {
            None => None,
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose()))
                    .map_err(|error| EndpointError::Client(error.into()))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { client: client(endpoint)?, endpoint: endpoint.clone(), authorization })
    }

    /// The same with a connection pool of its own, which another runtime may drive.
    pub(super) fn separate(&self) -> Result<Self, EndpointError> {
        Ok(Self { client: client(&self.endpoint)?, ..self.clone() })
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
        let response: Response<reqwest::Body> = self.client.execute(outgoing).await?.into();
        Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
    }
}

fn client(endpoint: &Endpoint) -> Result<reqwest::Client, EndpointError> {
    let failed = |error: BoxError| EndpointError::Client(error);
    // Trust is explicit: no certificate of the host's store speaks for a controller.
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.into()))?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .tcp_keepalive(Duration::from_secs(15));
    if let Some(path) = &endpoint.socket {
        builder = builder.unix_socket(path.as_path());
    }
    builder.build().map_err(|error| failed(error.into()))
}
