//! What a role's attempts mean for one parent: account, funding, route, authorization (policy-and-contract section 3).

use agent::descriptor::{ApiSpend, Effort, Parent, Provider};
use agent::route::definitions::{DefinitionError, NativeLanes};
use serde::{Serialize, Serializer};

use super::roles::RoleRow;
use super::sheet::{AccessFact, Attempt, Continuation, Descriptor, Issue, IssueKind, Placed, Row, Seat, Sheet};
use super::words::{ContinuationReason, FallbackReason, Funding, Provenance, Spend};

/// A role that the sheet configures, for one parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub role: &'static RoleRow,
    pub lanes: Vec<Lane>,
}

/// One seat of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lane {
    /// `<header>#<n>`, counted from 1.
    pub id: String,
    pub attempts: Vec<ResolvedAttempt>,
    /// Outcomes that advance, in declared order.
    pub fallback: Fallback,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continuation: Option<ContinuationPolicy>,
}

/// Outcomes after which the next attempt may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fallback {
    pub on: Vec<FallbackReason>,
}

/// Permission to run an attempt again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContinuationPolicy {
    pub on: Vec<ContinuationReason>,
    pub max_executions: u64,
}

/// An attempt with everything that the sheet and the parent say about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedAttempt {
    pub descriptor: String,
    pub attempt: Attempt,
    /// The account that runs out together: a descriptor's provider, an alias' parent.
    pub exhaustion_group: Provider,
    #[serde(serialize_with = "or_unset")]
    pub funding: Option<Funding>,
    pub api_spend: Spend,
    pub route: RouteKind,
    pub authorization: Authorization,
}

/// Who starts an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteKind {
    Native,
    External,
}

/// Whether the saved facts let an attempt start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Authorization {
    Allowed,
    Blocked { reason: String },
}

impl ResolvedAttempt {
    /// True when the attempt must not start.
    #[must_use]
    pub const fn blocked(&self) -> bool {
        matches!(self.authorization, Authorization::Blocked { .. })
    }
}

/// Why a role has no lanes.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The sheet breaks a rule for this role.
    #[error("{} issue(s) in the model sheet", .0.len())]
    Invalid(Vec<Issue>),
    /// The native lanes cannot be known.
    #[error(transparent)]
    Definitions(#[from] DefinitionError),
}

/// Resolves a role, as a row's header or a leaf role. `None`: a legacy sheet that says nothing about it.
///
/// # Errors
/// Ambiguous or missing roles of a policy-enabled sheet, all issues of the row, unreadable native lanes.
pub fn resolve(
    sheet: &Sheet,
    role: &str,
    parent: Parent,
    lanes: &NativeLanes,
) -> Result<Option<Resolved>, ResolveError> {
    let invalid = |kind| ResolveError::Invalid(vec![Issue::of_file(kind)]);
    match find(sheet, role) {
        Found::One(row) => {
            let mut issues = Vec::new();
            let resolved = resolve_row(sheet, row, parent, lanes, &mut issues)?;
            if issues.is_empty() { Ok(Some(resolved)) } else { Err(ResolveError::Invalid(issues)) }
        }
        Found::Several(headers) => Err(invalid(IssueKind::AmbiguousRole { role: role.to_owned(), headers })),
        Found::None if sheet.policy_enabled() => Err(invalid(IssueKind::NoRole { role: role.to_owned() })),
        Found::None => Ok(None),
    }
}

enum Found<'a> {
    None,
    One(&'a Row),
    Several(Vec<&'static str>),
}

/// A row whose header equals the text wins over rows that have it as a leaf role.
fn find<'a>(sheet: &'a Sheet, role: &str) -> Found<'a> {
    if let Some(row) = sheet.rows.iter().find(|row| row.role.header == role) {
        return Found::One(row);
    }
    let rows: Vec<&Row> = sheet.rows.iter().filter(|row| row.role.roles.contains(&role)).collect();
    match rows.as_slice() {
        [] => Found::None,
        [row] => Found::One(row),
        _ => Found::Several(rows.iter().map(|row| row.role.header).collect()),
    }
}

/// Resolves one row; what is wrong with it is added to `issues`.
///
/// # Errors
/// Unreadable native lanes.
pub(super) fn resolve_row(
    sheet: &Sheet,
    row: &Row,
    parent: Parent,
    lanes: &NativeLanes,
    issues: &mut Vec<Issue>,
) -> Result<Resolved, DefinitionError> {
    let resolver = Resolver { sheet, parent, lanes, policy_enabled: sheet.policy_enabled() };
    let mut resolved = Vec::with_capacity(row.seats.len());
    for (at, seat) in row.seats.iter().enumerate() {
        let id = format!("{}#{}", row.role.header, at + 1);
        resolved.push(resolver.lane(id, seat, issues)?);
    }
    Ok(Resolved { role: row.role, lanes: resolved })
}

