//! One request against a ledger: pure, so that every rule can be tested without a file.

use agent::descriptor::ParentOperation;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Ledger, OperationState, Record};
use crate::json;

/// What `op-record` was asked for. Texts are nonblank.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub id: String,
    pub task: String,
    pub checkpoint: String,
    pub kind: ParentOperation,
    pub state: OperationState,
    pub expected: Map<String, Value>,
    /// `None` when `--result` was not given.
    pub result: Option<Value>,
}

/// How the ledger took it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", content = "operation", rename_all = "lowercase")]
pub enum Recorded {
    /// A new reservation.
    Recorded(Record),
    /// The reservation ended.
    Transitioned(Record),
    /// It was there already; the file stays as it is.
    Idempotent(Record),
}

/// The request contradicts the ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error(
        "operation {id} duplicates {other}: {kind} of task \"{task}\", checkpoint \"{checkpoint}\" is already reserved; use a new, reviewed checkpoint"
    )]
    Duplicates { id: String, other: String, kind: ParentOperation, task: String, checkpoint: String },
    #[error("operation {id} must be reserved as pending first")]
    NotReserved { id: String },
    #[error("operation {id} conflicts with the recorded operation: {differs} differ(s)")]
    Conflicts { id: String, differs: String },
    #[error("operation {id} is {stored} and cannot become {asked}")]
    Ended { id: String, stored: OperationState, asked: OperationState },
    #[error("operation {id} is recorded with a different result")]
    DifferentResult { id: String },
}

impl Ledger {
    /// Takes a request. The ledger is changed for all answers but `Idempotent`.
    ///
    /// # Errors
    /// The first rule of the table that the request breaks; the ledger is then unchanged.
    pub fn record(&mut self, asked: Asked, now: &str) -> Result<Recorded, StepError> {
        let scope = (asked.task.as_str(), asked.checkpoint.as_str(), asked.kind);
        if let Some(other) = self.operations.iter().find(|record| record.id != asked.id && record.scope() == scope) {
            let (other, kind) = (other.id.clone(), asked.kind);
            let Asked { id, task, checkpoint, .. } = asked;
            return Err(StepError::Duplicates { id, other, kind, task, checkpoint });
        }
        match self.operations.iter_mut().find(|record| record.id == asked.id) {
            Some(stored) => advance(stored, asked, now),
            None if asked.state != OperationState::Pending => Err(StepError::NotReserved { id: asked.id }),
            None => {
                let Asked { id, task, checkpoint, kind, state, expected, result } = asked;
                let record = Record {
                    id,
                    task,
                    checkpoint,
                    kind,
                    state,
                    expected,
                    result: result.unwrap_or(Value::Null),
                    recorded_at: now.to_owned(),
                    completed_at: None,
                };
                self.operations.push(record.clone());
                Ok(Recorded::Recorded(record))
            }
        }
    }
}

fn advance(stored: &mut Record, asked: Asked, now: &str) -> Result<Recorded, StepError> {
    let differs = [
        ("task", stored.task != asked.task),
        ("checkpoint", stored.checkpoint != asked.checkpoint),
        ("kind", stored.kind != asked.kind),
        ("expected", json::compact(&stored.expected) != json::compact(&asked.expected)),
    ];
    let differs: Vec<&str> = differs.into_iter().filter_map(|(field, differs)| differs.then_some(field)).collect();
    if !differs.is_empty() {
        return Err(StepError::Conflicts { id: asked.id, differs: differs.join(", ") });
    }
    match (stored.state, asked.state) {
        (OperationState::Pending, state @ (OperationState::Complete | OperationState::Rejected)) => {
            stored.state = state;
            stored.completed_at = Some(now.to_owned());
            // `null` says nothing new: an earlier result stays.
            if let Some(result) = asked.result.filter(|result| !result.is_null()) {
                stored.result = result;
            }
            Ok(Recorded::Transitioned(stored.clone()))
        }
        (ended, state) if ended != state => Err(StepError::Ended { id: asked.id, stored: ended, asked: state }),
        _ if asked.result.is_some_and(|result| json::compact(&result) != json::compact(&stored.result)) => {
            Err(StepError::DifferentResult { id: asked.id })
        }
        _ => Ok(Recorded::Idempotent(stored.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(id: &str, checkpoint: &str, state: OperationState, result: Option<Value>) -> Asked {
        let (task, kind, expected) = ("t".to_owned(), ParentOperation::RunChecks, Map::new());
        Asked { id: id.to_owned(), task, checkpoint: checkpoint.to_owned(), kind, state, expected, result }
    }

    use OperationState::{Complete, Pending, Rejected};

    #[test]
    fn an_operation_is_reserved_once_and_ends_once() {
        let mut ledger = Ledger::default();
        assert!(matches!(ledger.record(asked("a", "c", Complete, None), "1"), Err(StepError::NotReserved { .. })));
        assert!(matches!(ledger.record(asked("a", "c", Pending, None), "1"), Ok(Recorded::Recorded(_))));
        let again = ledger.record(asked("a", "c", Pending, None), "2").unwrap();
        assert!(matches!(again, Recorded::Idempotent(record) if record.recorded_at == "1"));
        let done = ledger.record(asked("a", "c", Complete, Some(json!({"n": 1.0}))), "3").unwrap();
        assert!(matches!(done, Recorded::Transitioned(record) if record.completed_at.as_deref() == Some("3")));
        assert!(matches!(ledger.record(asked("a", "c", Pending, None), "4"), Err(StepError::Ended { .. })));
        assert!(matches!(ledger.record(asked("a", "c", Rejected, None), "4"), Err(StepError::Ended { .. })));
        assert!(matches!(
            ledger.record(asked("a", "c", Complete, Some(json!({"n": 1}))), "4"),
            Ok(Recorded::Idempotent(_))
        ));
        let other = ledger.record(asked("a", "c", Complete, Some(json!(2))), "4");
        assert!(matches!(other, Err(StepError::DifferentResult { .. })));
    }

    #[test]
    fn a_scope_belongs_to_one_id_for_ever() {
        let mut ledger = Ledger::default();
        ledger.record(asked("a", "c", Pending, Some(json!("early"))), "1").unwrap();
        let rejected = ledger.record(asked("a", "c", Rejected, None), "2").unwrap();
        assert!(matches!(rejected, Recorded::Transitioned(record) if record.result == json!("early")));
        assert!(matches!(ledger.record(asked("b", "c", Pending, None), "3"), Err(StepError::Duplicates { .. })));
        assert!(matches!(ledger.record(asked("b", "d", Pending, None), "3"), Ok(Recorded::Recorded(_))));
        assert!(matches!(ledger.record(asked("b", "e", Pending, None), "3"), Err(StepError::Conflicts { .. })));
    }
}
