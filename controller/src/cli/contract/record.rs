//! `op-record`: reserves an operation, or records how it ended.

use std::ffi::{OsStr, OsString};

use agent::blank::is_blank;
use agent::receipt::iso_millis;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::refused;
use crate::cli::helper::{Fault, Flags};
use crate::contract::ledger::{Asked, LedgerFile};
use crate::json;

const FLAGS: &[&str] = &["--ledger", "--id", "--task", "--checkpoint", "--kind", "--state", "--expected", "--result"];

pub(super) fn run(words: &[OsString]) -> Result<String, Fault> {
    let flags = Flags::read(words, FLAGS)?;
    for required in &FLAGS[..6] {
        flags.need(required)?;
    }
    let expected = match flags.get("--expected").map(|text| parse("--expected", text)).transpose()? {
        None => Map::new(),
        Some(Value::Object(expected)) => expected,
        Some(_) => return Err(Fault::Usage("--expected must be a JSON object".to_owned())),
    };
    let asked = Asked {
        id: flags.text("--id")?,
        task: flags.text("--task")?,
        checkpoint: flags.text("--checkpoint")?,
        kind: flags.word("--kind")?,
        state: flags.word("--state")?,
        expected,
        result: flags.get("--result").map(|text| parse("--result", text)).transpose()?,
    };
    let blank: Vec<String> = [("id", &asked.id), ("task", &asked.task), ("checkpoint", &asked.checkpoint)]
        .into_iter()
        .filter(|(_, text)| is_blank(text))
        .map(|(name, _)| format!("{name} must not be blank"))
        .collect();
    if !blank.is_empty() {
        return Err(refused(blank));
    }
    let ledger = LedgerFile::new(flags.need("--ledger")?);
    Ok(json::pretty(&ledger.record(asked, || iso_millis(OffsetDateTime::now_utc()))?))
}

fn parse(flag: &str, text: &OsStr) -> Result<Value, Fault> {
    serde_json::from_str(&text.to_string_lossy()).map_err(|error| Fault::Usage(format!("{flag} is not JSON: {error}")))
}
