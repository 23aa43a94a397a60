//! The right-hand side of a role row: seats and their attempts (policy-and-contract 2.3).

use agent::blank::trim;

use super::{Attempt, Issue, IssueKind, Placed, Seat, Span};
use crate::policy::roles::{RoleRow, Seats};

const MAX_ATTEMPTS: usize = 3;

/// Reads all seats of a row; what is wrong goes to `issues`, what is right is kept.
pub(super) fn read(text: &str, role: &'static RoleRow, right: &str, line: Span, issues: &mut Vec<Issue>) -> Vec<Seat> {
    let mut reader = Reader { text, role, issues };
    if right.is_empty() {
        reader.issue(line, IssueKind::NoAttempts);
        return Vec::new();
    }
    let pieces: Vec<&str> = right.split(',').map(trim).collect();
    if role.seats == Seats::One && pieces.len() != 1 {
        reader.issue(Span::of(text, right), IssueKind::NotOneSeat { found: pieces.len() });
    }
    pieces.into_iter().filter_map(|piece| reader.seat(piece)).collect()
}

struct Reader<'a> {
    text: &'a str,
    role: &'static RoleRow,
    issues: &'a mut Vec<Issue>,
}

impl Reader<'_> {
    fn issue(&mut self, span: Span, kind: IssueKind) {
        self.issues.push(Issue::at(span, kind.in_row(self.role.header)));
    }

    fn seat(&mut self, piece: &str) -> Option<Seat> {
        let span = Span::of(self.text, piece);
        if piece.is_empty() {
            self.issue(span, IssueKind::EmptySeat);
            return None;
        }
        let parts = attempts_of(piece);
        if parts.iter().any(|part| part.is_empty()) {
            self.issue(span, IssueKind::EmptyAttempt { seat: piece.to_owned() });
            return None;
        }
        if parts.len() > MAX_ATTEMPTS {
            self.issue(span, IssueKind::TooManyAttempts { count: parts.len() });
        }
        let mut attempts = Vec::with_capacity(parts.len());
        attempts.extend(parts.into_iter().filter_map(|part| self.attempt(part)));
        self.repetitions(&attempts, span);
        Some(Seat { attempts, span })
    }

    fn attempt(&mut self, part: &str) -> Option<Placed> {
        let span = Span::of(self.text, part);
        match Attempt::read(part) {
            Ok(attempt) => {
                if self.role.native_only && attempt.provider().is_some() {
                    self.issue(span, IssueKind::AliasesOnly { text: part.to_owned() });
                }
                Some(Placed { attempt, span })
            }
            Err(kind) => {
                self.issue(span, kind);
                None
            }
        }
    }

    /// A second attempt on one account cannot recover exhausted capacity.
    fn repetitions(&mut self, attempts: &[Placed], seat: Span) {
        for (at, placed) in attempts.iter().enumerate() {
            let earlier = &attempts[..at];
            if earlier.iter().any(|other| other.attempt == placed.attempt) {
                self.issue(placed.span, IssueKind::DuplicateAttempt { text: placed.attempt.to_string() });
            }
            if let Some(provider) = placed.attempt.provider()
                && earlier.iter().any(|other| other.attempt.provider() == Some(provider))
            {
                self.issue(placed.span, IssueKind::RepeatsProvider { provider });
            }
        }
        let count = attempts.iter().filter(|placed| placed.attempt.provider().is_none()).count();
        if count > 1 {
            self.issue(seat, IssueKind::TooManyAliases { count });
        }
    }
}

/// The trimmed texts between the arrows. A sheet may have thousands of seats: a search for one byte is much cheaper.
fn attempts_of(seat: &str) -> Vec<&str> {
    let mut parts = Vec::with_capacity(MAX_ATTEMPTS);
    let mut start = 0;
    for (at, _) in seat.match_indices('>') {
        if at > start && seat.as_bytes()[at - 1] == b'-' {
            parts.push(trim(&seat[start..at - 1]));
            start = at + 1;
        }
    }
    parts.push(trim(&seat[start..]));
    parts
}

#[cfg(test)]
mod tests {
    use crate::policy::sheet::parse;

    #[track_caller]
    fn check(text: &str, fragments: &[&str]) {
        let issues: Vec<String> = parse(text).issues.iter().map(ToString::to_string).collect();
        assert_eq!(issues.len(), fragments.len(), "{text}: {issues:#?}");
        for fragment in fragments {
            assert!(issues.iter().any(|issue| issue.contains(fragment)), "{text}: no {fragment:?} in {issues:#?}");
        }
    }

    #[test]
    fn seats_and_attempts_split_with_or_without_blanks() {
        let parsed = parse("swarm workers: auto,grok:g@high->auto ,  auto");
        let chains: Vec<Vec<String>> = parsed.sheet.rows[0]
            .seats
            .iter()
            .map(|seat| seat.attempts.iter().map(|placed| placed.attempt.to_string()).collect())
            .collect();
        assert_eq!(chains, [vec!["auto"], vec!["grok:g@high", "auto"], vec!["auto"]]);
        assert!(parsed.issues.is_empty());
    }

    #[test]
    fn arrows_split_like_text_does() {
        for seat in ["", "a", "->", "a->b", "->>", "a>b", "-->-", "a - > b", "a->->b", "é->é", ">->"] {
            let expected: Vec<&str> = seat.split("->").map(super::trim).collect();
            assert_eq!(super::attempts_of(seat), expected, "{seat}");
        }
    }

    #[test]
    fn broken_seats_are_named() {
        check("swarm workers:", &["no attempts"]);
        check("swarm workers: auto,,auto", &["empty seat"]);
        check("swarm workers: ,auto,", &["empty seat", "empty seat"]);
        check("swarm workers: auto ->", &["empty attempt in seat \"auto ->\""]);
        check("swarm workers: auto -> nope ->", &["empty attempt"]);
        check("bug-fix: auto, auto", &["exactly one seat, found 2"]);
    }

    #[test]
    fn chains_are_short_and_never_use_an_account_twice() {
        check("swarm workers: grok:a@high -> devin:b@default -> codex:c@low -> claude:d@low", &["maximum is 3"]);
        check("swarm workers: grok:a@high -> grok:b@high", &["repeats provider grok"]);
        check("swarm workers: grok:a@high -> grok:a@high", &["repeats provider", "duplicate attempt"]);
        check("swarm workers: auto -> inherit-parent", &["parent aliases"]);
        check("swarm workers: auto -> auto", &["parent aliases", "duplicate attempt"]);
        check("why investigators, synthesizer: auto -> grok:a@high", &["live MCP surface"]);
    }
}
