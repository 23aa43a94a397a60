//! Ships one attempt's log: read from disk at the link's own pace, sent again until it is acknowledged.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use http::Method;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use sha2::{Digest as _, Sha256};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::io::ReaderStream;
use tracing::{error, info, warn};

use super::session::{Backoff, Session};
use crate::event::{Event, EventBody};
use crate::eventlog::EventLog;
use crate::transport::{BoxError, Call, CallError};
use crate::wire::attempt::CancelSignal;
use crate::wire::error::code;
use crate::wire::paths;
use crate::wire::worker::{Acknowledged, LeaseRef, Live, Report};

/// Events of one report, at most.
const BATCH: usize = 256;
/// Size after which a report is cut, in bytes of JSON.
const BATCH_BYTES: usize = 512 << 10;
/// Live events wait so long for more of their kind.
const COALESCE: Duration = Duration::from_millis(150);
/// An answer up to this many bytes is read once; a longer one twice, first for its digest.
const ONE_READ: u64 = 256 << 10;
/// Bytes that are read of a longer one at a time.
const PIECE: usize = 64 << 10;
/// Time for an answer's upload.
const UPLOAD_LIMIT: Duration = Duration::from_secs(3600);

/// Ships kept events after number `acknowledged`, until the terminal one is acknowledged or the session is over.
pub(super) async fn kept(session: &Arc<Session>, lease: LeaseRef, log: EventLog, acknowledged: u64) {
    let mut acknowledged = acknowledged;
    let mut changed = log.subscribe();
    let mut answer_stored = false;
    let mut backoff = Backoff::new();
    loop {
        changed.mark_unchanged();
        let events = match read(&log, acknowledged).await {
            Ok(events) => events,
            Err(error) => {
                error!(attempt = %lease.attempt, %error, "the event log cannot be read");
                if !backoff.pause(&session.over).await {
                    return;
                }
                continue;
            }
        };
        let Some(newest) = events.last() else {
            tokio::select! {
                () = session.over.cancelled() => return,
                changed = changed.changed() => if changed.is_err() { return },
            }
            continue;
        };
        let (through, terminal) = (newest.seq, matches!(newest.body, EventBody::Terminal { .. }));
        let promised = matches!(newest.body, EventBody::Terminal { answer_bytes: Some(_), .. });
        let sent = async {
            if promised && !answer_stored {
                upload(session, &lease).await?;
                answer_stored = true;
            }
            send(session, &lease, events).await
        };
        let sent = tokio::select! {
            () = session.over.cancelled() => return,
            sent = sent => sent,
        };
        match sent {
            Ok(answer) => {
                acknowledged = answer.last_seq;
                if acknowledged >= through {
                    backoff.reset();
                    if terminal {
                        return;
                    }
                    continue;
                }
            }
            Err(error) if error.is(code::STALE_LEASE) => return fence(session, &lease, &log).await,
            Err(error) => {
                if session.judge(&error) {
                    return;
                }
                answer_stored &= !error.is(code::ANSWER_MISSING);
                warn!(attempt = %lease.attempt, %error, "events were not taken, sending again");
            }
        }
        if !backoff.pause(&session.over).await {
            return;
        }
    }
}

/// Reads a stretch of the log, off the runtime's threads. A terminal event travels with what precedes it.
async fn read(log: &EventLog, after: u64) -> io::Result<Vec<Event>> {
    let log = log.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut events = log.read_from(after, BATCH)?;
        let mut bytes = 0;
        let fits = events
            .iter()
            .take_while(|event| {
                let first = bytes == 0;
                bytes += serde_json::to_vec(event).map_or(0, |json| json.len());
                first || bytes <= BATCH_BYTES
            })
            .count();
        events.truncate(fits);
        Ok(events)
    });
    read.await.map_err(io::Error::other)?
}

async fn send(session: &Session, lease: &LeaseRef, events: Vec<Event>) -> Result<Acknowledged, CallError> {
    let Some(first) = events.first() else { return Ok(Acknowledged { attempt: lease.attempt, last_seq: 0 }) };
    let report = Report {
        session: lease.session,
        attempt: lease.attempt,
        generation: lease.generation,
        first_seq: first.seq,
        events,
    };
    session.transport.json(Call::post(&paths::worker_part(&session.worker, "events"), &report)?).await
}

