//! The state of one lane, as the parent keeps it (policy-and-contract section 5).

use std::str::FromStr;

use agent::blank::is_blank;
use agent::descriptor::{Contract, Mode, ParentOperation, Provider, VocabularyError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::words::{DeniedCause, EventStatus, InspectionState, Spend};
use crate::json;

/// Everything that happened on one lane, and what the run learned elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// Accounts that ran out in any lane of the run.
    pub exhausted_groups: Vec<Provider>,
    pub access: Mode,
}

/// One execution of an attempt, or the record of an operation that the parent carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Zero-based within the lane.
    pub attempt: u64,
    pub status: EventStatus,
    /// `None`: unknown.
    pub process_started: Option<bool>,
    pub inspection: Option<Inspection>,
    pub continuation_ordinal: Option<u64>,
    pub denied_cause: Option<DeniedCause>,
    pub execution: Option<Execution>,
    pub recovery: Option<Recovery>,
    pub handoff: Option<HandoffRecord>,
    /// Set on a record of the parent's own operation.
    pub parent_operation: Option<OperationScope>,
}

/// The parent's verdict over what a writer left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    pub state: InspectionState,
    pub evidence: String,
}

/// The identity of one execution. Two executions never share id or paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    pub id: String,
    pub output_path: String,
    pub receipt_path: String,
    pub workspace_path: String,
    pub descriptor: String,
    pub api_spend: Spend,
    pub access: Mode,
    pub contract: Contract,
}

/// What the parent prepared before a descriptor may run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub correction: String,
    pub blockage_id: String,
    pub snapshot_ref: String,
    pub snapshot_digest: String,
    pub partial_work_ref: String,
    pub side_effects_ref: String,
    pub stopped_writers_ref: String,
    pub next_execution: Execution,
}

/// A delivered request for a parent operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffRecord {
    pub scope: OperationScope,
    pub reference: Option<String>,
}

/// What an operation is about; equal scopes are the same operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationScope {
    pub kind: ParentOperation,
    pub task: String,
    pub checkpoint: String,
}

impl Event {
    /// True for the execution of an attempt, false for the parent's own operation.
    #[must_use]
    pub const fn is_worker(&self) -> bool {
        self.parent_operation.is_none()
    }

    /// The parent found the worktree unsafe.
    #[must_use]
    pub fn unsafe_writer(&self) -> bool {
        self.inspection.as_ref().is_some_and(|inspection| inspection.state == InspectionState::Unsafe)
    }

    /// The parent found the worktree clear and said why.
    #[must_use]
    pub fn cleared(&self) -> bool {
        self.inspection
            .as_ref()
            .is_some_and(|inspection| inspection.state == InspectionState::Clear && !is_blank(&inspection.evidence))
    }

    /// A writer that may have started needs a clear verdict before anything follows.
    #[must_use]
    pub fn writer_gate(&self, access: Mode) -> bool {
        !access.writes() || self.process_started == Some(false) || self.cleared()
    }
}

/// The state file breaks a rule; the text names the place and the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lane state: {place} {rule}")]
pub struct StateError {
    place: String,
    rule: String,
}

type Result<T, E = StateError> = std::result::Result<T, E>;

impl LaneState {
    /// Checks a decoded state file, in the documented order.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn from_value(value: &Value) -> Result<Self> {
        let root = Place { value, name: "the file".to_owned() };
        let state = Fields { prefix: String::new(), ..root.object(&["events", "exhaustedGroups", "access"])? };
        let events = state.need("events").array()?;
        let events = events.iter().enumerate().map(|(at, value)| event(value, at)).collect::<Result<_>>()?;
        let exhausted_groups = match state.get("exhaustedGroups") {
            None => Vec::new(),
            Some(groups) => {
                let name = "an entry of \"exhaustedGroups\"";
                let entries = groups.array()?.iter();
                entries.map(|value| Place { value, name: name.to_owned() }.word()).collect::<Result<_>>()?
            }
        };
        Ok(Self { events, exhausted_groups, access: state.need("access").word()? })
    }
}

