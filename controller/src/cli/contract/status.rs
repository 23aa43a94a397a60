//! `op-status`: all operations, and those that a crash left ambiguous.

use std::ffi::OsString;

use serde::Serialize;

use crate::cli::helper::{Fault, Flags};
use crate::contract::ledger::{LedgerFile, OperationState, Record};
use crate::json;

#[derive(Serialize)]
struct Output<'a> {
    operations: &'a [Record],
    pending: Vec<&'a str>,
}

pub(super) fn run(words: &[OsString]) -> Result<String, Fault> {
    let flags = Flags::read(words, &["--ledger"])?;
    let ledger = LedgerFile::new(flags.need("--ledger")?).read()?;
    let pending = ledger.operations.iter().filter(|record| record.state == OperationState::Pending);
    let pending = pending.map(|record| record.id.as_str()).collect();
    Ok(json::pretty(&Output { operations: &ledger.operations, pending }))
}
