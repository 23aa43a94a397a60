//! `laneyard policy explain`: a role's seats and what each outcome would lead to, as a table for people.

use std::ffi::OsString;

use agent::descriptor::{Mode, Parent};

use super::{Lookup, Style, look_up, native_lanes, sheet_and_role};
use crate::cli::helper::{Answer, Fault, Flags};
use crate::cli::table::table;
use crate::policy::decision::{Decision, DenialReason, Situation, StopReason};
use crate::policy::recovery::Look;
use crate::policy::resolve::{Authorization, Lane, Resolved, ResolvedAttempt, RouteKind};
use crate::policy::state::Event;
use crate::policy::words::{DeniedCause, EventStatus, Funding};

pub(super) fn run(words: &[OsString]) -> Result<Answer, Fault> {
    let flags = Flags::read(words, &["--sheet", "--role", "--parent"])?;
    let (sheet, role) = sheet_and_role(&flags)?;
    let parent: Parent = flags.word("--parent")?;
    let resolved = match look_up(sheet, &role, parent, Style::Human)? {
        Lookup::Unconfigured(_) => {
            let text = format!("{role}: not configured; the caller's default runs as one attempt, without fallback\n");
            return Ok(text.into());
        }
        Lookup::Found(resolved) => resolved,
    };
    Ok(explain(&resolved, &role, parent)?.into())
}

fn explain(resolved: &Resolved, role: &str, parent: Parent) -> Result<String, Fault> {
    let seats = resolved.lanes.len();
    let mut out = format!("{role}: row \"{}\", parent {parent}, {seats} seat(s)\n", resolved.role.header);
    for lane in &resolved.lanes {
        out.push_str(&format!("\n{}\n", lane.id));
        out.push_str(&table(&attempts(lane, parent)?));
        out.push_str(&format!("  advances on: {}\n", listed(lane.fallback.on.iter().map(|on| on.as_str()))));
        match &lane.continuation {
            None => out.push_str("  continues on: nothing\n"),
            Some(policy) => out.push_str(&format!(
                "  continues on: {}, at most {} executions of one descriptor\n",
                listed(policy.on.iter().map(|on| on.as_str())),
                policy.max_executions
            )),
        }
        out.push_str("  what happens when an attempt ends with\n");
        out.push_str(&table(&outcomes(lane)));
    }
    Ok(out)
}

fn attempts(lane: &Lane, parent: Parent) -> Result<Vec<Vec<String>>, Fault> {
    let head = ["#", "attempt", "route", "account", "funding", "api spend", "authorization"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (at, attempt) in lane.attempts.iter().enumerate() {
        rows.push(vec![
            at.to_string(),
            attempt.descriptor.clone(),
            route(attempt, parent)?,
            attempt.exhaustion_group.to_string(),
            attempt.funding.map_or("unset", Funding::as_str).to_owned(),
            attempt.api_spend.to_string(),
            match &attempt.authorization {
                Authorization::Allowed => "allowed".to_owned(),
                Authorization::Blocked { reason } => format!("blocked: {reason}"),
            },
        ]);
    }
    Ok(rows)
}

fn route(attempt: &ResolvedAttempt, parent: Parent) -> Result<String, Fault> {
    if attempt.route == RouteKind::External {
        return Ok("external".to_owned());
    }
    let Some((provider, model, effort)) = attempt.assignment() else { return Ok("native (parent's model)".to_owned()) };
    let lane = native_lanes().native(parent, provider, model, effort).map_err(|error| Fault::of(&error))?;
    Ok(lane.map_or_else(|| "native".to_owned(), |lane| format!("native ({lane})")))
}

/// One row a status: what the decision would be after a reader, and after a writer that was cleared or not inspected.
fn outcomes(lane: &Lane) -> Vec<Vec<String>> {
    let mut head = vec!["outcome".to_owned()];
    head.extend((0..lane.attempts.len()).map(|at| format!("attempt {at}")));
    let mut rows = vec![head];
    let statuses = EventStatus::ALL.iter().filter(|status| **status != EventStatus::NeedsParentOperation);
    for status in statuses {
        let mut row = vec![status.to_string()];
        row.extend((0..lane.attempts.len()).map(|at| after(lane, at as u64, *status)));
        rows.push(row);
    }
    let mut row = vec![EventStatus::NeedsParentOperation.to_string()];
    row.extend(lane.attempts.iter().map(|_| "the parent carries out the operation".to_owned()));
    rows.push(row);
    rows
}

/// Asks the decision itself, so that the table cannot differ from what `next` says.
fn after(lane: &Lane, attempt: u64, status: EventStatus) -> String {
    let event = Event {
        attempt,
        status,
        process_started: Some(true),
        inspection: None,
        continuation_ordinal: None,
        denied_cause: (status == EventStatus::PermissionBlocked).then_some(DeniedCause::Permission),
        execution: None,
        recovery: None,
        handoff: None,
        parent_operation: None,
    };
    let events = [event];
    let decide = |access| Situation { lane, events: &events, exhausted: &[], access }.decide(Look::Recorded);
    let reader = told(&decide(Mode::ReadOnly));
    match decide(Mode::IsolatedWrite) {
        Decision::Inspect { .. } => format!("{reader}; a started writer is inspected first"),
        _ => reader,
    }
}

fn told(decision: &Decision) -> String {
    match decision {
        Decision::Launch { attempt_index, attempt, .. } => format!("launch {attempt_index} ({})", attempt.descriptor),
        Decision::Continue { .. } => "continue".to_owned(),
        Decision::ParentOperation { .. } => "parent operation".to_owned(),
        Decision::Inspect { .. } => "inspect".to_owned(),
        Decision::Stop { reason } => match reason {
            StopReason::Complete => "done".to_owned(),
            StopReason::ChainExhausted => "stop: chain exhausted".to_owned(),
            StopReason::NotEligible => "stop: not eligible".to_owned(),
            StopReason::Unauthorized => "stop: next is not authorized".to_owned(),
            StopReason::UnsafeWriter => "stop: unsafe writer".to_owned(),
        },
        // Without a prepared identity the permission is there, but not the readiness.
        Decision::PolicyDenied { reason: DenialReason::MissingReadiness } => "continue once prepared".to_owned(),
        Decision::PolicyDenied { .. } => "stop: no continuation".to_owned(),
    }
}

fn listed<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}
