//! The ledger's file format and its load rules.

use std::collections::HashSet;
use std::str::FromStr;

use agent::blank::is_blank;
use agent::descriptor::{ParentOperation, VocabularyError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::OperationState;
use crate::json;

/// All operations, in the order in which they were reserved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ledger {
    /// Always 1.
    version: u32,
    pub operations: Vec<Record>,
}

/// One reserved operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub id: String,
    pub task: String,
    pub checkpoint: String,
    pub kind: ParentOperation,
    pub state: OperationState,
    pub expected: Map<String, Value>,
    pub result: Value,
    /// UTC, ISO 8601.
    pub recorded_at: String,
    /// Set once the operation is complete or rejected.
    pub completed_at: Option<String>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { version: 1, operations: Vec::new() }
    }
}

impl Ledger {
    /// Reads a ledger; `name` is what messages call the file. Unknown keys are dropped.
    ///
    /// # Errors
    /// Every rule that the text breaks, one line each.
    pub fn read(text: &str, name: &str) -> Result<Self, Vec<String>> {
        let value: Value = serde_json::from_str(text).map_err(|_| vec![format!("ledger {name} is not JSON")])?;
        let map = value.as_object().ok_or_else(|| vec![format!("ledger {name} is not a JSON object")])?;
        if map.get("version").and_then(json::integer) != Some(1) {
            return Err(vec![format!("ledger {name}: \"version\" must be 1")]);
        }
        let Some(entries) = map.get("operations").and_then(Value::as_array) else {
            return Err(vec![format!("ledger {name}: \"operations\" must be an array")]);
        };
        let mut issues = Vec::new();
        let operations: Vec<Record> =
            entries.iter().enumerate().filter_map(|(at, entry)| Record::read(entry, at, name, &mut issues)).collect();
        repetitions(&operations, name, &mut issues);
        if issues.is_empty() { Ok(Self { version: 1, operations }) } else { Err(issues) }
    }

    /// The file's bytes: two-space JSON and a final newline.
    #[must_use]
    pub fn render(&self) -> String {
        json::pretty(self)
    }
}

impl Record {
    fn read(value: &Value, at: usize, name: &str, issues: &mut Vec<String>) -> Option<Self> {
        let Some(map) = value.as_object() else {
            issues.push(format!("ledger {name}: operation {at} is not a JSON object"));
            return None;
        };
        let mut reader = Reader { map, at, name, issues };
        // All fields first, so that one run names everything that is wrong with the record.
        let (id, task, checkpoint) = (reader.nonblank("id"), reader.nonblank("task"), reader.nonblank("checkpoint"));
        let kind = reader.word("kind");
        let state = reader.word("state");
        let expected = map.get("expected").and_then(Value::as_object).cloned();
        if expected.is_none() {
            reader.issue("expected", "must be a JSON object");
        }
        let recorded_at = reader.nonblank("recordedAt");
        let completed_at = match map.get("completedAt") {
            Some(Value::Null) => Some(None),
            Some(Value::String(text)) if !is_blank(text) => Some(Some(text.clone())),
            _ => {
                reader.issue("completedAt", "must be null or a nonblank string");
                None
            }
        };
        Some(Self {
            id: id?,
            task: task?,
            checkpoint: checkpoint?,
            kind: kind?,
            state: state?,
            expected: expected?,
            result: map.get("result").cloned().unwrap_or(Value::Null),
            recorded_at: recorded_at?,
            completed_at: completed_at?,
        })
    }

    /// What may be reserved once only.
    #[must_use]
    pub fn scope(&self) -> (&str, &str, ParentOperation) {
        (&self.task, &self.checkpoint, self.kind)
    }
}

