//! The model sheet: a parser with spans that finds all issues of a file at once (policy-and-contract section 2).
//! Knows nothing of parents, files or decisions.

pub mod attempt;
pub mod format;
pub mod issue;
mod metadata;
mod row;
pub mod span;

pub use attempt::{Attempt, Descriptor};
pub use issue::{Issue, IssueKind};
pub use metadata::{AccessFact, Continuation};
pub use span::Span;

use agent::blank::{is_blank_char, trim};
use agent::descriptor::Provider;

use super::roles::{self, RoleRow};
use super::words::FallbackReason;

/// A sheet as written: rows in file order, metadata from anywhere in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    pub rows: Vec<Row>,
    /// At most one fact a provider.
    pub access: Vec<AccessFact>,
    /// `None` when the sheet declares nothing; an empty list is a declaration.
    pub fallback: Option<Vec<FallbackReason>>,
    pub continuation: Option<Continuation>,
    /// Free text, the last one of the file.
    pub budget: Option<String>,
}

/// One role row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub role: &'static RoleRow,
    pub span: Span,
    pub seats: Vec<Seat>,
}

/// The ordered attempts of one seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub attempts: Vec<Placed>,
    pub span: Span,
}

/// An attempt and the text it was read from, which may be a stale pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub attempt: Attempt,
    pub span: Span,
}

/// What a parse found: as much of the sheet as could be read, and everything that is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    pub sheet: Sheet,
    pub issues: Vec<Issue>,
}

impl Sheet {
    /// Reads a sheet.
    ///
    /// # Errors
    /// All issues of the text, in the order in which they stand.
    pub fn read(text: &str) -> Result<Self, Vec<Issue>> {
        let parsed = parse(text);
        if parsed.issues.is_empty() { Ok(parsed.sheet) } else { Err(parsed.issues) }
    }

    /// True when the sheet holds saved permissions, so that a missing role must not fall back to a default (section 3).
    #[must_use]
    pub fn policy_enabled(&self) -> bool {
        !self.access.is_empty()
            || self.fallback.is_some()
            || self.continuation.is_some()
            || self.rows.iter().flat_map(|row| &row.seats).any(|seat| seat.attempts.len() > 1)
    }

    /// The access fact of a provider's account.
    #[must_use]
    pub fn fact(&self, provider: Provider) -> Option<&AccessFact> {
        self.access.iter().find(|fact| fact.provider == provider)
    }
}

/// What one line of a sheet is (section 2.1). The slices are without trailing white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Blank,
    /// From its `#` on.
    Comment(&'a str),
    Row {
        role: &'static RoleRow,
        right: &'a str,
    },
    /// Text before a colon that opens no documented row.
    UnknownRow(&'a str),
    Prose,
}

/// The lines of a text, split on LF or CRLF; one empty piece at the end is the final newline.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    (!text.is_empty()).then(|| body.split('\n')).into_iter().flatten().map(|line| line.trim_end_matches(is_blank_char))
}

/// Says what a line is, by the rules of section 2.1 in their order.
#[must_use]
pub fn classify(line: &str) -> Line<'_> {
    if line.is_empty() {
        return Line::Blank;
    }
    if line.starts_with('#') {
        return Line::Comment(line);
    }
    if let Some(role) = roles::opened_by(line) {
        return Line::Row { role, right: trim(&line[role.header.len() + 1..]) };
    }
    if let Some(header) = before_boundary(line) {
        return Line::UnknownRow(header);
    }
    let text = trim(line);
    if text.starts_with('#') { Line::Comment(text) } else { Line::Prose }
}

/// The trimmed text before the first colon that space, tab or the end of the line follows.
fn before_boundary(line: &str) -> Option<&str> {
    let boundary = |at: &usize| matches!(line.as_bytes().get(at + 1), None | Some(b' ' | b'\t'));
    line.match_indices(':').map(|(at, _)| at).find(boundary).map(|at| trim(&line[..at]))
}

/// Reads the whole text; never fails, however broken the text is.
#[must_use]
pub fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut seen = metadata::Seen::default();
    for line in lines(text) {
        match classify(line) {
            Line::Blank | Line::Prose => {}
            Line::Comment(comment) => metadata::collect(text, comment, &mut parsed, &mut seen),
            Line::Row { role, right } => {
                let span = Span::of(text, line);
                if parsed.sheet.rows.iter().any(|row| row.role == role) {
                    parsed.issues.push(Issue::at(span, IssueKind::DuplicateRow { header: role.header }));
                }
                let seats = row::read(text, role, right, span, &mut parsed.issues);
                parsed.sheet.rows.push(Row { role, span, seats });
            }
            Line::UnknownRow(header) => {
                let kind = IssueKind::UnknownHeader { text: header.to_owned() };
                parsed.issues.push(Issue::at(Span::of(text, header), kind));
            }
        }
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn issues(text: &str) -> String {
        parse(text).issues.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn lines_are_told_apart_by_their_start_and_their_first_boundary_colon() {
        assert_eq!(classify(""), Line::Blank);
        assert_eq!(classify("# a: b"), Line::Comment("# a: b"));
        assert_eq!(classify("  # a:b"), Line::Comment("# a:b"));
        assert_eq!(classify("  # a: b"), Line::UnknownRow("# a"));
        assert_eq!(classify("see https://x"), Line::Prose);
        assert_eq!(classify("who knows :"), Line::UnknownRow("who knows"));
        assert!(matches!(classify("bug-fix:auto"), Line::Row { right: "auto", .. }));
        assert!(matches!(classify("why investigators, synthesizer:\tauto"), Line::Row { right: "auto", .. }));
        assert_eq!(classify(" bug-fix: auto"), Line::UnknownRow("bug-fix"));
        assert_eq!(classify("synthesizer: auto"), Line::UnknownRow("synthesizer"));
        assert_eq!(classify("\u{feff}# budget: x"), Line::UnknownRow("# budget"));
    }

    #[test]
    fn an_empty_text_has_no_line_and_a_final_newline_adds_none() {
        assert_eq!(lines("").count(), 0);
        assert_eq!(lines("a\r\n\r\nb \t\n").collect::<Vec<_>>(), ["a", "", "b"]);
    }

    #[test]
    fn all_issues_of_a_file_are_reported_together() {
        let text = "mystery: auto\nbug-fix: nope, auto\nbug-fix: auto\n# fallback: {\"on\":1}\n";
        let found = issues(text);
        assert_eq!(found.lines().count(), 5, "{found}");
        for part in
            ["unknown role row header \"mystery\"", "exactly one seat, found 2", "\"nope\"", "duplicate role row"]
        {
            assert!(found.contains(part), "{part}: {found}");
        }
    }

    #[test]
    fn an_issue_points_at_the_text_it_is_about() {
        let text = "# hi\nswarm workers: auto, grok:g@huge\n";
        let issue = parse(text).issues.remove(0);
        assert_eq!(issue.span.map(|span| span.text(text)), Some("grok:g@huge"));
        assert_eq!(issue.span.map(|span| span.position(text).to_string()).as_deref(), Some("2:22"));
    }

    #[test]
    fn metadata_makes_a_sheet_policy_enabled_and_an_empty_list_counts() {
        assert!(!Sheet::read("bug-fix: auto\n# budget: low\n").unwrap().policy_enabled());
        let sheet = Sheet::read("bug-fix: auto\n# fallback: {\"on\":[]}").unwrap();
        assert!(sheet.policy_enabled() && sheet.fallback == Some(vec![]));
        assert!(Sheet::read("bug-fix: auto -> grok:g@high").unwrap().policy_enabled());
    }
}
