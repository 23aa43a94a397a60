//! What `run` needs of a controller: one way to it for lanes, and a double for tests.

use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::transport::CallError;
use agent::wire::attempt::{AttemptState, CancelSignal, Submit};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt as _};
use http_body_util::BodyExt as _;

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
