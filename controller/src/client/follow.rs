//! Following an attempt through lost connections.

use std::time::Duration;

use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::transport::events::Record;
use agent::transport::{CallError, Transport};
use agent::wire::attempt::{AttemptView, stream};
use agent::wire::paths;
use futures_util::stream::{BoxStream, StreamExt as _};
use serde::de::DeserializeOwned;

use super::BACKOFF;

/// What a follower is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// A kept event, exactly once and in order. An [`EventBody::Gap`] stands for those that are no longer kept.
    Event(Event),
    /// A live event; some are missed.
    Live(EventBody),
    /// The attempt as the controller sees it now. Comes first after each connection, and whenever something changes.
    State(Box<AttemptView>),
    /// The connection was lost; the next try follows after `retry_in`.
    Lost { reason: String, retry_in: Duration },
}

struct Follower {
    transport: Transport,
    path: String,
    after: u64,
    records: Option<BoxStream<'static, Result<Record, CallError>>>,
    pause: Duration,
    /// The controller has answered before: a certificate that is wrong now may be of some gateway on the way.
    known: bool,
    ended: bool,
}

/// See [`super::Client::follow`].
pub fn follow(transport: Transport, id: AttemptId, after: u64) -> BoxStream<'static, Result<Told, CallError>> {
    let follower = Follower {
        transport,
        path: paths::attempt_part(id, "events"),
        after,
        records: None,
        pause: Duration::ZERO,
        known: false,
        ended: false,
    };
    futures_util::stream::unfold(follower, |mut follower| async move {
        let told = follower.next().await?;
        Some((told, follower))
    })
    .boxed()
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Told, CallError>> {
        loop {
            if self.ended {
                return None;
            }
            let Some(records) = &mut self.records else {
                tokio::time::sleep(self.pause).await;
                match self.transport.records(&self.path, self.after).await {
                    Ok(records) => {
                        self.known = true;
                        self.records = Some(records);
                    }
                    Err(error) => return Some(self.lost(error)),
                }
                continue;
            };
            let told = match records.next().await {
                Some(Ok(record)) => self.read(record),
                Some(Err(error)) => Some(self.lost(error)),
                None => Some(self.lost(CallError::Lost { source: "the controller closed the stream".into() })),
            };
            if told.is_some() {
                return told;
            }
        }
    }

    fn read(&mut self, record: Record) -> Option<Result<Told, CallError>> {
        self.pause = Duration::ZERO;
        let told = match record.name.as_str() {
            stream::EVENT => match parse::<Event>(&record) {
                // A repeated record is the answer to a repeated request, nothing new.
                Ok(event) if event.seq <= self.after => return None,
                Ok(event) => {
                    self.after = match event.body {
                        EventBody::Gap { to, .. } => to,
                        _ => event.seq,
                    };
                    Ok(Told::Event(event))
                }
                Err(error) => Err(error),
            },
            stream::LIVE => parse(&record).map(Told::Live),
            stream::STATE => parse(&record).map(|view| Told::State(Box::new(view))),
            stream::END => {
                self.ended = true;
                return None;
            }
            // A newer controller may tell more.
            _ => return None,
        };
        self.ended |= told.is_err();
        Some(told)
    }

    fn lost(&mut self, error: CallError) -> Result<Told, CallError> {
        self.records = None;
        if !(error.is_passing() || self.known && matches!(error, CallError::Insecure { .. })) {
            self.ended = true;
            return Err(error);
        }
        self.pause = (self.pause * 2).clamp(BACKOFF.0, BACKOFF.1);
        Ok(Told::Lost { reason: error.to_string(), retry_in: self.pause })
    }
}

fn parse<T: DeserializeOwned>(record: &Record) -> Result<T, CallError> {
    serde_json::from_str(&record.data).map_err(|error| CallError::Garbled {
        status: http::StatusCode::OK,
        reason: format!("record `{}`: {error}", record.name),
    })
}