struct Resolver<'a> {
    sheet: &'a Sheet,
    parent: Parent,
    lanes: &'a NativeLanes,
    policy_enabled: bool,
}

impl Resolver<'_> {
    fn lane(&self, id: String, seat: &Seat, issues: &mut Vec<Issue>) -> Result<Lane, DefinitionError> {
        let mut attempts: Vec<ResolvedAttempt> = Vec::with_capacity(seat.attempts.len());
        for placed in &seat.attempts {
            let attempt = self.attempt(&id, placed, issues)?;
            let provider = attempt.exhaustion_group;
            if attempts.iter().any(|other| other.exhaustion_group == provider) {
                issues.push(Issue::at(placed.span, IssueKind::SameAccount { lane: id.clone(), provider }));
            }
            attempts.push(attempt);
        }
        let on = self.sheet.fallback.clone().unwrap_or_else(|| vec![FallbackReason::UsageExhausted]);
        let continuation = self.sheet.continuation.clone().map(|Continuation { on, max_executions }| {
            ContinuationPolicy { on, max_executions } // the sheet's `max`
        });
        Ok(Lane { id, attempts, fallback: Fallback { on }, continuation })
    }

    fn attempt(
        &self,
        lane: &str,
        placed: &Placed,
        issues: &mut Vec<Issue>,
    ) -> Result<ResolvedAttempt, DefinitionError> {
        let group = placed.attempt.provider().unwrap_or_else(|| account_of(self.parent));
        let fact = self.sheet.fact(group);
        let descriptor = placed.attempt.to_string();
        if fact.is_none() && self.policy_enabled {
            issues.push(Issue::at(
                placed.span,
                IssueKind::NoAccessFact { lane: lane.to_owned(), provider: group, descriptor: descriptor.clone() },
            ));
        }
        Ok(ResolvedAttempt {
            descriptor,
            exhaustion_group: group,
            funding: fact.map(|fact| fact.funding),
            api_spend: fact.map_or(Spend::Unset, |fact| fact.api_spend.into()),
            route: self.route(&placed.attempt)?,
            authorization: authorize(group, fact),
            attempt: placed.attempt.clone(),
        })
    }

    fn route(&self, attempt: &Attempt) -> Result<RouteKind, DefinitionError> {
        let native = match attempt {
            Attempt::Alias { .. } => true,
            Attempt::Descriptor(Descriptor { provider, model, effort }) => {
                self.lanes.native(self.parent, *provider, model, *effort)?.is_some()
            }
        };
        Ok(if native { RouteKind::Native } else { RouteKind::External })
    }
}

/// The first rule that matches decides. Without a fact only a legacy sheet gets here without an issue.
fn authorize(provider: Provider, fact: Option<&AccessFact>) -> Authorization {
    let reason = match fact {
        // Antigravity has no legacy exemption: its spending choice must be saved (dispatch document).
        None if provider == Provider::Antigravity => {
            format!("provider {provider} has no saved apiSpend; every Antigravity attempt requires one")
        }
        None => return Authorization::Allowed,
        Some(fact) if fact.funding == Funding::Unknown => {
            format!("provider {provider} funding is unknown; unknown funding is not autoauthorized")
        }
        Some(fact) if fact.provenance != Provenance::User => format!(
            "provider {provider} access is provider-observed; funding and API spending require operator confirmation"
        ),
        Some(fact) if fact.funding == Funding::Metered && fact.api_spend != ApiSpend::Approved => {
            format!("provider {provider} funding is metered; metered routes require apiSpend \"approved\"")
        }
        Some(_) => return Authorization::Allowed,
    };
    Authorization::Blocked { reason }
}

/// The account that a parent's own model uses.
const fn account_of(parent: Parent) -> Provider {
    match parent {
        Parent::Claude => Provider::Claude,
        Parent::Codex => Provider::Codex,
    }
}

impl From<ApiSpend> for Spend {
    fn from(spend: ApiSpend) -> Self {
        match spend {
            ApiSpend::Deny => Self::Deny,
            ApiSpend::Approved => Self::Approved,
        }
    }
}

impl ResolvedAttempt {
    /// Model and effort of a descriptor; `None` for an alias.
    #[must_use]
    pub fn assignment(&self) -> Option<(Provider, &str, Effort)> {
        match &self.attempt {
            Attempt::Alias { .. } => None,
            Attempt::Descriptor(Descriptor { provider, model, effort }) => Some((*provider, model, *effort)),
        }
    }
}

fn or_unset<S: Serializer>(funding: &Option<Funding>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(funding.map_or("unset", Funding::as_str))
}
