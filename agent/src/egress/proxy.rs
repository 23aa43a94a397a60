//! One client connection: read a request, decide, connect, and carry bytes both ways.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dial::{Outer, Policy, Refusal};
use super::host::HostPort;
use super::log::{Asked, DecisionLog, Opened};

/// Reason in the closing line of a connection that could not be made.
pub(super) const CONNECT_FAILED: &str = "connect-failed";

/// Headers that concern one hop only, beside those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    http::header::CONNECTION,
    http::header::PROXY_AUTHENTICATE,
    http::header::PROXY_AUTHORIZATION,
    http::header::TE,
    http::header::TRAILER,
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
    http::header::EXPECT, // this hop has answered it already
    HeaderName::from_static("keep-alive"),
];

/// What all connections share.
pub(super) struct Shared {
    pub(super) policy: Policy,
    pub(super) log: Arc<DecisionLog>,
    pub(super) ending: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// Held as long as the client's connection counts as open.
pub(super) type Slot = Arc<tokio::sync::OwnedSemaphorePermit>;

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

/// A request that gets no connection.
struct Denied {
    status: StatusCode,
    text: String,
}

/// Answers one request of a client.
pub(super) async fn answer(shared: Arc<Shared>, slot: Slot, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let is_connect = request.method() == Method::CONNECT;
    let answer = if is_connect { tunnel(&shared, slot, request).await } else { forward(&shared, slot, request).await };
    let mut answer = answer.unwrap_or_else(|denied| plain(denied.status, &denied.text));
    let upgraded = is_connect && answer.status().is_success() || answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if !upgraded {
        // One request a connection: what a client may ask next on it is never ambiguous.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}

async fn tunnel(shared: &Arc<Shared>, slot: Slot, request: Request<Incoming>) -> Result<Answer, Denied> {
    let target = target_of(request.uri(), None).map_err(|text| malformed(shared, &request, text))?;
    let (outer, opened) = open(shared, &request, target).await?;
    join(shared, slot, opened, hyper::upgrade::on(request), async move { Ok(outer) });
    Ok(Response::new(Full::default().map_err(|never: Infallible| match never {}).boxed()))
}

async fn forward(shared: &Arc<Shared>, slot: Slot, mut request: Request<Incoming>) -> Result<Answer, Denied> {
    let target = match request.uri().scheme_str() {
        Some("http") => target_of(request.uri(), Some(80)),
        Some(_) => Err("this proxy takes CONNECT for anything but http"),
        None => Err("this is a proxy: ask with CONNECT or an absolute http address"),
    };
    let target = target.map_err(|text| malformed(shared, &request, text))?;
    let (outer, mut opened) = open(shared, &request, target.clone()).await?;

    let inner = hyper::upgrade::on(&mut request);
    to_origin_form(&mut request, &target);
    let failed = |opened: &mut Opened| {
        opened.because("request-failed");
        Denied { status: StatusCode::BAD_GATEWAY, text: format!("{target} did not answer the request") }
    };
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(outer)).await;
    let (mut sender, connection) = handshake.map_err(|_| failed(&mut opened))?;
    let ending = shared.ending.clone();
    shared.tasks.spawn(async move {
        tokio::select! { _ = connection.with_upgrades() => {}, () = ending.cancelled() => {} }
    });
    let sent = sender.send_request(request).await;
    let mut response = sent.map_err(|_| failed(&mut opened))?;
    *response.version_mut() = Version::HTTP_11;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let outer = hyper::upgrade::on(&mut response);
        join(shared, slot, opened, inner, async move { outer.await.map(TokioIo::new).map_err(io::Error::other) });
        return Ok(response.map(BodyExt::boxed));
    }
    strip(response.headers_mut(), false);
    Ok(response.map(|body| Logged { body, _opened: opened, _sender: sender }.boxed()))
}

/// Decides, logs and connects, in this order.
async fn open(shared: &Arc<Shared>, request: &Request<Incoming>, target: HostPort) -> Result<(Outer, Opened), Denied> {
    let asked = Asked {
        method: Some(method_name(request.method())),
        host: Some(target.host().to_owned()),
        port: Some(target.port()),
    };
    let plan = match shared.policy.decide(&target).await {
        Ok(plan) => plan,
        Err(Refusal { reason, address }) => {
            shared.log.refused(&asked, reason, address);
            let hint = if reason == "host-not-allowed" { "; it is not on this attempt's list of hosts" } else { "" };
            return Err(Denied { status: StatusCode::FORBIDDEN, text: format!("{reason}: {target}{hint}") });
        }
    };
    let mut opened = shared.log.opened(&asked, plan.describe()).map_err(|_| Denied {
        status: StatusCode::SERVICE_UNAVAILABLE,
        text: format!("{target} is refused: the decision could not be logged"),
    })?;
    match plan.connect(Arc::clone(&opened.counters)).await {
        Ok((outer, address)) => {
            opened.connected(address);
            Ok((outer, opened))
        }
        Err(error) => {
            opened.because(CONNECT_FAILED);
            let status = match error.kind() {
                io::ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            };
            Err(Denied { status, text: format!("{CONNECT_FAILED}: {target}: {error}") })
        }
    }
}

/// Carries bytes between two upgraded connections until both directions have ended.
fn join<S>(
    shared: &Arc<Shared>,
    slot: Slot,
    mut opened: Opened,
    inner: OnUpgrade,
    outer: impl Future<Output = io::Result<S>> + Send + 'static,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let ending = shared.ending.clone();
    shared.tasks.spawn(async move {
        let _slot = slot;
        let work = async {
            let mut inner = TokioIo::new(inner.await.map_err(io::Error::other)?);
            copy_bidirectional(&mut inner, &mut outer.await?).await
        };
        tokio::select! {
            done = work => if done.is_err() { opened.because("connection-lost"); },
            () = ending.cancelled() => opened.because("proxy-ended"),
        }
    });
}

fn target_of(uri: &Uri, default_port: Option<u16>) -> Result<HostPort, &'static str> {
    let authority = uri.authority().ok_or("the request names no host")?;
    if authority.as_str().contains('@') {
        return Err("a user name before the host is not accepted");
    }
    let port = match (authority.port(), default_port) {
        (Some(_), _) => authority.port_u16().ok_or("the port is not 1 to 65535")?,
        (None, Some(port)) if !authority.as_str().ends_with(':') => port,
        _ => return Err("the request names no port"),
    };
    HostPort::new(authority.host(), port).map_err(|_| "the request names no valid host")
}

