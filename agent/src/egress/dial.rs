//! From a requested host to an open connection: decide, then connect to exactly what was decided.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use super::address::refusal;
use super::host::HostPort;
use super::log::Counters;
use super::spec::{EgressSpec, RouteTarget, Upstream};

const RESOLVE_LIMIT: Duration = Duration::from_secs(15);
/// For one address; the next one is tried after it.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// At most so many addresses of a name are tried.
const ADDRESSES: usize = 8;
/// Time and bytes that the upstream proxy has for its answer to `CONNECT`.
const UPSTREAM_LIMIT: Duration = Duration::from_secs(60);
const UPSTREAM_HEAD: usize = 16 << 10;

/// The allowlist and everything else that decides.
pub(super) struct Policy {
    allow: HashMap<HostPort, bool>,
    routes: HashMap<HostPort, RouteTarget>,
    hosts: BTreeMap<String, Vec<IpAddr>>,
    upstream: Option<Upstream>,
}

/// Where an allowed connection goes.
pub(super) enum Plan {
    Route(RouteTarget),
    Addresses(Vec<SocketAddr>),
    Upstream(Upstream, HostPort),
}

/// Why a connection is not made, with what was found.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) address: Option<String>,
}

impl Refusal {
    const fn because(reason: &'static str) -> Self {
        Self { reason, address: None }
    }
}

impl Policy {
    pub(super) fn new(spec: &EgressSpec) -> Self {
        let mut allow = HashMap::new();
        for entry in &spec.allow {
            *allow.entry(entry.host.clone()).or_insert(false) |= entry.trusted;
        }
        Self {
            allow,
            routes: spec.routes.iter().map(|r| (r.host.clone(), r.to.clone())).collect(),
            hosts: spec.hosts.iter().map(|(name, ips)| (name.to_lowercase(), ips.clone())).collect(),
            upstream: spec.upstream.clone(),
        }
    }

    /// Decides about one host. Names are resolved here and never again.
    pub(super) async fn decide(&self, target: &HostPort) -> Result<Plan, Refusal> {
        let &trusted = self.allow.get(target).ok_or(Refusal::because("host-not-allowed"))?;
        if let Some(route) = self.routes.get(target) {
            return Ok(Plan::Route(route.clone()));
        }
        if let (Some(upstream), false, None) = (&self.upstream, trusted, target.literal()) {
            return Ok(Plan::Upstream(upstream.clone(), target.clone()));
        }
        let found = self.resolve(target).await?;
        let mut refused = None;
        let mut good = Vec::new();
        for address in found {
            match refusal(address.ip()).filter(|_| !trusted) {
                Some(reason) => refused = Some(Refusal { reason, address: Some(address.to_string()) }),
                None if good.len() < ADDRESSES && !good.contains(&address) => good.push(address),
                None => {}
            }
        }
        match (good.is_empty(), refused) {
            (false, _) => match (&self.upstream, trusted) {
                (Some(upstream), false) => Ok(Plan::Upstream(upstream.clone(), target.clone())),
                _ => Ok(Plan::Addresses(good)),
            },
            (true, Some(refusal)) => Err(refusal),
            (true, None) => Err(Refusal::because("name-not-found")),
        }
    }

    async fn resolve(&self, target: &HostPort) -> Result<Vec<SocketAddr>, Refusal> {
        if let Some(address) = target.literal() {
            return Ok(vec![SocketAddr::new(address, target.port())]);
        }
        if let Some(addresses) = self.hosts.get(target.host()) {
            return Ok(addresses.iter().map(|ip| SocketAddr::new(*ip, target.port())).collect());
        }
        match timeout(RESOLVE_LIMIT, lookup_host((target.host(), target.port()))).await {
            Ok(Ok(addresses)) => Ok(addresses.collect()),
            Ok(Err(_)) => Err(Refusal::because("name-not-found")),
            Err(_) => Err(Refusal::because("resolver-timed-out")),
        }
    }
}

impl Plan {
    /// For the log, before the connection is made.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Route(target) => target.to_string(),
            Self::Addresses(addresses) => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Self::Upstream(upstream, _) => format!("proxy:{}", upstream.address),
        }
    }

    /// Connects; gives the address that answered.
    pub(super) async fn connect(&self, counters: Arc<Counters>) -> io::Result<(Outer, String)> {
        let (stream, address): (Box<dyn Stream>, String) = match self {
            Self::Route(RouteTarget::Unix(path)) => {
                (Box::new(within(CONNECT_LIMIT, UnixStream::connect(path)).await?), self.describe())
            }
            Self::Route(RouteTarget::Tcp(address)) => first_of(&[*address]).await?,
            Self::Addresses(addresses) => first_of(addresses).await?,
            Self::Upstream(upstream, target) => {
                let host = &upstream.address;
                let found = within(RESOLVE_LIMIT, lookup_host((host.host(), host.port()))).await?;
                let (mut stream, _) = first_of(&found.take(ADDRESSES).collect::<Vec<_>>()).await?;
                within(UPSTREAM_LIMIT, ask_upstream(&mut stream, upstream, target)).await?;
                (stream, self.describe())
            }
        };
        Ok((Outer { stream, counters }, address))
    }
}

async fn first_of(addresses: &[SocketAddr]) -> io::Result<(Box<dyn Stream>, String)> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match within(CONNECT_LIMIT, TcpStream::connect(address)).await {
            Ok(stream) => {
                // Best effort: a dead peer of a tunnel without deadline is noticed by keep-alive probes.
                let _ = stream.set_nodelay(true);
                let _ = setsockopt(&stream, sockopt::KeepAlive, &true);
                return Ok((Box::new(stream), address.to_string()));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn ask_upstream(stream: &mut Box<dyn Stream>, upstream: &Upstream, target: &HostPort) -> io::Result<()> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(value) = &upstream.authorization {
        request.push_str(&format!("Proxy-Authorization: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= UPSTREAM_HEAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the upstream proxy's answer is too long"));
        }
        head.push(stream.read_u8().await?); // byte by byte: what follows the head belongs to the tunnel
    }
    if head.starts_with(b"HTTP/1.") && head.get(8..10) == Some(b" 2") {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the upstream proxy refused"))
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to the outside that counts its bytes.
pub(super) struct Outer {
    stream: Box<dyn Stream>,
    counters: Arc<Counters>,
}

fn count(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(bytes as u64, Ordering::Relaxed);
}

impl AsyncRead for Outer {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        count(&self.counters.down, buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Outer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        count(&self.counters.up, written);
        Poll::Ready(Ok(written))
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
