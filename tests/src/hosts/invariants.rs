//! What must hold once nothing is open any more, read from journals, logs and the fake model's own counts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::fleet::{Fleet, WORKERS};
use crate::until::until;

#[track_caller]
pub(super) fn assert_settled(fleet: &Fleet) {
    until("every attempt is released and cleared away", Duration::from_secs(120), || {
        let open = WORKERS.iter().flat_map(|worker| unsettled(fleet, worker)).collect::<Vec<_>>();
        if open.is_empty() { Ok(()) } else { Err(open) }
    });
    for (id, count) in fleet.model.counts() {
        assert!(count.invocations <= 1, "(a) at most one invocation: {id} has {count:?}");
    }
    let listed = fleet.attempts();
    let known: BTreeSet<&str> = listed.iter().filter_map(|attempt| attempt["attempt"].as_str()).collect();
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
        for left in ["run", "worktrees"] {
            let found = directories(&fleet.state(worker).join(left));
            assert_eq!(found, Vec::<String>::new(), "(e) `{left}` of {worker}");
        }
    }
    let networks: Vec<String> = fleet.world.engine.networks();
    assert!(!networks.iter().any(|name| name.contains("laneyard")), "(e) {networks:?}");
}

/// Attempts of a worker that are not released yet, and containers that are still there.
fn unsettled(fleet: &Fleet, worker: &str) -> Vec<String> {
    let state = fleet.state(worker);
    let attempts = directories(&state.join("attempts")).into_iter();
    let mut open: Vec<String> =
        attempts.filter(|id| !state.join("attempts").join(id).join("released").exists()).collect();
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

fn directories(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
