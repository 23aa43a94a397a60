//! Is a sheet fit to be saved for a parent: complete, and every attempt authorized (policy-and-contract 4.1).

use agent::descriptor::Parent;
use agent::route::definitions::NativeLanes;

use super::resolve::{Authorization, ResolveError, resolve_row};
use super::roles::{ROLE_ROWS, Seats};
use super::sheet::{Issue, IssueKind, Sheet};

/// Checks a readable sheet and counts its rows.
///
/// # Errors
/// All findings in one list; unreadable native lanes.
pub fn validate(sheet: &Sheet, parent: Parent, lanes: &NativeLanes) -> Result<usize, ResolveError> {
    let mut issues = Vec::new();
    completeness(sheet, &mut issues);
    for row in &sheet.rows {
        let resolved = resolve_row(sheet, row, parent, lanes, &mut issues)?;
        for (lane, seat) in resolved.lanes.iter().zip(&row.seats) {
            for (attempt, placed) in lane.attempts.iter().zip(&seat.attempts) {
                if let Authorization::Blocked { reason } = &attempt.authorization {
                    let kind = IssueKind::NotAuthorized {
                        lane: lane.id.clone(),
                        descriptor: attempt.descriptor.clone(),
                        reason: reason.clone(),
                    };
                    issues.push(Issue::at(placed.span, kind));
                }
            }
        }
    }
    if issues.is_empty() { Ok(sheet.rows.len()) } else { Err(ResolveError::Invalid(issues)) }
}

/// What a sheet lacks as a whole, whoever the parent is.
pub fn completeness(sheet: &Sheet, issues: &mut Vec<Issue>) {
    if sheet.access.is_empty() {
        issues.push(Issue::of_file(IssueKind::NoAccessFacts));
    }
    for role in &ROLE_ROWS {
        let Some(row) = sheet.rows.iter().find(|row| row.role == role) else {
            issues.push(Issue::of_file(IssueKind::MissingRow { header: role.header }));
            continue;
        };
        let found = row.seats.len();
        let problem = match role.seats {
            Seats::AtLeast(least) if found < least => IssueKind::TooFewSeats { least, found },
            Seats::One if found != 1 => IssueKind::NotOneSeat { found },
            Seats::AtLeast(_) | Seats::One => continue,
        };
        issues.push(Issue::at(row.span, problem.in_row(role.header)));
    }
}