fn repetitions(operations: &[Record], name: &str, issues: &mut Vec<String>) {
    let (mut ids, mut scopes) = (HashSet::new(), HashSet::new());
    for record in operations {
        if !ids.insert(record.id.as_str()) {
            issues.push(format!("ledger {name}: the id \"{}\" repeats", record.id));
        }
        if !scopes.insert(record.scope()) {
            let (task, checkpoint, kind) = record.scope();
            issues.push(format!("ledger {name}: {kind} of task \"{task}\", checkpoint \"{checkpoint}\" repeats"));
        }
    }
}

struct Reader<'a> {
    map: &'a Map<String, Value>,
    at: usize,
    name: &'a str,
    issues: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn issue(&mut self, key: &str, rule: &str) {
        self.issues.push(format!("ledger {}: operation {}: \"{key}\" {rule}", self.name, self.at));
    }

    fn nonblank(&mut self, key: &str) -> Option<String> {
        let text = self.map.get(key).and_then(Value::as_str).filter(|text| !is_blank(text)).map(str::to_owned);
        if text.is_none() {
            self.issue(key, "must be a nonblank string");
        }
        text
    }

    fn word<T: FromStr<Err = VocabularyError>>(&mut self, key: &str) -> Option<T> {
        match self.map.get(key).and_then(Value::as_str).unwrap_or_default().parse() {
            Ok(word) => Some(word),
            Err(VocabularyError { allowed, .. }) => {
                self.issue(key, &format!("must be one of: {}", allowed.join(", ")));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"id":"a","task":"t","checkpoint":"c","kind":"run-checks","state":"pending","expected":{},"recordedAt":"now","completedAt":null}"#;

    #[track_caller]
    fn check(operations: &str, fragments: &[&str]) {
        let issues = Ledger::read(&format!("{{\"version\":1.0,\"operations\":[{operations}]}}"), "l.json").err();
        let issues = issues.unwrap_or_default();
        assert_eq!(issues.len(), fragments.len(), "{issues:#?}");
        for (issue, fragment) in issues.iter().zip(fragments) {
            assert!(issue.contains(fragment) && issue.contains("l.json"), "{issue}");
        }
    }

    #[test]
    fn every_broken_rule_of_a_record_is_named() {
        check(RECORD, &[]);
        check("1", &["operation 0 is not a JSON object"]);
        check(
            "{}",
            &[
                "\"id\"",
                "\"task\"",
                "\"checkpoint\"",
                "\"kind\"",
                "\"state\"",
                "\"expected\"",
                "\"recordedAt\"",
                "\"completedAt\"",
            ],
        );
        check(&RECORD.replace("null", "\" \""), &["completedAt"]);
        check(&RECORD.replace("{}", "[]"), &["expected"]);
    }

    #[test]
    fn ids_and_scopes_are_unique() {
        check(&format!("{RECORD},{}", RECORD.replace("\"c\"", "\"d\"")), &["the id \"a\" repeats"]);
        check(&format!("{RECORD},{}", RECORD.replace("\"a\"", "\"b\"")), &["run-checks of task"]);
    }

    #[test]
    fn files_that_are_no_ledger_say_so() {
        for (text, fragment) in [
            ("", "not JSON"),
            ("[]", "not a JSON object"),
            ("{\"version\":2,\"operations\":[]}", "version"),
            ("{\"version\":1}", "operations"),
            ("{\"version\":\"1\",\"operations\":[]}", "version"),
        ] {
            assert!(Ledger::read(text, "l").unwrap_err()[0].contains(fragment), "{text}");
        }
    }

    #[test]
    fn unknown_keys_are_dropped_and_an_absent_result_is_null() {
        let text =
            format!("{{\"x\":1,\"version\":1,\"operations\":[{}]}}", RECORD.replace("{\"id\"", "{\"y\":2,\"id\""));
        let ledger = Ledger::read(&text, "l").unwrap();
        assert_eq!(ledger.operations[0].result, Value::Null);
        assert!(!ledger.render().contains("\"y\"") && ledger.render().contains("\"result\": null"));
    }
}
