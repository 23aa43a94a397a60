//! Ended attempts in the state directory. An attempt in flight, one whose receipt was not delivered, and one whose
//! client still wants something of it are never looked at twice.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Candidate, Item, Kind, Rules, choose};
use crate::attempt::directory::{AttemptDir, DirectoryError, RELEASED, StateDir};
use crate::attempt::journal::Journal;
use crate::attempt::kept::{self, KEPT};
use crate::event::{Event, EventBody};
use crate::ids::AttemptId;

/// Marker: the logs of this attempt are gone but for their last event.
const TRIMMED: &str = "trimmed";
/// Prefix of a directory that is being removed.
const GOING: &str = ".going-";

/// Something could not be removed; the rest was.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("could not remove the {} of attempt {attempt}: {source}", kind.as_str())]
    Remove { kind: Kind, attempt: AttemptId, source: io::Error },
}

/// What the rules take away from ended attempts now.
///
/// # Errors
/// The state directory cannot be listed.
pub fn plan(state: &StateDir, rules: &Rules, now: SystemTime) -> Result<Vec<Item>, DirectoryError> {
    let mut whole = Vec::new();
    for attempt in state.attempts()? {
        let path = state.attempt_path(attempt);
        if let Some(since) = over_since(state, attempt, &path) {
            whole.push(Candidate { subject: attempt.to_string(), since, bytes: size(&path) });
        }
    }
    let (mut items, stays) = choose(Kind::Receipts, rules.receipts, whole, now);
    let with_logs = stays.into_iter().filter_map(|candidate| {
        let path = state.root().join("attempts").join(&candidate.subject);
        let bytes = logs(&path).iter().map(|path| size(path)).sum();
        (!path.join(TRIMMED).exists()).then_some(Candidate { bytes, ..candidate })
    });
    items.extend(choose(Kind::Logs, rules.logs, with_logs.collect(), now).0);
    let left = kept::list(state)?.into_iter().map(|left| Candidate {
        subject: left.attempt.to_string(),
        since: now - left.age,
        bytes: kept::size(&left.path),
    });
    let old = choose(Kind::Worktrees, rules.worktrees, left.collect(), now).0;
    items.extend(old.into_iter().map(Item::waits_for_review));
    Ok(items)
}

/// Removes one item of [`plan`]. False if somebody took the attempt up again meanwhile: it stays.
///
/// # Errors
/// It cannot be removed.
pub fn remove(state: &StateDir, item: &Item) -> Result<bool, RetentionError> {
    let Ok(attempt) = item.subject.parse::<AttemptId>() else { return Ok(false) };
    let dir = match state.adopt(attempt) {
        Ok((dir, _)) => dir,
        Err(DirectoryError::Busy { .. } | DirectoryError::Unknown { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if over_since_unlocked(dir.path()).is_none() {
        return Ok(false);
    }
    let removed = match item.kind {
        Kind::Logs => trim(&dir),
        _ => remove_whole(&dir),
    };
    removed.map_err(|source| RetentionError::Remove { kind: item.kind, attempt, source })?;
    Ok(true)
}

/// Finishes removals that a killed process began.
pub fn sweep(state: &StateDir) {
    let Ok(entries) = fs::read_dir(state.root().join("attempts")) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(GOING)
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            tracing::warn!(path = %entry.path().display(), %error, "what was being removed is still there");
        }
    }
}

/// When an attempt ended that nobody needs any more; `None` for all others.
fn over_since(state: &StateDir, attempt: AttemptId, path: &Path) -> Option<SystemTime> {
    if state.run_path(attempt).exists() || state.is_driven(attempt) || state.is_awaited(attempt) {
        return None;
    }
    over_since_unlocked(path)
}

fn over_since_unlocked(path: &Path) -> Option<SystemTime> {
    if !path.join(RELEASED).exists() {
        return None; // its receipt is not delivered
    }
    if path.join(KEPT).exists() {
        return None; // what a writer left waits for somebody to let it go
    }
    // An unreadable journal proves nothing.
    Journal::read(&path.join("journal.jsonl")).ok().filter(|standing| standing.removed)?;
    path.join("receipt.json").metadata().and_then(|meta| meta.modified()).ok()
}

/// Files and directories that count as logs.
fn logs(path: &Path) -> [PathBuf; 3] {
    ["events.jsonl", "egress.jsonl", "spool"].map(|name| path.join(name))
}

/// Bytes of a file, or of everything below a directory; links are not followed.
fn size(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size(&entry.path())).sum()
}

/// Leaves one record for everything that was told, and the last event with the receipt.
fn trim(dir: &AttemptDir) -> io::Result<()> {
    let [events, egress, spool] = logs(dir.path());
    let text = fs::read(&events)?;
    let last = text.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    let event: Event = serde_json::from_slice(last)?;
    let mut kept = Vec::new();
    if event.seq > 1 {
        let body = EventBody::Gap { from: 1, to: event.seq - 1 };
        serde_json::to_writer(&mut kept, &Event { seq: event.seq - 1, at: event.at, body })?;
        kept.push(b'\n');
    }
    kept.extend_from_slice(last);
    kept.push(b'\n');
    dir.write_durably("events.jsonl", &kept)?;
    for gone in [fs::remove_file(egress), fs::remove_dir_all(spool)] {
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    dir.write_durably(TRIMMED, b"")
}

/// All or nothing for whoever looks: the directory goes out of sight first.
fn remove_whole(dir: &AttemptDir) -> io::Result<()> {
    let parent = dir.path().parent().unwrap_or_else(|| Path::new("/"));
    let going = parent.join(format!("{GOING}{}", dir.attempt()));
    fs::rename(dir.path(), &going)?;
    fs::remove_dir_all(going)
}
