//! What the process in the background tried in vain, and when another try is worth it: without that, every command would
//! start it anew for a lane that nobody can finish. A note beside the client's record keeps it, and people are told.

use std::time::Duration;

use agent::ids::AttemptId;
use agent::progress::FileRef;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::record::Records;

/// Pauses between tries: doubled from the first to the last.
const PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// Ending of the note's name.
pub(super) const NOTE: &str = "later";

/// Tries that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Later {
    pub tries: u32,
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
    /// Before this time no command tries it by itself.
    #[serde(with = "time::serde::rfc3339")]
    pub next: OffsetDateTime,
    /// Why the last one failed.
    pub reason: String,
}

impl Later {
    /// One more try has failed.
    #[must_use]
    pub fn after(former: Option<&Self>, reason: &str, now: OffsetDateTime) -> Self {
        let tries = former.map_or(0, |former| former.tries).saturating_add(1);
        let pause = PAUSE.0.saturating_mul(1 << (tries - 1).min(16)).min(PAUSE.1);
        Self { tries, last: now, next: now + pause, reason: reason.to_owned() }
    }

    /// True if it is time for another try. Of a clock that went back nothing is known: then it is.
    #[must_use]
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        now >= self.next || now < self.last
    }

    /// What is known of a record's tries.
    #[must_use]
    pub fn of(records: &Records, attempt: AttemptId) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(records.beside(attempt, NOTE)).ok()?).ok()
    }

    /// Remembers that a try of a record failed.
    pub fn put_off(records: &Records, attempt: AttemptId, reason: &str) {
        let later = Self::after(Self::of(records, attempt).as_ref(), reason, OffsetDateTime::now_utc());
        if let Err(error) = records.write_beside(attempt, NOTE, &later) {
            tracing::debug!(%attempt, %error, "that a try failed is not remembered");
        }
    }

    /// When, for people.
    fn when(&self, now: OffsetDateTime) -> String {
        let times = if self.tries == 1 { "once".to_owned() } else { format!("{} times", self.tries) };
        let rest = (self.next - now).whole_minutes() + 1;
        let next =
            if self.is_due(now) { "the next command tries again".to_owned() } else { format!("again in {rest} min") };
        format!("tried {times}, {next}")
    }
}

/// A lane that could not be finished for its killed client so far.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub attempt: AttemptId,
    /// Where it is; `None` on this machine, or where the record cannot be read.
    pub controller: Option<String>,
    receipt: Option<FileRef>,
    pub later: Later,
}

/// All of them, oldest first.
#[must_use]
pub fn waiting(records: &Records) -> Vec<Waiting> {
    let found = records.all().into_iter().filter_map(|attempt| {
        let later = Later::of(records, attempt)?;
        let record = records.look(attempt).ok();
        let receipt = record.as_ref().map(|record| record.receipt.identity);
        Some(Waiting { attempt, controller: record.and_then(|record| record.controller), receipt, later })
    });
    found.collect()
}

impl Waiting {
    /// True if this is the reserved file of its receipt.
    #[must_use]
    pub fn is_receipt(&self, path: &std::path::Path) -> bool {
        self.receipt.is_some() && FileRef::at(path) == self.receipt
    }

    /// Why it waits, for how long, and what to type.
    #[must_use]
    pub fn sentence(&self, now: OffsetDateTime) -> String {
        let Self { attempt, later, .. } = self;
        format!("{} ({}); not delivered yet: laneyard attach {attempt}", later.reason, later.when(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_an_hour_and_a_clock_that_went_back_ends_them() {
        let mut now = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let mut later = None;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let next = Later::after(later.as_ref(), "in vain", now);
            pauses.push((next.next - now).whole_minutes());
            assert!(!next.is_due(now) && !next.is_due(next.next - Duration::from_secs(1)) && next.is_due(next.next));
            assert!(next.is_due(now - Duration::from_secs(1)));
            now = next.next;
            later = Some(next);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(later.unwrap().tries, 9);
    }
}
