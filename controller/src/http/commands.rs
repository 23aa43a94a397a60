//! The stream of commands to one worker. Derived from the state each time, so nothing queues up for a slow link.

use std::collections::VecDeque;
use std::convert::Infallible;

use agent::ids::WorkerId;
use agent::transport::events::KEEP_ALIVE;
use agent::wire::worker::{Command, CommandBody};
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event as Record, KeepAlive};
use futures_util::stream::Stream;
use http::HeaderMap;
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::warn;
use uuid::Uuid;

use super::App;
use super::error::ApiError;
use super::request::{Id, Params, last_event_id};
use crate::core::worker::Order;
use crate::reactor::{Refused, worker};

/// Which registration listens.
#[derive(Debug, Deserialize)]
pub(super) struct Listener {
    session: Uuid,
}

pub(super) async fn commands(
    State(app): State<App>,
    Id(id): Id<WorkerId>,
    Params(Listener { session }): Params<Listener>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Record, Infallible>>>, ApiError> {
    let after = last_event_id(&headers)?;
    let wake = app.hub.watch_worker(&id);
    let mut teller = Teller { app, id, session, after, wake, pending: VecDeque::new() };
    teller.look().await??;
    let records = futures_util::stream::unfold(teller, |mut teller| async move {
        let record = teller.next().await?;
        Some((Ok(record), teller))
    });
    Ok(Sse::new(records).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

struct Teller {
    app: App,
    id: WorkerId,
    session: Uuid,
    after: u64,
    wake: watch::Receiver<()>,
    /// With the deadlines of offers.
    pending: VecDeque<(u64, Order, Option<OffsetDateTime>)>,
}

impl Teller {
    async fn next(&mut self) -> Option<Record> {
        loop {
            while let Some((seq, order, deadline)) = self.pending.pop_front() {
                self.after = self.after.max(seq);
                if let Some(body) = self.body(order, deadline).await? {
                    let command = Command { seq, body };
                    let record = Record::default().id(seq.to_string()).event("command").json_data(&command);
                    return record.inspect_err(|error| warn!(%error, "a command has no JSON form")).ok();
                }
            }
            tokio::select! {
                biased;
                () = self.app.shutdown.cancelled() => return None,
                woken = self.wake.changed() => woken.ok()?,
            }
            // A newer registration listens by itself.
            self.look().await.ok()?.ok()?;
        }
    }

    async fn look(&mut self) -> Result<Result<(), Refused>, crate::supervisor::AskError> {
        let (id, session, after) = (self.id.clone(), self.session, self.after);
        let orders = self.app.supervisor.ask(move |world, _, _| {
            worker::check_session(world, &id, session)?;
            let orders = world.core.orders_after(&id, after).into_iter().map(|(seq, order)| {
                let deadline = match order {
                    Order::Offer { attempt, .. } => {
                        world.core.attempt(attempt).and_then(|known| known.order.as_ref()?.deadline)
                    }
                    Order::Cancel { .. } | Order::Release { .. } => None,
                };
                (seq, order, deadline)
            });
            Ok(orders.collect::<Vec<_>>())
        });
        Ok(orders.await?.map(|orders| self.pending.extend(orders)))
    }

    /// `None` ends the stream, `Some(None)` skips an order that cannot be carried out.
    async fn body(&self, order: Order, deadline: Option<OffsetDateTime>) -> Option<Option<CommandBody>> {
        Some(Some(match order {
            Order::Cancel { attempt, generation, signal } => CommandBody::Cancel { attempt, generation, signal },
            Order::Release { attempt, generation } => CommandBody::Release { attempt, generation },
            Order::Offer { attempt, generation } => match self.app.store.assignment(attempt).await {
                Ok(Some(assignment)) => {
                    let left = deadline.map(|deadline| deadline - OffsetDateTime::now_utc());
                    let deadline_in_ms = left.map(|left| u64::try_from(left.whole_milliseconds()).unwrap_or(0));
                    CommandBody::Offer { assignment: Box::new(assignment), generation, deadline_in_ms }
                }
                Ok(None) => {
                    warn!(%attempt, "an offered attempt has no assignment");
                    return Some(None);
                }
                Err(failure) => {
                    warn!(%failure, %attempt, "cannot read an assignment");
                    return None;
                }
            },
        }))
    }
}
