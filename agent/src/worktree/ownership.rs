//! After a writer: does every new file belong to the worktree's owner (field lesson 10)? Nothing is ever chowned.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::container::Finding;
use crate::worktree::git::{Git, GitError};
use crate::worktree::{Kind, WorktreePlan};

/// Paths looked at in a plain directory, at most.
const MOST_ENTRIES: usize = 200_000;
/// Paths named in the finding.
const NAMED: usize = 5;

/// Foreign paths before the run: they are not the lane's doing.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    foreign: BTreeSet<PathBuf>,
}

/// Looks before a writer starts.
///
/// # Errors
/// Git could not tell what is changed.
pub async fn baseline(git: &Git, plan: &WorktreePlan) -> Result<Baseline, GitError> {
    if !plan.writes() {
        return Ok(Baseline::default());
    }
    let seen = changed(git, plan, None).await?;
    Ok(Baseline { foreign: foreign(&seen, plan.owner.uid) })
}

/// Looks after it ended. Only changed paths are looked at: what Git reports, or in a plain directory what is newer than
/// `started`.
///
/// # Errors
/// Git could not tell what is changed.
pub async fn check(
    git: &Git,
    plan: &WorktreePlan,
    before: &Baseline,
    started: SystemTime,
) -> Result<Option<Finding>, GitError> {
    if !plan.writes() {
        return Ok(None);
    }
    let seen = changed(git, plan, Some(started)).await?;
    let new: Vec<PathBuf> = foreign(&seen, plan.owner.uid).difference(&before.foreign).cloned().collect();
    if new.is_empty() {
        return Ok(None);
    }
    let names: Vec<String> = new.iter().take(NAMED).map(|path| format!("`{}`", path.display())).collect();
    let more = new.len().saturating_sub(NAMED);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    let detail = format!("{}{tail} do not belong to uid {}", names.join(", "), plan.owner.uid);
    Ok(Some(Finding::new("foreign-owner", detail)))
}

async fn changed(git: &Git, plan: &WorktreePlan, since: Option<SystemTime>) -> Result<Vec<PathBuf>, GitError> {
    Ok(match plan.kind {
        Kind::Plain => walk(&plan.source, since),
        Kind::Repository { .. } | Kind::Linked { .. } => {
            git.status(&plan.source).await?.into_iter().map(|entry| plan.source.join(entry.path)).collect()
        }
    })
}

fn foreign(paths: &[PathBuf], owner: u32) -> BTreeSet<PathBuf> {
    paths.iter().filter(|path| path.symlink_metadata().is_ok_and(|meta| meta.uid() != owner)).cloned().collect()
}

fn walk(root: &Path, since: Option<SystemTime>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    let mut looked = 0;
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            looked += 1;
            if looked > MOST_ENTRIES {
                return found;
            }
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                open.push(entry.path());
            }
            let changed = u64::try_from(meta.ctime())
                .map(|secs| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(secs + 1));
            if since.is_none_or(|since| changed.is_ok_and(|changed| changed >= since)) {
                found.push(entry.path());
            }
        }
    }
    found
}
