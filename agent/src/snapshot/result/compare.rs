//! What differs between a snapshot and a result, and what of it must not be applied.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Entry, FileMode, Finding, Record};
use crate::snapshot::program::Repo;
use crate::snapshot::scan::split;
use crate::snapshot::{Content, Oid, Snapshot, SnapshotError, TreePath, path};

/// Everything that the record's trees say.
pub(super) async fn compare(
    repo: &Repo,
    snapshot: &Snapshot,
    record: &Record,
) -> Result<(Vec<Change>, Vec<Finding>), SnapshotError> {
    let (changes, mut findings) = changes(repo, &snapshot.content, &record.content).await?;
    findings.extend(record.refused_names.iter().map(|name| Finding::GitPath { name: name.clone() }));
    findings.extend(record.unreadable.iter().map(|path| Finding::Unreadable { path: path.clone() }));
    findings.extend(record.special.iter().map(|path| Finding::Special { path: path.clone() }));
    findings.extend(record.repositories.iter().map(|path| Finding::Repository { path: path.clone() }));
    for change in &changes {
        if let Some(Entry { mode: FileMode::Link, blob }) = &change.after {
            let target = repo.ask(&["cat-file", "blob", blob.as_str()], b"").await?;
            findings.extend(judge_link(&change.path, &target));
        }
    }
    findings.extend(collisions(repo, &record.content, &changes).await?);
    Ok((changes, findings))
}

/// Changed paths, those of nested repositories by their path from the top. Names that are no path come as findings.
pub(super) async fn changes(
    repo: &Repo,
    before: &Content,
    after: &Content,
) -> Result<(Vec<Change>, Vec<Finding>), SnapshotError> {
    let none = Oid::answer(&repo.writing().ask(&["hash-object", "-t", "tree", "-w", "--stdin"], b"").await?)?;
    let mut pairs: BTreeMap<Option<&TreePath>, (&Oid, &Oid)> = BTreeMap::new();
    pairs.insert(None, (&before.tree, &after.tree));
    for nested in &before.nested {
        pairs.insert(Some(&nested.path), (&nested.tree, &none));
    }
    for nested in &after.nested {
        pairs.entry(Some(&nested.path)).or_insert((&none, &none)).1 = &nested.tree;
    }
    let mut all: BTreeMap<TreePath, Change> = BTreeMap::new();
    let mut findings = Vec::new();
    for (prefix, (old, new)) in pairs {
        if old == new {
            continue;
        }
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old.as_str(), new.as_str()];
        let text = repo.ask(&args, b"").await?;
        let mut parts = split(&text);
        while let (Some(header), Some(name)) = (parts.next(), parts.next()) {
            let Ok(path) = TreePath::parse(name) else {
                findings.push(Finding::GitPath { name: String::from_utf8_lossy(name).into_owned() });
                continue;
            };
            let path = prefix.map_or_else(|| path.clone(), |prefix| path.below(prefix));
            let header = String::from_utf8_lossy(header);
            let fields: Vec<&str> = header.trim_start_matches(':').split(' ').collect();
            let [old_mode, new_mode, old_blob, new_blob, _] = fields[..] else {
                return Err(SnapshotError::Damaged { what: "the comparison", detail: header.into_owned() });
            };
            let (before, after) = (entry(old_mode, old_blob)?, entry(new_mode, new_blob)?);
            // A directory may become a repository of its own, or stop being one: its files leave one tree and enter another.
            let change = all.entry(path.clone()).or_insert(Change { path, before: None, after: None });
            change.before = before.or(change.before.take());
            change.after = after.or(change.after.take());
        }
    }
    Ok((all.into_values().filter(|change| change.before != change.after).collect(), findings))
}

fn entry(mode: &str, blob: &str) -> Result<Option<Entry>, SnapshotError> {
    let mode = match mode {
        "100755" => FileMode::Executable,
        "120000" => FileMode::Link,
        // None, or a nested repository: its files are looked at by themselves.
        "000000" | "160000" => return Ok(None),
        _ => FileMode::Regular,
    };
    Ok(Some(Entry { mode, blob: blob.parse()? }))
}

/// A new link must lead to a place inside, as its text says; what it leads to may be anything.
fn judge_link(at: &TreePath, target: &[u8]) -> Option<Finding> {
    let text = String::from_utf8_lossy(target).into_owned();
    let escaping = || Some(Finding::EscapingLink { path: at.clone(), target: text.clone() });
    if target.starts_with(b"/") || target.is_empty() {
        return escaping();
    }
    let mut depth = at.parents().count();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => return escaping(),
            b".." => depth -= 1,
            part if path::is_dot_git(part) => return Some(Finding::GitPath { name: format!("{at} -> {text}") }),
            _ => depth += 1,
        }
    }
    None
}

/// New paths that fall together with others of the result, parents included.
async fn collisions(repo: &Repo, after: &Content, changes: &[Change]) -> Result<Vec<Finding>, SnapshotError> {
    let whole = |path: &TreePath| std::iter::once(path.clone()).chain(path.parents()).collect::<Vec<_>>();
    let added = changes.iter().filter(|change| change.before.is_none() && change.after.is_some());
    let added: Vec<TreePath> = added.flat_map(|change| whole(&change.path)).collect();
    if added.is_empty() {
        return Ok(Vec::new());
    }
    let watched: BTreeSet<Vec<u8>> = added.iter().map(TreePath::folded).collect();
    let mut seen: BTreeMap<Vec<u8>, BTreeSet<TreePath>> = BTreeMap::new();
    let tops = std::iter::once((None, &after.tree));
    for (prefix, tree) in tops.chain(after.nested.iter().map(|nested| (Some(&nested.path), &nested.tree))) {
        let text = repo.ask(&["ls-tree", "-r", "-z", "--name-only", tree.as_str()], b"").await?;
        for path in split(&text).filter_map(|name| TreePath::parse(name).ok()) {
            let path = prefix.map_or_else(|| path.clone(), |prefix| path.below(prefix));
            for path in whole(&path) {
                let folded = path.folded();
                if watched.contains(&folded) {
                    seen.entry(folded).or_default().insert(path);
                }
            }
        }
    }
    let pairs = seen.into_values().filter(|paths| paths.len() > 1).filter_map(|paths| {
        let mut paths = paths.into_iter();
        Some(Finding::CaseCollision { path: paths.next()?, other: paths.next()? })
    });
    Ok(pairs.collect())
}
