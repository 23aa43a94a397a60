//! What a lane waits for, in words: every change of it where somebody reads along, else once what keeps it waiting.

use std::time::Duration;

use agent::ids::AttemptId;
use agent::wire::attempt::AttemptState;
use tokio::time::Instant;

use crate::cli::output::Talk;

/// A lane that waits no longer than this in the queue is not worth a line.
const SHORT: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Waiting {
    attempt: AttemptId,
    talk: Talk,
    /// What it waits for in the queue, and when that is told.
    queued: Option<(Instant, String)>,
    told: Told,
}

/// What was told where nobody reads along.
#[derive(Debug, Default)]
struct Told {
    queued: bool,
    unreachable: bool,
    interrupted: bool,
}

impl Waiting {
    /// Of an attempt that was just submitted, or is looked at from now on.
    #[must_use]
    pub fn new(attempt: AttemptId, talk: Talk) -> Self {
        Self { attempt, talk, queued: None, told: Told::default() }
    }

    /// Takes a new state. `ends`: nobody here waits for the worker any more.
    pub fn on(&mut self, state: &AttemptState, ends: bool) {
        if self.talk.is_on() {
            if let Some(word) = word(state, ends) {
                self.talk.say(&word);
            }
            return;
        }
        let due = self.queued.take().map(|(due, _)| due);
        let first = match state {
            AttemptState::Queued { .. } if !self.told.queued => {
                let due = due.unwrap_or_else(|| Instant::now() + SHORT);
                self.queued = word(state, ends).map(|word| (due, word));
                false
            }
            AttemptState::Unreachable { .. } => !std::mem::replace(&mut self.told.unreachable, true),
            AttemptState::Interrupted { .. } => !std::mem::replace(&mut self.told.interrupted, true),
            _ => false,
        };
        if first && let Some(word) = word(state, ends) {
            self.insist(&word);
        }
    }

    /// Waits until it is time to tell what the queue waits for, and tells it; for ever if there is nothing to tell.
    pub async fn tell(&mut self) {
        let Some((due, _)) = &self.queued else { return std::future::pending().await };
        tokio::time::sleep_until(*due).await;
        if let Some((_, word)) = self.queued.take() {
            self.told.queued = true;
            self.insist(&word);
        }
    }

    fn insist(&self, word: &str) {
        self.talk.insist(&format!("attempt {} {word}", self.attempt));
    }
}

/// What a state means for somebody who waits; `None` where events tell more.
fn word(state: &AttemptState, ends: bool) -> Option<String> {
    let waiting = if ends { "" } else { ", waiting" };
    match state {
        AttemptState::Queued { position, reason } => Some(format!("queued at {position}: {reason}")),
        AttemptState::Offered { worker, .. } => Some(format!("offered to worker {worker}")),
        AttemptState::Unreachable { worker, .. } => {
            Some(format!("unreachable: worker {worker} is silent; the attempt may go on there{waiting}"))
        }
        AttemptState::Interrupted { worker, .. } => {
            Some(format!("interrupted: worker {worker} is lost; a late receipt still counts{waiting}"))
        }
        AttemptState::Running { .. } | AttemptState::Ended { .. } => None,
    }
}
