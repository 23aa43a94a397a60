//! `laneyard contract ledger`: the operations as a table.

use std::ffi::OsString;

use crate::cli::helper::{Fault, Flags};
use crate::cli::table::table;
use crate::contract::ledger::{LedgerFile, OperationState};
use crate::json;

pub(super) fn run(words: &[OsString]) -> Result<String, Fault> {
    let flags = Flags::read(words, &["--ledger"])?;
    let path = flags.need("--ledger")?;
    let ledger = LedgerFile::new(path).read()?;
    let count = |state| ledger.operations.iter().filter(|record| record.state == state).count();
    let mut out = format!(
        "{}: {} operation(s), {} pending, {} complete, {} rejected\n",
        path.to_string_lossy(),
        ledger.operations.len(),
        count(OperationState::Pending),
        count(OperationState::Complete),
        count(OperationState::Rejected)
    );
    if ledger.operations.is_empty() {
        return Ok(out);
    }
    let head = ["id", "state", "kind", "task", "checkpoint", "recorded", "ended", "expected", "result"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(ledger.operations.iter().map(|record| {
        vec![
            record.id.clone(),
            record.state.to_string(),
            record.kind.to_string(),
            record.task.clone(),
            record.checkpoint.clone(),
            record.recorded_at.clone(),
            record.completed_at.clone().unwrap_or_else(|| "-".to_owned()),
            json::compact(&record.expected),
            json::compact(&record.result),
        ]
    }));
    out.push_str(&table(&rows));
    if count(OperationState::Pending) > 0 {
        out.push_str("A pending operation may or may not have happened: look, then record complete or rejected.\n");
    }
    Ok(out)
}
