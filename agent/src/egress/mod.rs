//! The only way out of an attempt's container: a proxy process of its own behind one unix socket (design section 6).
//!
//! The agent starts it with [`ensure`], before the container. It is a separate process in its own session, so that the
//! death of the agent, or of `laneyard run`, cuts no connection; whoever continues the attempt finds it with [`find`].
//! It speaks HTTP/1.1: `CONNECT host:port`, and absolute-form `http://` requests. Exact hosts only; it resolves the names
//! itself, refuses addresses inside the host's networks, connects to the address that it checked, and writes
//! every decision to the attempt's log before it acts on it. No path, query, header or body is ever logged.
//!
//! It ends when it is told to ([`EgressHandle::stop`]), and by itself when its socket is gone or replaced, when the
//! file [`EgressSpec::over_when`] has content, or after [`EgressSpec::idle_limit`] without any open connection.

mod address;
mod dial;
mod host;
mod identity;
mod log;
mod process;
mod proxy;
mod serve;
mod spec;
mod summary;

pub use address::refusal as address_refusal;
pub use host::{HostError, HostPort};
pub use process::{EgressError, EgressHandle, Stopped, ensure, find, spawn};
pub use serve::main;
pub use spec::{Allow, EgressSpec, Route, RouteTarget, Upstream};
pub use summary::{AllowedHost, EgressSummary, RefusedHost, summary};

/// First argument that makes `laneyard` and `laneyard-agent` run [`main`] and nothing else.
pub const ENTRY: &str = "__egress";
