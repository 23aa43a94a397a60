//! An attempt's events as a stream: kept ones from the store at the reader's pace, live ones as they pass.
//!
//! A reader holds at most one stretch of events in memory. Nobody waits for it: what it does not read stays in the
//! store, and live events that it is too slow for are lost to it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::transport::events::KEEP_ALIVE;
use agent::wire::attempt::{AttemptState, AttemptView, stream};
use axum::Extension;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event as Record, KeepAlive};
use futures_util::stream::Stream;
use http::HeaderMap;
use serde::Serialize;
use tracing::warn;

use super::App;
use super::auth::Principal;
use super::error::ApiError;
use super::own::own;
use super::request::{Id, last_event_id};
use crate::hub::{Notice, Watch};
use crate::reactor::Refused;

/// Events read from the store at a time.
const STRETCH: usize = 256;
/// A waiting attempt's place and reason are shown again this often, if they changed.
const REFRESH: Duration = Duration::from_secs(2);

pub(super) async fn events(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    Id(id): Id<AttemptId>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Record, Infallible>>>, ApiError> {
    let after = last_event_id(&headers)?;
    own(&app, &principal, id).await?;
    // First watch, then look: nothing falls between.
    let watch = app.hub.watch(id);
    let view = app.supervisor.ask(move |world, _, _| world.core.view(id)).await?;
    let view = view.ok_or(Refused::NoSuchAttempt(id))?;
    let mut reader = Reader {
        app,
        id,
        watch,
        after,
        last: 0,
        shown: None,
        tail: Arc::default(),
        pending: VecDeque::new(),
        done: false,
    };
    reader.see(view);
    let records = futures_util::stream::unfold(reader, |mut reader| async move {
        let record = reader.next().await?;
        Some((Ok(record), reader))
    });
    Ok(Sse::new(records).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

struct Reader {
    app: App,
    id: AttemptId,
    watch: Watch,
    /// The last event given to the reader.
    after: u64,
    /// The newest event that is durable.
    last: u64,
    shown: Option<AttemptView>,
    tail: Arc<Vec<Event>>,
    pending: VecDeque<Record>,
    done: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.pending.pop_front() {
                return Some(record);
            }
            if self.done {
                return None;
            }
            if self.after < self.last {
                self.fill().await?;
            } else if self.shown.as_ref().is_some_and(|view| view.state.is_ended()) {
                self.done = true;
                self.pending.push_back(Record::default().event(stream::END).data("{}"));
            } else {
                self.wait().await?;
            }
        }
    }

    /// Takes the next stretch of kept events. `None` ends the stream; the reader comes back.
    async fn fill(&mut self) -> Option<()> {
        let next = self.after + 1;
        let from_tail = self.tail.first().is_some_and(|first| first.seq <= next)
            && self.tail.last().is_some_and(|last| last.seq >= next);
        let events = if from_tail {
            self.tail.iter().filter(|event| event.seq >= next).cloned().collect()
        } else {
            match self.app.store.events(self.id, self.after, STRETCH).await {
                Ok(events) => events,
                Err(failure) => {
                    warn!(%failure, attempt = %self.id, "cannot read events");
                    return None;
                }
            }
        };
        let first = events.first().map_or(self.last + 1, |event| event.seq);
        if first > next {
            let to = first - 1;
            let body = EventBody::Gap { from: next, to };
            self.push_event(&Event { seq: to, at: time::OffsetDateTime::now_utc(), body });
        }
        for event in &events {
            self.push_event(event);
        }
        Some(())
    }

    fn push_event(&mut self, event: &Event) {
        self.after = event.seq;
        self.push(Record::default().id(event.seq.to_string()).event(stream::EVENT), event);
    }

    fn push(&mut self, record: Record, value: &impl Serialize) {
        match record.json_data(value) {
            Ok(record) => self.pending.push_back(record),
            Err(error) => warn!(%error, attempt = %self.id, "a record has no JSON form"),
        }
    }

    /// Waits until something is new. `None` ends the stream.
    async fn wait(&mut self) -> Option<()> {
        let queued = self.shown.as_ref().is_some_and(|view| matches!(view.state, AttemptState::Queued { .. }));
        tokio::select! {
            biased;
            () = self.app.shutdown.cancelled() => None,
            changed = self.watch.notices.changed() => {
                changed.ok()?;
                let Notice { view, tail } = self.watch.notices.borrow_and_update().clone();
                self.tail = tail;
                if let Some(view) = view {
                    self.see((*view).clone());
                }
                Some(())
            }
            live = self.watch.live.recv() => {
                if let Ok(body) = live {
                    self.push(Record::default().event(stream::LIVE), &*body);
                }
                Some(())
            }
            () = tokio::time::sleep(REFRESH), if queued => {
                let id = self.id;
                let view = self.app.supervisor.ask(move |world, _, _| world.core.view(id)).await.ok()??;
                self.see(view);
                Some(())
            }
        }
    }

    /// Shows a changed view. Its event counter alone is no news: the events themselves are.
    fn see(&mut self, view: AttemptView) {
        self.last = self.last.max(view.last_seq);
        let news = self.shown.as_ref().is_none_or(|shown| shown.state != view.state || shown.cancel != view.cancel);
        if news {
            self.push(Record::default().event(stream::STATE), &view);
        }
        self.shown = Some(view);
    }
}