fn event(value: &Value, at: usize) -> Result<Event> {
    const KEYS: &[&str] = &[
        "attemptIndex",
        "status",
        "processStarted",
        "inspection",
        "receiptPath",
        "continuationOrdinal",
        "deniedCause",
        "correction",
        "execution",
        "recovery",
        "handoff",
        "parentOperation",
    ];
    let name = format!("event {at}");
    let fields = Place { value, name: name.clone() }.object(KEYS)?;
    fields.optional("receiptPath", |path| path.text().map(drop))?;
    let event = Event {
        attempt: fields.need("attemptIndex").index()?,
        status: fields.need("status").word()?,
        process_started: fields.optional("processStarted", Place::flag)?,
        inspection: fields.optional("inspection", inspection)?,
        continuation_ordinal: fields.optional("continuationOrdinal", Place::index)?,
        denied_cause: fields.optional("deniedCause", Place::word)?,
        execution: fields.optional("execution", execution)?,
        recovery: fields.optional("recovery", recovery)?,
        handoff: fields.optional("handoff", handoff)?,
        parent_operation: fields.optional("parentOperation", parent_operation)?,
    };
    let broken = |rule: &str| Err(StateError { place: name.clone(), rule: rule.to_owned() });
    if event.parent_operation.is_some() && !matches!(event.status, EventStatus::Complete | EventStatus::Failed) {
        return broken("records a parent operation, so its status must be complete or failed");
    }
    if event.parent_operation.is_some() && event.handoff.is_some() {
        return broken("records a parent operation and must have no handoff");
    }
    if event.status == EventStatus::NeedsParentOperation && event.handoff.is_none() {
        return broken("has status needs-parent-operation, which requires a handoff");
    }
    if event.status == EventStatus::PermissionBlocked && matches!(event.denied_cause, None | Some(DeniedCause::None)) {
        return broken("has status permission-blocked, which requires a deniedCause other than none");
    }
    Ok(event)
}

fn inspection(place: Place) -> Result<Inspection> {
    let fields = place.object(&["state", "evidenceRef"])?;
    Ok(Inspection { state: fields.need("state").word()?, evidence: fields.need("evidenceRef").nonblank()? })
}

fn execution(place: Place) -> Result<Execution> {
    let fields = place.object(&[
        "id",
        "outputPath",
        "receiptPath",
        "workspacePath",
        "descriptor",
        "apiSpend",
        "access",
        "contract",
    ])?;
    Ok(Execution {
        id: fields.need("id").nonblank()?,
        output_path: fields.need("outputPath").nonblank()?,
        receipt_path: fields.need("receiptPath").nonblank()?,
        workspace_path: fields.need("workspacePath").nonblank()?,
        descriptor: fields.need("descriptor").nonblank()?,
        api_spend: fields.need("apiSpend").word()?,
        access: fields.need("access").word()?,
        contract: fields.need("contract").word()?,
    })
}

fn recovery(place: Place) -> Result<Recovery> {
    let fields = place.object(&[
        "correction",
        "blockageId",
        "snapshotRef",
        "snapshotDigest",
        "partialWorkRef",
        "sideEffectsRef",
        "stoppedWritersRef",
        "nextExecution",
    ])?;
    Ok(Recovery {
        correction: fields.need("correction").nonblank()?,
        blockage_id: fields.need("blockageId").nonblank()?,
        snapshot_ref: fields.need("snapshotRef").nonblank()?,
        snapshot_digest: fields.need("snapshotDigest").nonblank()?,
        partial_work_ref: fields.need("partialWorkRef").nonblank()?,
        side_effects_ref: fields.need("sideEffectsRef").nonblank()?,
        stopped_writers_ref: fields.need("stoppedWritersRef").nonblank()?,
        next_execution: execution(fields.need("nextExecution"))?,
    })
}

fn handoff(place: Place) -> Result<HandoffRecord> {
    let fields = place.object(&["operation", "taskId", "checkpointId", "ref"])?;
    Ok(HandoffRecord { scope: scope(&fields, "operation")?, reference: fields.optional("ref", Place::text)? })
}

fn parent_operation(place: Place) -> Result<OperationScope> {
    scope(&place.object(&["kind", "taskId", "checkpointId"])?, "kind")
}

fn scope(fields: &Fields, kind: &'static str) -> Result<OperationScope> {
    Ok(OperationScope {
        kind: fields.need(kind).word()?,
        task: fields.need("taskId").nonblank()?,
        checkpoint: fields.need("checkpointId").nonblank()?,
    })
}

/// A value of the file and what it is called in messages.
struct Place<'a> {
    value: &'a Value,
    name: String,
}

struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// What messages put before a key; empty for the file's own keys.
    prefix: String,
}

impl<'a> Place<'a> {
    fn broken<T>(self, rule: impl Into<String>) -> Result<T> {
        Err(StateError { place: self.name, rule: rule.into() })
    }

