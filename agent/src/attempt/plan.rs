//! What an attempt would do, known from its assignment alone: for its course, and for receipts of attempts that never
//! got that far.

use super::site;
use crate::assignment::Assignment;
use crate::driver::{self, Driver, InnerState, Lane};
use crate::receipt::PreflightReport;

/// The lane as its driver sees it; variables that the driver does not let through are gone. `None` without a driver.
#[must_use]
pub fn lane(assignment: &Assignment) -> Option<(&'static dyn Driver, Lane)> {
    let driver = driver::of(assignment.provider)?;
    let mut lane = Lane {
        parent: assignment.parent,
        provider: assignment.provider,
        model: assignment.model.clone(),
        effort: assignment.effort,
        mode: assignment.mode,
        contract: assignment.contract,
        api_spend: assignment.api_spend,
        cwd: assignment.paths.canonical.cwd.clone(),
        home: site::home(),
        receipt: assignment.paths.receipt.clone(),
        prompt: assignment.prompt.clone(),
        environment: assignment.environment.clone(),
    };
    lane.environment.retain(|name, _| driver.passes(name));
    Some((driver, lane))
}

/// What a receipt says of commands that were never resolved: bare names (runner 2.1, 2.4).
#[must_use]
pub fn unresolved(assignment: &Assignment) -> (PreflightReport, Vec<String>) {
    let Some((driver, lane)) = lane(assignment) else { return (PreflightReport::not_run(""), Vec::new()) };
    let name = driver.executable();
    let preflight = match driver.preflight(&lane, name) {
        Some(step) => PreflightReport { argv: step.argv, ..PreflightReport::not_run("") },
        None => PreflightReport::not_run(driver.preflight_not_run()),
    };
    (preflight, driver.workload(&lane, name, InnerState::Enforced).argv)
}

/// Structural evidence when no output was read (runner 2.6).
#[must_use]
pub fn nothing_seen() -> String {
    "stdout: 0 line(s), 0 JSON event(s); stderr: 0 line(s), 0 JSON event(s)".to_owned()
}