/// The lease has moved on: nobody wants this attempt's result. It is cancelled, and forgotten when it has ended.
async fn fence(session: &Session, lease: &LeaseRef, log: &EventLog) {
    warn!(attempt = %lease.attempt, generation = lease.generation.0, "the lease has moved on, stopping the attempt");
    session.runner.cancel(lease.attempt, CancelSignal::Terminate);
    let mut changed = log.subscribe();
    loop {
        let last = log.last_seq();
        let newest = read(log, last.saturating_sub(1)).await.ok().and_then(|events| events.into_iter().last());
        if newest.is_some_and(|event| matches!(event.body, EventBody::Terminal { .. })) {
            break;
        }
        tokio::select! {
            () = session.over.cancelled() => return,
            changed = changed.changed() => if changed.is_err() { return },
        }
    }
    info!(attempt = %lease.attempt, "the attempt without a lease has ended");
    session.runner.release(lease.attempt);
}

/// Stores the answer at the controller. A long one is never held in memory.
async fn upload(session: &Session, lease: &LeaseRef) -> Result<(), CallError> {
    let lost = |source: io::Error| CallError::Lost { source: source.into() };
    let path = session.runner.answer(lease.attempt).ok_or_else(|| {
        lost(io::Error::new(io::ErrorKind::NotFound, "the worker has no answer although it promised one"))
    })?;
    let read = tokio::task::spawn_blocking(move || Answer::read(&path));
    let Answer { digest, content } = read.await.map_err(io::Error::other).and_then(|read| read).map_err(lost)?;
    let body = match content {
        Content::Whole(bytes) => Full::new(bytes.into()).map_err(|never| match never {}).boxed(),
        Content::Long(file) => {
            let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PIECE);
            StreamBody::new(pieces.map_ok(Frame::data).map_err(BoxError::from)).boxed()
        }
    };
    let part = format!("answer?session={}&attempt={}&generation={}", lease.session, lease.attempt, lease.generation.0);
    let call = Call::new(Method::PUT, &paths::worker_part(&session.worker, &part))
        .header(paths::DIGEST_HEADER, &digest)
        .body(body)
        .within(UPLOAD_LIMIT);
    session.transport.open(call).await.map(drop)
}

/// An answer on its way.
struct Answer {
    digest: String,
    content: Content,
}

enum Content {
    Whole(Vec<u8>),
    /// Stands at its beginning.
    Long(File),
}

impl Answer {
    fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        if file.metadata()?.len() <= ONE_READ {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            hash.update(&bytes);
            return Ok(Self { digest: hex(&hash.finalize()), content: Content::Whole(bytes) });
        }
        let mut buffer = vec![0; PIECE];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => hash.update(buffer.get(..read).unwrap_or_default()),
            }
        }
        file.rewind()?;
        Ok(Self { digest: hex(&hash.finalize()), content: Content::Long(file) })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Passes live events on, as far as the link keeps up. Lost ones are not sent again.
pub(super) async fn live(session: Arc<Session>, lease: LeaseRef, log: EventLog) {
    let mut live = log.subscribe_live();
    let mut changed = log.subscribe();
    // The log outlives its attempt while readers hold it: the terminal event is the sign to leave.
    drop(log);
    loop {
        let first = tokio::select! {
            () = session.over.cancelled() => return,
            first = live.recv() => first,
            gone = changed.changed() => if gone.is_err() { return } else { continue },
        };
        let mut events = match first {
            Ok(first) => vec![first],
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        tokio::select! {
            () = session.over.cancelled() => return,
            () = tokio::time::sleep(COALESCE) => {}
        }
        while let Ok(next) = live.try_recv() {
            merge(&mut events, next);
        }
        let body = Live { session: lease.session, attempt: lease.attempt, generation: lease.generation, events };
        let lost = session.post("live", &body);
        tokio::select! {
            () = session.over.cancelled() => return,
            // Best effort: the kept events tell the same, later.
            _ = lost => {}
        }
    }
}

fn merge(events: &mut Vec<EventBody>, next: EventBody) {
    match (events.last_mut(), next) {
        (Some(EventBody::Delta { text }), EventBody::Delta { text: more }) => text.push_str(&more),
        (Some(last @ EventBody::Activity { .. }), next @ EventBody::Activity { .. }) => *last = next,
        (_, next) => events.push(next),
    }
}
