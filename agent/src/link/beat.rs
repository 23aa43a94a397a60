//! Heartbeats, on a thread, a runtime and a connection of their own: whatever the worker is busy with, it stays alive
//! in the controller's eyes as long as this process gets any time at all.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tracing::debug;

use super::session::Session;
use crate::transport::{Call, EndpointError, Transport};
use crate::wire::paths;
use crate::wire::worker::Heartbeat;

/// Starts beating until the session is over.
pub(super) fn start(session: &Arc<Session>) -> Result<JoinHandle<()>, EndpointError> {
    let failed = |error: io::Error| EndpointError::Client(error.into());
    let transport = session.transport.separate()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let session = Arc::clone(session);
    std::thread::Builder::new()
        .name("heartbeat".to_owned())
        .spawn(move || runtime.block_on(beat(&session, &transport)))
        .map_err(failed)
}

async fn beat(session: &Session, transport: &Transport) {
    let mut ticks = tokio::time::interval(session.heartbeat);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = session.over.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let body = Heartbeat { session: session.id, held: session.runner.attempts() };
        let Ok(call) = Call::post(&paths::worker_part(&session.worker, "heartbeat"), &body) else { continue };
        // A lost beat is not repeated: the next one says the same.
        let answer = tokio::select! {
            () = session.over.cancelled() => return,
            answer = transport.open(call.within(session.heartbeat.max(std::time::Duration::from_secs(2)))) => answer,
        };
        if let Err(error) = answer {
            debug!(%error, "heartbeat failed");
            if session.judge(&error) {
                return;
            }
        }
    }
}
