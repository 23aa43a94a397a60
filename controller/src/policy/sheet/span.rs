//! Places in a sheet's text.

/// A range of bytes of the text, both ends on character boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    /// The range of `part`, which must be a slice of `text`.
    #[must_use]
    pub fn of(text: &str, part: &str) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
        Self { start, end: (start + part.len()).min(text.len()) }
    }

    /// The text of the range; empty when the span belongs to another text.
    #[must_use]
    pub fn text(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }

    /// Line and column of the start, both counted from 1, the column in characters.
    #[must_use]
    pub fn position(self, text: &str) -> Position {
        let before = text.get(..self.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Position {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// Where a person looks for a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "é b\nxy z";
        assert_eq!(Span::of(text, &text[3..4]).position(text), Position { line: 1, column: 3 });
        assert_eq!(Span::of(text, &text[8..]).position(text), Position { line: 2, column: 4 });
        assert_eq!(Span::of(text, &text[8..]).text(text), "z");
    }
}
