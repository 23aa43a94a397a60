//! What was asked: the log, and counts by conversation.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One request. A line of the log has the same fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of the request, from 1.
    pub n: u64,
    /// Seconds since 1970.
    pub t: f64,
    pub method: String,
    pub path: String,
    /// Header values at most 300 characters; of credentials only scheme and length.
    pub headers: BTreeMap<String, String>,
    /// `messages`, `responses` or `chat` for a model request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Number of the step served; -1 for an auxiliary request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Conversation, as in the counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// True if this request began a conversation: an invocation of the model.
    #[serde(default)]
    pub invocation: bool,
    /// Target of a `CONNECT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<String>,
    /// An absolute-form request, as a proxy would get it.
    #[serde(default)]
    pub proxied: bool,
    /// Status of a refusal of the API itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u16>,
}

/// Requests of one conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Conversations begun: first steps that were not tries of one that had failed before.
    pub invocations: u64,
    /// Requests for steps, tries included.
    pub requests: u64,
    /// Requests for titles, summaries and the like.
    pub auxiliary: u64,
}

#[derive(Default)]
struct State {
    records: Vec<Record>,
    counts: BTreeMap<String, Count>,
    /// Conversations whose last first step failed on purpose: the next one is a try of the same invocation.
    failed: BTreeMap<String, bool>,
}

pub(super) struct Records {
    state: Mutex<State>,
    log: Option<Mutex<File>>,
}

impl Records {
    pub(super) fn open(log: Option<&Path>) -> io::Result<Self> {
        let log = log.map(|path| OpenOptions::new().create(true).append(true).open(path)).transpose()?;
        Ok(Self { state: Mutex::default(), log: log.map(Mutex::new) })
    }

    /// Adds a request; returns its number.
    pub(super) fn add(&self, mut record: Record) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        record.n = state.records.len() as u64 + 1;
        if let (Some(id), Some(step)) = (record.id.clone(), record.step) {
            let is_try = step == 0 && state.failed.remove(&id).unwrap_or(false);
            let count = state.counts.entry(id).or_default();
            if step < 0 {
                count.auxiliary += 1;
            } else {
                count.requests += 1;
                record.invocation = step == 0 && !is_try;
                count.invocations += u64::from(record.invocation);
            }
        }
        let n = record.n;
        if let Some(log) = &self.log {
            let mut line = serde_json::to_vec(&record).unwrap_or_default();
            line.push(b'\n');
            let _ = log.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
        }
        state.records.push(record);
        n
    }

    /// The first step of a conversation is about to fail on purpose.
    pub(super) fn first_step_fails(&self, id: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed.insert(id.to_owned(), true);
    }

    pub(super) fn counts(&self) -> BTreeMap<String, Count> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    pub(super) fn all(&self) -> Vec<Record> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).records.clone()
    }
}

/// Header values as they may be logged.
pub(super) fn loggable(headers: &[(String, String)]) -> BTreeMap<String, String> {
    const HIDDEN: [&str; 4] = ["authorization", "x-api-key", "proxy-authorization", "cookie"];
    let value = |name: &str, value: &str| {
        if HIDDEN.contains(&name) {
            let scheme = value.split_once(' ').map_or("key", |(scheme, _)| scheme);
            return format!("{scheme} <{} chars>", value.len());
        }
        value.chars().take(300).collect()
    };
    headers.iter().map(|(name, text)| (name.clone(), value(name, text))).collect()
}

pub(super) fn string_of(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}
