//! Issues for people: file, line, column, the line itself, and what was probably meant.

use crate::policy::sheet::span::Position;
use crate::policy::sheet::{Issue, Span};

/// One line an issue: `<file>:<line>:<column>: <issue>`, the file alone for what is missing as a whole.
pub(super) fn located(file: &str, text: &str, issues: &[Issue]) -> Vec<String> {
    let index = LineIndex::of(text);
    let place = |issue: &Issue| issue.span.map(|span| format!("{}:", index.position(text, span))).unwrap_or_default();
    issues.iter().map(|issue| format!("{file}:{} {issue}", place(issue))).collect()
}

/// Starts of all lines, so that each position costs a search and not a scan.
pub(super) struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    pub(super) fn of(text: &str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { starts }
    }

    pub(super) fn position(&self, text: &str, span: Span) -> Position {
        let line = self.starts.partition_point(|start| *start <= span.start).saturating_sub(1);
        let before = text.get(self.starts[line]..span.start).unwrap_or_default();
        Position { line: line + 1, column: before.chars().count() + 1 }
    }

    /// The text of a line, counted from 1.
    pub(super) fn line<'a>(&self, text: &'a str, line: usize) -> &'a str {
        let start = self.starts.get(line - 1).copied().unwrap_or(text.len());
        text[start..].lines().next().unwrap_or_default()
    }
}
