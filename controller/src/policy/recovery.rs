//! May a descriptor run again: is the prepared identity complete, fresh and of the same terms (policy-and-contract 8).

use std::fs;
use std::path::{Component, Path, PathBuf};

use agent::blank::is_blank;
use agent::descriptor::Mode;

use super::resolve::ResolvedAttempt;
use super::state::{Event, Execution, Recovery};
use super::words::EventStatus;

/// Whether the prepared paths are looked at on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// For the answer: the workspace must be there, the files must not.
    Live,
    /// For history: what was prepared then has been used since.
    Recorded,
}

/// The identity prepared by `blocked`, if everything that section 8 asks for holds. `events` are all events so far,
/// `blocked` among them.
#[must_use]
pub fn ready<'a>(
    blocked: &'a Event,
    events: &[Event],
    attempt: &ResolvedAttempt,
    access: Mode,
    look: Look,
) -> Option<&'a Execution> {
    let (recovery, own) = (blocked.recovery.as_ref()?, blocked.execution.as_ref()?);
    let next = &recovery.next_execution;
    let holds = blocked.cleared()
        && complete(recovery)
        && [&next.output_path, &next.receipt_path, &next.workspace_path].into_iter().all(|path| is_normalized(path))
        && (look == Look::Recorded || prepared_on_disk(next))
        && same_terms(own, next)
        && next.descriptor == attempt.descriptor
        && next.api_spend == attempt.api_spend
        && next.access == access
        && events.iter().filter_map(|event| event.execution.as_ref()).all(|old| distinct(old, next, look))
        && corrected(blocked, recovery, events);
    holds.then_some(next)
}

/// True for an absolute path without `.`, `..`, doubled or trailing slashes.
#[must_use]
pub fn is_normalized(path: &str) -> bool {
    path == "/"
        || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(|segment| !matches!(segment, "" | "." | "..")))
}

fn complete(recovery: &Recovery) -> bool {
    let texts = [
        &recovery.correction,
        &recovery.blockage_id,
        &recovery.snapshot_ref,
        &recovery.partial_work_ref,
        &recovery.side_effects_ref,
        &recovery.stopped_writers_ref,
    ];
    let digest = recovery.snapshot_digest.as_bytes();
    texts.into_iter().all(|text| !is_blank(text))
        && digest.len() == 64
        && digest.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
}

fn prepared_on_disk(next: &Execution) -> bool {
    is_own_real_path(Path::new(&next.workspace_path))
        && [&next.output_path, &next.receipt_path].into_iter().all(|file| {
            let file = Path::new(file);
            // A dangling link counts as present: the runner could not create the file exclusively.
            file.parent().is_some_and(is_own_real_path) && file.symlink_metadata().is_err_and(|error| is_absent(&error))
        })
}

fn is_own_real_path(path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|real| real == path)
}

fn is_absent(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

fn same_terms(own: &Execution, next: &Execution) -> bool {
    own.descriptor == next.descriptor
        && own.api_spend == next.api_spend
        && own.access == next.access
        && own.contract == next.contract
}

/// No part of the identity is used twice; on disk, an alias of an old path counts as the old path.
fn distinct(old: &Execution, next: &Execution, look: Look) -> bool {
    let files = [(&old.output_path, &next.output_path), (&old.receipt_path, &next.receipt_path)];
    let workspaces = (&old.workspace_path, &next.workspace_path);
    old.id != next.id
        && files.into_iter().chain([workspaces]).all(|(old, next)| old != next)
        && (look == Look::Recorded
            || (files.into_iter().all(|(old, next)| real_file(old) != Path::new(next))
                && real_directory(workspaces.0) != Path::new(workspaces.1)))
}

fn real_directory(path: &str) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path))
}

/// Real path of the directory, and the name as it is: the file itself may be gone.
fn real_file(path: &str) -> PathBuf {
    let path = Path::new(path);
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => {
            fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned()).join(name)
        }
        _ => path.to_owned(),
    }
}

/// A second blockage of the same cause must be another one, corrected in another way.
fn corrected(blocked: &Event, recovery: &Recovery, events: &[Event]) -> bool {
    let at = events.iter().position(|event| std::ptr::eq(event, blocked)).unwrap_or(0);
    let earlier = events[..at].iter().rfind(|event| event.is_worker() && event.attempt == blocked.attempt);
    let Some(earlier) = earlier
        .filter(|event| event.status == EventStatus::PermissionBlocked && event.denied_cause == blocked.denied_cause)
    else {
        return true;
    };
    earlier
        .recovery
        .as_ref()
        .is_none_or(|before| before.blockage_id != recovery.blockage_id && before.correction != recovery.correction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_without_detours_are_normalized() {
        for path in ["/", "/a", "/a/b.c", "/a/..b"] {
            assert!(is_normalized(path), "{path}");
        }
        for path in ["", "a", "./a", "/a/", "//a", "/a//b", "/a/./b", "/a/../b", "/.."] {
            assert!(!is_normalized(path), "{path}");
        }
    }
}
