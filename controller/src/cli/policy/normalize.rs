//! `normalize`: from a run receipt to the event of an attempt.

use std::ffi::OsString;

use agent::descriptor::{Contract, Mode};
use serde::Serialize;
use serde_json::Value;

use super::{HEADING, Lookup, Style, lane, look_up, sheet_and_role};
use crate::cli::helper::{Fault, Flags, read_text, unreadable};
use crate::json;
use crate::policy::decision::attempt;
use crate::policy::normalize::{NormalizedEvent, Request, event};
use crate::policy::receipt::{Expected, ReceiptFacts};
use crate::policy::resolve::RouteKind;
use crate::policy::words::Spend;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    status: &'a str,
    role: &'a str,
    header: &'a str,
    lane_index: u64,
    lane: &'a str,
    attempt: &'a str,
    event: NormalizedEvent,
}

const FLAGS: &[&str] = &["--sheet", "--role", "--parent", "--receipt", "--mode", "--lane", "--attempt", "--contract"];

pub(super) fn run(words: &[OsString], style: Style) -> Result<String, Fault> {
    let flags = Flags::read(words, FLAGS)?;
    let (sheet, role) = sheet_and_role(&flags)?;
    let receipt = flags.need("--receipt")?;
    let mode: Mode = flags.word("--mode")?;
    let contract = flags.word_or("--contract", Contract::Legacy)?;
    let parent = flags.word("--parent")?;
    let lane_index = flags.index("--lane")?;
    let attempt_index = flags.index("--attempt")?;

    let resolved = match look_up(sheet, &role, parent, style)? {
        Lookup::Unconfigured(answer) => return Ok(answer),
        Lookup::Found(resolved) => resolved,
    };
    let lane = lane(&resolved, lane_index)?;
    let attempt = attempt(lane, attempt_index).ok_or_else(|| {
        let count = lane.attempts.len();
        Fault::Usage(format!("--attempt {attempt_index} is out of range: {} has {count} attempt(s)", lane.id))
    })?;
    let (provider, model, effort) =
        attempt.assignment().filter(|_| attempt.route == RouteKind::External).ok_or_else(|| {
            Fault::Usage(format!(
                "{} runs as a native lane of {parent}, which has no runner receipt; record the event from host metadata",
                attempt.descriptor
            ))
        })?;

    let receipt_path = receipt.to_string_lossy();
    let text = read_text(receipt).map_err(|error| unreadable("receipt", receipt, &error))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| Fault::Usage(format!("receipt {receipt_path} is not JSON: {error}")))?;
    let expected = Expected {
        parent,
        provider,
        model,
        effort,
        mode,
        api_spend: if attempt.api_spend == Spend::Unset { "legacy" } else { attempt.api_spend.as_str() },
        contract: contract.as_str(),
        receipt_path: &receipt_path,
    };
    let facts = ReceiptFacts::read(&value, &expected)
        .map_err(|error| Fault::Rules { heading: HEADING, issues: vec![error.to_string()] })?;
    let request = Request { attempt_index, attempt, mode, contract, receipt_path: &receipt_path };
    Ok(json::pretty(&Output {
        status: "event",
        role: &role,
        header: resolved.role.header,
        lane_index,
        lane: &lane.id,
        attempt: &attempt.descriptor,
        event: event(facts, &request),
    }))
}