    fn object(self, keys: &[&str]) -> Result<Fields<'a>> {
        let Some(map) = self.value.as_object() else { return self.broken("must be a JSON object") };
        match map.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => self.broken(format!("has the unknown key \"{key}\"")),
            None => Ok(Fields { map, prefix: format!("{}: ", self.name) }),
        }
    }

    fn array(self) -> Result<&'a Vec<Value>> {
        self.value.as_array().map_or_else(|| self.broken("must be an array"), Ok)
    }

    fn index(self) -> Result<u64> {
        json::index(self.value).map_or_else(|| self.broken("must be a nonnegative integer"), Ok)
    }

    fn flag(self) -> Result<bool> {
        self.value.as_bool().map_or_else(|| self.broken("must be true or false"), Ok)
    }

    fn text(self) -> Result<String> {
        self.value.as_str().map_or_else(|| self.broken("must be a string"), |text| Ok(text.to_owned()))
    }

    fn nonblank(self) -> Result<String> {
        match self.value.as_str().filter(|text| !is_blank(text)) {
            Some(text) => Ok(text.to_owned()),
            None => self.broken("must be a nonblank string"),
        }
    }

    fn word<T: FromStr<Err = VocabularyError>>(self) -> Result<T> {
        match self.value.as_str().unwrap_or_default().parse() {
            Ok(word) => Ok(word),
            Err(VocabularyError { allowed, .. }) => self.broken(format!("must be one of: {}", allowed.join(", "))),
        }
    }
}

impl<'a> Fields<'a> {
    fn get(&self, key: &str) -> Option<Place<'a>> {
        self.map.get(key).map(|value| Place { value, name: format!("{}\"{key}\"", self.prefix) })
    }

    fn need(&self, key: &str) -> Place<'a> {
        // A missing key is told like a null one: the message says what must be there.
        self.get(key).unwrap_or_else(|| Place { value: &Value::Null, name: format!("{}\"{key}\"", self.prefix) })
    }

    fn optional<T>(&self, key: &str, read: impl FnOnce(Place<'a>) -> Result<T>) -> Result<Option<T>> {
        self.get(key).map(read).transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: &Value, expected: Option<&str>) {
        let error = LaneState::from_value(value).err().map(|error| error.to_string());
        match (expected, &error) {
            (None, None) => {}
            (Some(part), Some(error)) if error.contains(part) => {}
            _ => panic!("expected {expected:?}, got {error:?} for {value}"),
        }
    }

    fn with_event(event: &Value) -> Value {
        json!({"events": [event], "access": "read-only"})
    }

    #[test]
    fn the_file_has_three_keys_and_two_are_required() {
        check(&json!({"events": [], "access": "read-only"}), None);
        check(&json!({"events": [], "access": "isolated-write", "exhaustedGroups": ["grok", "grok"]}), None);
        check(&json!([]), Some("must be a JSON object"));
        check(&json!({"events": []}), Some("\"access\" must be one of: read-only"));
        check(&json!({"events": {}, "access": "read-only"}), Some("\"events\" must be an array"));
        check(&json!({"events": [], "access": "read-only", "x": 1}), Some("unknown key \"x\""));
        check(&json!({"events": [], "access": "read-only", "exhaustedGroups": null}), Some("must be an array"));
        check(&json!({"events": [], "access": "read-only", "exhaustedGroups": ["x"]}), Some("must be one of"));
    }

    #[test]
    fn events_are_checked_key_by_key() {
        check(&with_event(&json!({"attemptIndex": 1.0, "status": "failed", "correction": [null]})), None);
        check(&with_event(&json!({"attemptIndex": -1, "status": "failed"})), Some("event 0: \"attemptIndex\""));
        check(&with_event(&json!({"attemptIndex": 0, "status": "done"})), Some("\"status\" must be one of: complete"));
        check(&with_event(&json!({"attemptIndex": 0, "status": "failed", "receiptPath": null})), Some("receiptPath"));
        check(&with_event(&json!({"attemptIndex": 0, "status": "failed", "who": 1})), Some("unknown key \"who\""));
        let inspection = json!({"state": "clear", "evidenceRef": "\u{feff} "});
        check(&with_event(&json!({"attemptIndex": 0, "status": "failed", "inspection": inspection})), Some("nonblank"));
    }

    #[test]
    fn statuses_require_what_they_are_about() {
        check(&with_event(&json!({"attemptIndex": 0, "status": "needs-parent-operation"})), Some("requires a handoff"));
        check(&with_event(&json!({"attemptIndex": 0, "status": "permission-blocked"})), Some("deniedCause"));
        let scope = json!({"kind": "run-checks", "taskId": "t", "checkpointId": "c"});
        check(&with_event(&json!({"attemptIndex": 0, "status": "complete", "parentOperation": scope})), None);
        check(
            &with_event(&json!({"attemptIndex": 0, "status": "usage-exhausted", "parentOperation": scope})),
            Some("complete or failed"),
        );
    }
}
