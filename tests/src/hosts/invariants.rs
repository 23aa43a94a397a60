//! What must hold once nothing is open any more, read from journals, logs and the fake model's own counts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::fleet::{Fleet, WORKERS, networks_and_volumes};
use crate::until::until;

#[track_caller]
pub(super) fn assert_settled(fleet: &Fleet) {
    until("every attempt is released and cleared away", Duration::from_secs(120), || {
        let mut open = WORKERS.iter().flat_map(|worker| unsettled(fleet, worker)).collect::<Vec<_>>();
        open.extend(networks_and_volumes(fleet.world.engine).difference(&fleet.before).cloned());
        open.extend(files(&fleet.state("client").join("clients"), "json").map(|name| format!("client record {name}")));
        if open.is_empty() { Ok(()) } else { Err(open) }
    });
    for (id, count) in fleet.model.counts() {
        assert!(count.invocations <= 1, "(a) at most one invocation: {id} has {count:?}");
    }
    let listed = fleet.attempts();
    let known: BTreeSet<&str> = listed.iter().filter_map(|attempt| attempt["attempt"].as_str()).collect();
    for attempt in fleet.acknowledged() {
        assert!(known.contains(attempt.as_str()), "(d) {attempt} was acknowledged, and is not known any more");
    }
    for attempt in &known {
        let events = fleet.events(attempt);
        let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        let whole: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert_eq!(numbers, whole, "(c) no event lost, none twice, order kept: {attempt}");
        let terminal = events.iter().filter(|event| event["kind"] == "terminal").count();
        assert_eq!(terminal, 1, "(b) exactly one terminal receipt: {attempt} has {terminal}: {events:#?}");
        for log in WORKERS.iter().map(|worker| kept(fleet, worker, attempt)).filter(|log| !log.is_empty()) {
            assert_eq!(log.len(), numbers.len(), "(c) the worker's log and the controller's differ: {attempt}");
        }
    }
    for worker in WORKERS {
        for attempt in directories(&fleet.state(worker).join("attempts")) {
            assert!(known.contains(attempt.as_str()), "(d) the controller does not know {attempt} of {worker}");
        }
        let found = directories(&fleet.state(worker).join("run"));
        assert_eq!(found, Vec::<String>::new(), "(e) `run` of {worker}");
    }
}

/// Of a worker's attempts: those that are not released yet, and containers, worktrees, processes and mounts that are still
/// there and nobody's. A worktree that is kept for people is theirs.
fn unsettled(fleet: &Fleet, worker: &str) -> Vec<String> {
    let state = fleet.state(worker);
    let attempts = directories(&state.join("attempts"));
    let dir = |id: &String| state.join("attempts").join(id);
    let mut open: Vec<String> = attempts.iter().filter(|id| !dir(id).join("released").exists()).cloned().collect();
    for id in attempts.iter().filter(|id| !dir(id).join("worktree.kept").exists()) {
        let left = ["worktree", "worktree.private", "worktree.ticket"].into_iter();
        open.extend(
            left.map(|part| dir(id).join(part)).filter(|path| path.exists()).map(|path| path.display().to_string()),
        );
    }
    open.extend(processes(&attempts));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let inside = format!("{}/", state.display());
    open.extend(mounts.lines().filter(|line| line.contains(&inside)).map(|line| format!("mount {line}")));
    let owner = fs::read_to_string(state.join("owner")).unwrap_or_default();
    if !owner.trim().is_empty() {
        let containers = fleet.world.engine.containers(&format!("laneyard.owner={}", owner.trim()));
        open.extend(containers.into_iter().map(|container| format!("{} ({})", container.name, container.state)));
    }
    open
}

/// The events in a worker's own log; none if it never had the attempt, or forgot it.
fn kept(fleet: &Fleet, worker: &str, attempt: &str) -> Vec<Value> {
    let path = fleet.state(worker).join("attempts").join(attempt).join("events.jsonl");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Processes that name an attempt, but for clients.
fn processes(attempts: &[String]) -> Vec<String> {
    let lines = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines
        .filter(|line| attempts.iter().any(|id| line.contains(id.as_str())))
        .map(|line| format!("process {line}"))
        .collect()
}

fn files(dir: &Path, ending: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let ending = format!(".{ending}");
    names.filter(move |name| name.ends_with(&ending))
}

fn directories(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
