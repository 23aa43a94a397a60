//! Follows an attempt to its end: events become progress and talk, the first signal becomes a cancel.

use agent::event::EventBody;
use agent::ids::AttemptId;
use agent::progress::{Change, Reporter};
use agent::transport::CallError;
use futures_util::future::BoxFuture;
use futures_util::stream::StreamExt as _;
use serde_json::Value;

use super::feed::Feed;
use super::lane::{Lane, News};
use super::signals::{Latch, in_progress};
use crate::cli::output::Talk;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The receipt, as the worker wrote it.
    pub receipt: Value,
    /// Bytes of the final answer, if one is delivered.
    pub answer_bytes: Option<u64>,
}

/// Waits for the terminal event. A signal is passed on once, and the wait goes on for the settled receipt.
///
/// # Errors
/// What waiting does not cure: the controller does not know the attempt, or refuses us.
pub async fn drive(
    lane: &dyn Lane,
    attempt: AttemptId,
    latch: &mut Latch,
    progress: &Reporter,
    talk: Talk,
) -> Result<Ended, CallError> {
    let mut news = lane.follow(attempt, 0);
    let mut feed = Feed::default();
    let mut cancelling: Option<BoxFuture<'_, Result<(), CallError>>> = None;
    let mut asked = false;
    loop {
        let told = tokio::select! {
            biased;
            signal = latch.first(), if !asked => {
                asked = true;
                progress.record(Change::CancelRequested(in_progress(signal)));
                talk.say(&format!("{}: cancelling, waiting for the receipt", signal.as_str()));
                cancelling = Some(lane.cancel(attempt, signal));
                continue;
            }
            answer = wait(&mut cancelling) => {
                cancelling = None;
                if let Err(error) = answer {
                    talk.say(&format!("the cancel was not taken: {error}"));
                }
                continue;
            }
            told = news.next() => told,
        };
        match told {
            Some(Ok(News::Event(event))) => {
                for change in feed.changes(&event.body) {
                    progress.record(change);
                }
                if let EventBody::Terminal { receipt, answer_bytes } = event.body {
                    return Ok(Ended { receipt, answer_bytes });
                }
                if let Some(text) = spoken(&event.body) {
                    talk.say(&text);
                }
            }
            Some(Ok(News::Live(body))) => {
                for change in feed.changes(&body) {
                    progress.record(change);
                }
            }
            Some(Ok(News::Word(word))) => talk.say(&word),
            Some(Err(error)) => return Err(error),
            None => return Err(CallError::Lost { source: "the events ended without a receipt".into() }),
        }
    }
}

/// The cancel in flight; for ever if there is none.
async fn wait(cancelling: &mut Option<BoxFuture<'_, Result<(), CallError>>>) -> Result<(), CallError> {
    match cancelling {
        Some(request) => request.await,
        None => std::future::pending().await,
    }
}

/// What a person at a terminal wants to know while it happens.
fn spoken(body: &EventBody) -> Option<String> {
    match body {
        EventBody::Status { note: Some(note), .. } => Some(note.clone()),
        EventBody::ToolCall { name, .. } => Some(format!("tool {name}")),
        EventBody::Error { message, .. } => Some(format!("provider: {message}")),
        _ => None,
    }
}
