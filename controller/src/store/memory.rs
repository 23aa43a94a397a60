//! Records of embedded mode: small ones in memory, event logs where the worker keeps them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::assignment::Assignment;
use agent::event::Event;
use agent::eventlog::EventLog;
use agent::ids::AttemptId;
use agent::link::Runner;

use super::StoreError;
use crate::event::{Entry, Event as Happened};
use crate::reactor::Effects;

/// Events read at a time from a log whose lines may be large.
const STRETCH: usize = 64;

pub(super) struct Memory {
    runner: Arc<dyn Runner>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    journal: Vec<Entry>,
    assignments: BTreeMap<AttemptId, Assignment>,
    /// Logs of attempts that the worker has, also after it released them.
    logs: BTreeMap<AttemptId, EventLog>,
    /// Events of attempts that no worker ever had.
    events: BTreeMap<AttemptId, Vec<Event>>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    pub(super) fn new(runner: Arc<dyn Runner>) -> Self {
        Self { runner, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn commit(&self, effects: &Effects) {
        for entry in &effects.journal {
            // This process ends soon; the worker's files stay.
            if let Happened::Delivered { attempt, status } = &entry.event {
                self.runner.delivered(*attempt, *status);
            }
        }
        let mut kept = self.kept();
        kept.journal.extend(effects.journal.iter().cloned());
        for (id, assignment) in &effects.assignments {
            kept.assignments.insert(*id, assignment.clone());
        }
        for (id, events) in &effects.events {
            if kept.logs.contains_key(id) {
                continue;
            }
            match self.runner.log(*id) {
                Some(log) => {
                    kept.logs.insert(*id, log);
                }
                None => kept.events.entry(*id).or_default().extend(events.iter().cloned()),
            }
        }
    }

    pub(super) fn journal(&self) -> Vec<Entry> {
        self.kept().journal.clone()
    }

    pub(super) fn assignment(&self, id: AttemptId) -> Option<Assignment> {
        self.kept().assignments.get(&id).cloned()
    }

    pub(super) fn events(&self, id: AttemptId, after: u64, max: usize) -> Result<Vec<Event>, StoreError> {
        let log = {
            let kept = self.kept();
            match kept.logs.get(&id) {
                Some(log) => log.clone(),
                None => {
                    let events = kept.events.get(&id).map(Vec::as_slice).unwrap_or_default();
                    return Ok(events.iter().filter(|event| event.seq > after).take(max).cloned().collect());
                }
            }
        };
        log.read_from(after, max.min(STRETCH))
            .map_err(|source| StoreError::file("read", Path::new(&format!("event log of {id}")), source))
    }
}
