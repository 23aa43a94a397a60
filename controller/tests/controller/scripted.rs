//! A worker that does what the test says, with real event logs on disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use agent::assignment::Assignment;
use agent::event::{EventBody, Phase};
use agent::eventlog::EventLog;
use agent::ids::{AttemptId, Generation};
use agent::link::{Refusal, Runner};
use agent::receipt::Status;
use agent::wire::attempt::CancelSignal;
use agent::wire::worker::{Held, WorkerFacts};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the worker was told, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Offer(AttemptId, Generation),
    Cancel(AttemptId, CancelSignal),
    Release(AttemptId),
    Delivered(AttemptId, Status),
}

pub(crate) struct Scripted {
    dir: tempfile::TempDir,
    facts: WorkerFacts,
    held: Mutex<BTreeMap<AttemptId, (Generation, EventLog)>>,
    heard: watch::Sender<Vec<Heard>>,
    pub(crate) refuse: Mutex<Option<Refusal>>,
}

impl Scripted {
    pub(crate) fn new(capacity: u32) -> Arc<Self> {
        Self::with(WorkerFacts { capacity, ..WorkerFacts::default() })
    }

    pub(crate) fn labelled(capacity: u32, name: &str, value: &str) -> Arc<Self> {
        let labels = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        Self::with(WorkerFacts { capacity, labels, ..WorkerFacts::default() })
    }

    fn with(facts: WorkerFacts) -> Arc<Self> {
        let facts = WorkerFacts { store: uuid::Uuid::new_v4(), ..facts };
        Arc::new(Self {
            dir: tempfile::tempdir().unwrap(),
            facts,
            held: Mutex::default(),
            heard: watch::Sender::new(Vec::new()),
            refuse: Mutex::default(),
        })
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<AttemptId, (Generation, EventLog)>> {
        self.held.lock().unwrap()
    }

    fn hear(&self, heard: Heard) {
        self.heard.send_modify(|all| all.push(heard));
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.borrow().clone()
    }

    /// Waits until the worker was told something that `wanted` accepts.
    pub(crate) async fn until(&self, wanted: impl Fn(&Heard) -> bool) {
        let mut heard = self.heard.subscribe();
        let waiting = heard.wait_for(|all| all.iter().any(&wanted));
        let seen = tokio::time::timeout(crate::support::PATIENCE, waiting).await;
        assert!(seen.is_ok(), "the worker was only told {:?}", self.heard());
    }

    pub(crate) async fn until_offered(&self, id: AttemptId) {
        self.until(|heard| matches!(heard, Heard::Offer(attempt, _) if *attempt == id)).await;
    }

    pub(crate) fn offers(&self, id: AttemptId) -> usize {
        self.heard().iter().filter(|heard| matches!(heard, Heard::Offer(attempt, _) if *attempt == id)).count()
    }

    /// Holds an attempt without having been asked.
    pub(crate) fn adopt(&self, id: AttemptId, generation: Generation) {
        let log = EventLog::open(&self.dir.path().join(format!("{id}.jsonl"))).unwrap();
        self.held().insert(id, (generation, log));
    }

    pub(crate) fn say(&self, id: AttemptId, body: EventBody) {
        let log = self.held().get(&id).unwrap().1.clone();
        log.append(body).unwrap();
    }

    pub(crate) fn text(&self, id: AttemptId, text: &str) {
        self.say(id, EventBody::Text { text: text.to_owned() });
    }

    pub(crate) fn start(&self, id: AttemptId) {
        self.say(id, EventBody::Status { phase: Phase::Running, step: None, settled: None, note: None });
    }

    pub(crate) fn end(&self, id: AttemptId, status: &str, answer: Option<&[u8]>) {
        let answer_bytes = answer.map(|answer| {
            std::fs::write(self.answer_path(id), answer).unwrap();
            answer.len() as u64
        });
        let receipt = json!({"schemaVersion": 2, "zebra": 1, "status": status, "apple": [1, 2]});
        self.say(id, EventBody::Terminal { receipt, answer_bytes });
    }

    /// Ends with what a writer left, which the controller has by now.
    pub(crate) fn end_with(&self, id: AttemptId, result: Value) {
        std::fs::write(self.answer_path(id), "written").unwrap();
        let receipt = json!({"schemaVersion": 2, "status": "complete", "result": result});
        let answer_bytes = Some(7);
        self.say(id, EventBody::Terminal { receipt, answer_bytes });
    }

    fn answer_path(&self, id: AttemptId) -> PathBuf {
        self.dir.path().join(format!("{id}.answer"))
    }
}

impl Runner for Scripted {
    fn offer(&self, assignment: Assignment, generation: Generation) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let refusal = self.refuse.lock().unwrap().clone();
            if refusal.is_none() {
                self.adopt(assignment.attempt, generation);
            }
            self.hear(Heard::Offer(assignment.attempt, generation));
            refusal.map_or(Ok(()), Err)
        })
    }

    fn cancel(&self, attempt: AttemptId, signal: CancelSignal) {
        self.hear(Heard::Cancel(attempt, signal));
    }

    fn release(&self, attempt: AttemptId) {
        self.held().remove(&attempt);
        self.hear(Heard::Release(attempt));
    }

    fn delivered(&self, attempt: AttemptId, status: Status) {
        self.hear(Heard::Delivered(attempt, status));
    }

    fn attempts(&self) -> Vec<Held> {
        let held = self.held();
        let held = held.iter().map(|(attempt, (generation, log))| Held {
            attempt: *attempt,
            generation: *generation,
            last_seq: log.last_seq(),
            terminal: false,
        });
        held.collect()
    }

    fn log(&self, attempt: AttemptId) -> Option<EventLog> {
        self.held().get(&attempt).map(|(_, log)| log.clone())
    }

    fn answer(&self, attempt: AttemptId) -> Option<PathBuf> {
        Some(self.answer_path(attempt)).filter(|path| path.exists())
    }

    fn facts(&self) -> WorkerFacts {
        self.facts.clone()
    }
}
