//! The 15 role rows of a sheet (policy-and-contract 2.2).

/// How many seats a row takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seats {
    /// Exactly one.
    One,
    /// A panel of at least so many.
    AtLeast(usize),
}

/// One documented row.
#[derive(Debug, PartialEq, Eq)]
pub struct RoleRow {
    /// Text before the colon; may hold commas.
    pub header: &'static str,
    /// Roles that a caller may ask for.
    pub roles: &'static [&'static str],
    pub seats: Seats,
    /// The row needs the parent's live MCP surface: aliases only.
    pub native_only: bool,
}

const fn row(header: &'static str, roles: &'static [&'static str], seats: Seats, native_only: bool) -> RoleRow {
    RoleRow { header, roles, seats, native_only }
}

/// All rows in documented order.
pub static ROLE_ROWS: [RoleRow; 15] = [
    row("feature, refactoring", &["feature", "refactoring"], Seats::One, false),
    row("bug-fix", &["bug-fix"], Seats::One, false),
    row("perf-issue", &["perf-issue"], Seats::One, false),
    row("hillclimb", &["hillclimb"], Seats::One, false),
    row("judgment and prose", &["judgment and prose"], Seats::One, false),
    row("hardest tasks", &["hardest tasks"], Seats::One, false),
    row("how explorer", &["how explorer"], Seats::One, false),
    row("how explainer", &["how explainer"], Seats::One, false),
    row("why investigators, synthesizer", &["why investigators", "synthesizer"], Seats::One, true),
    row(
        "reflect tooling, judgment, divergent, synthesizer",
        &["reflect tooling", "judgment", "divergent", "synthesizer"],
        Seats::One,
        true,
    ),
    row("arena runners", &["arena runners"], Seats::AtLeast(1), false),
    row("arena cross-judge pool", &["arena cross-judge pool"], Seats::AtLeast(1), false),
    row("swarm workers", &["swarm workers"], Seats::AtLeast(1), false),
    row("architect runners", &["architect runners"], Seats::AtLeast(2), false),
    row("interrogate reviewers", &["interrogate reviewers"], Seats::AtLeast(1), false),
];

/// The row that a line opens: a header and, at once, a colon. The longest header wins.
#[must_use]
pub fn opened_by(line: &str) -> Option<&'static RoleRow> {
    ROLE_ROWS
        .iter()
        .filter(|row| line.strip_prefix(row.header).is_some_and(|rest| rest.starts_with(':')))
        .max_by_key(|row| row.header.len())
}
