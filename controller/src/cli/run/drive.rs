//! Follows an attempt to its end: events become progress and talk, the first signal becomes a cancel.

use agent::event::EventBody;
use agent::ids::{AttemptId, WorkerId};
use agent::progress::{Change, Reporter};
use agent::transport::CallError;
use agent::wire::attempt::AttemptState;
use futures_util::future::BoxFuture;
use futures_util::stream::StreamExt as _;
use serde_json::Value;

use super::feed::Feed;
use super::lane::{Lane, News};
use super::signals::{Latch, in_progress};
use super::waiting::Waiting;
use crate::cli::output::Talk;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The receipt, as the worker wrote it.
    pub receipt: Value,
    /// Bytes of the final answer, if one is delivered.
    pub answer_bytes: Option<u64>,
}

/// What a waiting client does when the controller has given up on the worker of a started attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnLost {
    /// Goes on waiting for the worker to come back.
    #[default]
    Wait,
    /// Ends with a receipt that claims no settled child.
    Fail,
}

/// The worker went away with the attempt, and nobody waits for it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub worker: WorkerId,
    /// Silent for so long that the controller calls the attempt interrupted.
    pub interrupted: bool,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.interrupted { "lost" } else { "unreachable" };
        write!(f, "worker {} is {state}; the attempt may still go on there, and its late receipt counts", self.worker)
    }
}

/// The end of an attempt was not seen.
#[derive(Debug, thiserror::Error)]
pub enum Unseen {
    /// What waiting does not cure: the controller does not know the attempt, refuses us, or never took a cancel.
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0}")]
    Lost(Lost),
}

/// The worker that holds the attempt and is silent.
#[must_use]
pub fn lost(state: &AttemptState) -> Option<Lost> {
    match state {
        AttemptState::Unreachable { worker, .. } => Some(Lost { worker: worker.clone(), interrupted: false }),
        AttemptState::Interrupted { worker, .. } => Some(Lost { worker: worker.clone(), interrupted: true }),
        _ => None,
    }
}

/// Waits for the terminal event. A signal is passed on once, and the wait goes on for the settled receipt, unless the
/// worker is away.
///
/// # Errors
/// See [`Unseen`].
pub async fn drive(
    lane: &dyn Lane,
    attempt: AttemptId,
    latch: &mut Latch,
    progress: &Reporter,
    (talk, on_lost): (Talk, OnLost),
) -> Result<Ended, Unseen> {
    let mut news = lane.follow(attempt, 0);
    let mut feed = Feed::default();
    let mut cancelling: Option<BoxFuture<'_, Result<(), CallError>>> = None;
    let mut asked = false;
    let mut away: Option<Lost> = None;
    let mut waiting = Waiting::new(attempt, talk);
    loop {
        let cancelled = asked && cancelling.is_none();
        let ends = |lost: &Lost| cancelled || (on_lost == OnLost::Fail && lost.interrupted);
        if let Some(lost) = away.as_ref().filter(|lost| ends(lost)) {
            return Err(Unseen::Lost(lost.clone()));
        }
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
                match answer {
                    Ok(()) => {}
                    // It was asked for some time already: nobody who cancels waits for ever.
                    Err(error) if error.is_passing() => return Err(error.into()),
                    Err(error) => talk.say(&format!("the cancel was not taken: {error}")),
                }
                continue;
            }
            told = news.next() => told,
            () = waiting.tell() => continue,
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
            Some(Ok(News::State(state))) => {
                away = lost(&state);
                waiting.on(&state, away.as_ref().is_some_and(ends));
            }
            Some(Ok(News::Word(word))) => talk.say(&word),
            Some(Err(error)) => return Err(error.into()),
            None => return Err(CallError::Lost { source: "the events ended without a receipt".into() }.into()),
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
