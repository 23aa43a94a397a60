//! What `run` needs of a controller: one way to it for lanes, and a double for tests.

use std::time::Duration;

use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::transport::CallError;
use agent::wire::attempt::{AttemptState, CancelSignal, Submit};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt as _};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::client::{Client, Told};

/// News of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A kept event, once and in order.
    Event(Event),
    /// A live event; some are missed.
    Live(EventBody),
    /// The controller's idea of the attempt changed.
    State(AttemptState),
    /// Something for people: reconnecting.
    Word(String),
}

/// A controller as a lane sees it.
pub trait Lane: Send + Sync {
    /// Submits an attempt; safe to repeat.
    fn submit<'a>(&'a self, submit: &'a Submit) -> BoxFuture<'a, Result<(), CallError>>;
    /// Follows an attempt until its terminal event.
    fn follow(&self, attempt: AttemptId, after: u64) -> BoxStream<'static, Result<News, CallError>>;
    /// Asks for a cancel as if the caller had received `signal`.
    fn cancel(&self, attempt: AttemptId, signal: CancelSignal) -> BoxFuture<'_, Result<(), CallError>>;
    /// The final answer, in pieces.
    fn answer(
        &self,
        attempt: AttemptId,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Bytes, CallError>>, CallError>>;
}

/// A controller that is not waited for without end.
pub struct Patient<'a> {
    lane: &'a dyn Lane,
    /// It may be away for so long.
    patience: Duration,
}

impl<'a> Patient<'a> {
    /// See the type.
    #[must_use]
    pub fn new(lane: &'a dyn Lane, patience: Duration) -> Self {
        Self { lane, patience }
    }
}

impl Lane for Patient<'_> {
    fn submit<'a>(&'a self, submit: &'a Submit) -> BoxFuture<'a, Result<(), CallError>> {
        self.lane.submit(submit)
    }

    fn follow(&self, attempt: AttemptId, after: u64) -> BoxStream<'static, Result<News, CallError>> {
        let patience = self.patience;
        let news = self.lane.follow(attempt, after);
        let watched = futures_util::stream::unfold((news, None), move |(mut news, away)| async move {
            Some(match news.next().await? {
                // Only a connection that is lost or was not to be had says so.
                Ok(News::Word(word)) => {
                    let since = away.unwrap_or_else(Instant::now);
                    let over = since.elapsed() >= patience;
                    let told = if over { Err(CallError::Lost { source: word.into() }) } else { Ok(News::Word(word)) };
                    (told, (news, Some(since)))
                }
                told => (told, (news, None)),
            })
        });
        watched.boxed()
    }

    fn cancel(&self, attempt: AttemptId, signal: CancelSignal) -> BoxFuture<'_, Result<(), CallError>> {
        self.lane.cancel(attempt, signal)
    }

    fn answer(
        &self,
        attempt: AttemptId,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Bytes, CallError>>, CallError>> {
        self.lane.answer(attempt)
    }
}

impl Lane for Client {
    fn submit<'a>(&'a self, submit: &'a Submit) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move { Self::submit(self, submit).await.map(|_| ()) })
    }

    fn follow(&self, attempt: AttemptId, after: u64) -> BoxStream<'static, Result<News, CallError>> {
        let news = Self::follow(self, attempt, after);
        news.map(|told| {
            told.map(|told| match told {
                Told::Event(event) => News::Event(event),
                Told::Live(body) => News::Live(body),
                Told::State(view) => News::State(view.state),
                Told::Lost { reason, retry_in } => {
                    News::Word(format!("{reason}; trying again in {} ms", retry_in.as_millis()))
                }
            })
        })
        .boxed()
    }

    fn cancel(&self, attempt: AttemptId, signal: CancelSignal) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(async move { Self::cancel(self, attempt, signal).await.map(|_| ()) })
    }

    fn answer(
        &self,
        attempt: AttemptId,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Bytes, CallError>>, CallError>> {
        Box::pin(async move {
            let body = Self::answer(self, attempt).await?;
            let pieces = body.into_data_stream();
            Ok(pieces.map(|piece| piece.map_err(|source| CallError::Lost { source })).boxed())
        })
    }
}
