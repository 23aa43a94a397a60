//! `next`: the one thing that a parent may do next on a lane.

use std::ffi::OsString;

use serde::Serialize;
use serde_json::Value;

use super::{Lookup, Style, lane, look_up, sheet_and_role};
use crate::cli::helper::{Fault, Flags, read_text, unreadable};
use crate::json;
use crate::policy::decision::{Decision, Situation};
use crate::policy::recovery::Look;
use crate::policy::state::LaneState;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    status: &'a str,
    role: &'a str,
    header: &'a str,
    lane_index: u64,
    lane: &'a str,
    decision: Decision,
}

pub(super) fn run(words: &[OsString], style: Style) -> Result<String, Fault> {
    let flags = Flags::read(words, &["--sheet", "--role", "--parent", "--state", "--lane"])?;
    let (sheet, role) = sheet_and_role(&flags)?;
    let state = flags.need("--state")?;
    let parent = flags.word("--parent")?;
    let lane_index = flags.index("--lane")?;

    let text = read_text(state).map_err(|error| unreadable("lane state", state, &error))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| Fault::Usage(format!("lane state {} is not JSON: {error}", state.to_string_lossy())))?;
    let state = LaneState::from_value(&value).map_err(|error| Fault::of(&error))?;

    let resolved = match look_up(sheet, &role, parent, style)? {
        Lookup::Unconfigured(answer) => return Ok(answer),
        Lookup::Found(resolved) => resolved,
    };
    let lane = lane(&resolved, lane_index)?;
    let situation = Situation { lane, events: &state.events, exhausted: &state.exhausted_groups, access: state.access };
    situation.check_history().map_err(|error| Fault::of(&error))?;
    Ok(json::pretty(&Output {
        status: "decision",
        role: &role,
        header: resolved.role.header,
        lane_index,
        lane: &lane.id,
        decision: situation.decide(Look::Live),
    }))
}