/// The request as the server wants it: path only, `Host` from the address, one request a connection.
fn to_origin_form(request: &mut Request<Incoming>, target: &HostPort) {
    let path = request.uri().path_and_query().cloned();
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path.unwrap_or_else(|| http::uri::PathAndQuery::from_static("/")));
    let host =
        if target.port() == 80 { target.to_string().trim_end_matches(":80").to_owned() } else { target.to_string() };
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
    let upgrade = request.headers().get(UPGRADE).cloned();
    strip(request.headers_mut(), true);
    if let Ok(host) = HeaderValue::from_str(&host) {
        request.headers_mut().insert(HOST, host);
    }
    let connection = if let Some(upgrade) = upgrade {
        request.headers_mut().insert(UPGRADE, upgrade);
        "upgrade"
    } else {
        "close"
    };
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static(connection));
}

fn strip(headers: &mut HeaderMap, request: bool) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        // The framing of a body is not a matter of opinion: hyper has read it and writes it anew.
        if *name != http::header::CONTENT_LENGTH && *name != HOST {
            headers.remove(name);
        }
    }
    if request {
        headers.remove("proxy-connection");
    }
}

fn malformed(shared: &Shared, request: &Request<Incoming>, text: &str) -> Denied {
    let asked = Asked { method: Some(method_name(request.method())), ..Asked::default() };
    shared.log.refused(&asked, "malformed-request", None);
    Denied { status: StatusCode::BAD_REQUEST, text: format!("malformed-request: {text}") }
}

/// Extension methods are free text: only their start is logged.
fn method_name(method: &Method) -> String {
    method.as_str().chars().take(20).collect()
}

/// A short answer of the proxy itself.
fn plain(status: StatusCode, text: &str) -> Answer {
    let body = Full::new(Bytes::from(format!("laneyard egress proxy: {text}\n")));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// A response's body whose end is the end of the connection.
struct Logged {
    body: Incoming,
    _opened: Opened,
    _sender: hyper::client::conn::http1::SendRequest<Incoming>,
}

impl Body for Logged {
    type Data = Bytes;
    type Error = hyper::Error;
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
