//! How long what is over is kept, and what goes first: rules and choice without effects, and the state directory's own
//! part of it.

pub mod attempts; // what ended attempts left in the state directory
pub mod images; // what newer images replaced

use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// One kind of thing that is kept for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Event logs, spooled output and the egress log of an ended attempt; its receipt and answer stay.
    Logs,
    /// All that is left of an ended attempt: receipt, answer, journal.
    Receipts,
    /// A writer's result that somebody has reviewed.
    Results,
    /// A working directory that a failed writer left on a worker. It goes with its review; old ones are only listed.
    Worktrees,
    /// An image of a provider's CLI that is not current and that no container uses.
    Images,
}

impl Kind {
    /// The spelling of the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Receipts => "receipts",
            Self::Results => "results",
            Self::Worktrees => "worktrees",
            Self::Images => "images",
        }
    }
}

/// How much of one kind is kept. `None`: without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Since the attempt's end, or the last use.
    pub age: Option<Duration>,
    /// Bytes of all of them together; the oldest go first.
    pub size: Option<u64>,
}

/// All rules of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How often they are applied.
    pub every: Duration,
    pub logs: Keep,
    pub receipts: Keep,
    pub results: Keep,
    pub worktrees: Keep,
    pub images: Keep,
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const GIB: u64 = 1 << 30;

impl Default for Rules {
    fn default() -> Self {
        let keep = |days: u32, size| Keep { age: Some(DAY * days), size };
        Self {
            every: Duration::from_secs(3600),
            logs: keep(14, Some(10 * GIB)),
            receipts: keep(90, Some(5 * GIB)),
            results: keep(30, Some(10 * GIB)),
            worktrees: keep(14, Some(20 * GIB)),
            images: keep(30, None),
        }
    }
}

impl Rules {
    /// The rule of one kind.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> Keep {
        match kind {
            Kind::Logs => self.logs,
            Kind::Receipts => self.receipts,
            Kind::Results => self.results,
            Kind::Worktrees => self.worktrees,
            Kind::Images => self.images,
        }
    }
}

/// Something that goes, or that would go if nobody had to look at it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub kind: Kind,
    /// Id of the attempt, digest, or reference of the image.
    pub subject: String,
    pub bytes: u64,
    /// The rule that it is beyond, or why it stays.
    pub reason: String,
    /// It stays, whatever its age: nobody has reviewed it.
    #[serde(default)]
    pub kept: bool,
}

impl Item {
    /// It is old enough to go, and stays: nobody has looked at it.
    #[must_use]
    pub fn waits_for_review(self) -> Self {
        let reason = format!("{}, but nobody has reviewed or released it: laneyard result show", self.reason);
        Self { reason, kept: true, ..self }
    }
}

/// Something that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub subject: String,
    /// End of the attempt, or last use.
    pub since: SystemTime,
    pub bytes: u64,
}

/// What goes by one rule: everything that is too old, then the oldest until the rest is small enough. What stays is
/// returned second.
#[must_use]
pub fn choose(kind: Kind, keep: Keep, mut all: Vec<Candidate>, now: SystemTime) -> (Vec<Item>, Vec<Candidate>) {
    all.sort_by(|a, b| (a.since, &a.subject).cmp(&(b.since, &b.subject)));
    let mut total: u64 = all.iter().map(|candidate| candidate.bytes).sum();
    let (mut goes, mut stays) = (Vec::new(), Vec::new());
    for candidate in all {
        let age = now.duration_since(candidate.since).unwrap_or_default();
        let reason = match keep {
            Keep { age: Some(most), .. } if age > most => format!("older than {}", humantime::format_duration(most)),
            Keep { size: Some(most), .. } if total > most && candidate.bytes > 0 => {
                format!("more than {} of {}", ByteSize(most), kind.as_str())
            }
            _ => {
                stays.push(candidate);
                continue;
            }
        };
        total -= candidate.bytes;
        goes.push(Item { kind, subject: candidate.subject, bytes: candidate.bytes, reason, kept: false });
    }
    (goes, stays)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, days: u32, bytes: u64) -> Candidate {
        Candidate { subject: name.to_owned(), since: SystemTime::UNIX_EPOCH + DAY * days, bytes }
    }

    #[test]
    fn the_too_old_go_and_then_the_oldest_until_the_rest_fits() {
        let keep = Keep { age: Some(DAY * 10), size: Some(100) };
        let all = vec![candidate("new", 19, 60), candidate("old", 3, 5), candidate("middle", 15, 60)];
        let (goes, stays) = choose(Kind::Logs, keep, all, SystemTime::UNIX_EPOCH + DAY * 20);
        let told: Vec<_> = goes.iter().map(|item| (item.subject.as_str(), item.reason.as_str())).collect();
        assert_eq!(told, [("old", "older than 10days"), ("middle", "more than 100 B of logs")]);
        assert_eq!(stays, [candidate("new", 19, 60)]);
    }

    #[test]
    fn without_a_limit_everything_stays_and_a_clock_that_went_back_ages_nothing() {
        let all = vec![candidate("a", 3, 1 << 40)];
        let (goes, _) = choose(Kind::Logs, Keep { age: None, size: None }, all.clone(), SystemTime::UNIX_EPOCH);
        assert_eq!(goes, []);
        let (goes, _) = choose(Kind::Logs, Keep { age: Some(DAY), size: None }, all, SystemTime::UNIX_EPOCH);
        assert_eq!(goes, []);
    }
}
