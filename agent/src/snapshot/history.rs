//! Where history is cut for a lane.

use std::collections::{BTreeMap, BTreeSet};

use super::program::Repo;
use super::{History, Oid, SnapshotError};

/// Commits looked at per generation of depth, at most: history with many merges is wide.
const WIDTH: u64 = 32;
/// Commits between the base and where it left a carried ref, at most.
const LONGEST_BRANCH: u64 = 50_000;

type Parents = BTreeMap<Oid, Vec<Oid>>;

/// The commits whose parents do not travel.
pub(super) async fn cut(
    repo: &Repo,
    base: Option<&Oid>,
    tips: &[Oid],
    history: History,
) -> Result<Vec<Oid>, SnapshotError> {
    let History::Depth(depth) = history else { return Ok(Vec::new()) };
    let all: BTreeSet<&Oid> = base.into_iter().chain(tips).collect();
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let limit = format!("--max-count={}", u64::from(depth).saturating_mul(WIDTH).saturating_add(1000));
    let known = parents(repo, &[&limit], &all.iter().map(|oid| oid.to_string()).collect::<Vec<_>>()).await?;
    let mut kept: Parents = BTreeMap::new();
    let mut level: BTreeSet<Oid> = all.into_iter().cloned().collect();
    for _ in 0..depth.max(1) {
        let mut next = BTreeSet::new();
        for commit in level {
            let Some(above) = known.get(&commit) else { continue };
            next.extend(above.iter().filter(|above| !kept.contains_key(*above)).cloned());
            kept.insert(commit, above.clone());
        }
        level = next;
    }
    // `git diff BASE...HEAD` needs the whole way back to the fork.
    if let Some(base) = base {
        let limit = format!("--max-count={LONGEST_BRANCH}");
        for tip in tips.iter().filter(|tip| *tip != base) {
            kept.extend(parents(repo, &["--boundary", &limit], &[format!("{base}...{tip}")]).await?);
        }
    }
    let cut = kept.iter().filter(|(_, above)| above.iter().any(|above| !kept.contains_key(above)));
    Ok(cut.map(|(commit, _)| commit.clone()).collect())
}

async fn parents(repo: &Repo, options: &[&str], revisions: &[String]) -> Result<Parents, SnapshotError> {
    let mut args = vec!["rev-list", "--parents"];
    args.extend(options);
    args.push("--stdin");
    let stdin = revisions.iter().map(|revision| format!("{revision}\n")).collect::<String>();
    let text = repo.ask(&args, stdin.as_bytes()).await?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(|line| line.trim_start_matches('-'));
    lines
        .filter_map(|line| {
            let mut words = line.split(' ').map(str::parse::<Oid>);
            let commit = words.next()?;
            Some(commit.and_then(|commit| Ok((commit, words.collect::<Result<_, _>>()?))))
        })
        .collect()
}
