//! One stable way to write a sheet: `header: a -> b, c`, everything else kept in its place.

use super::{Issue, Line, Row, classify, lines, parse};

/// Formats a sheet. Comments, prose and blank lines stay as they are, without trailing white space; lines end with LF.
/// Attempts are kept as written, stale pins included: only the user rewrites a choice.
///
/// # Errors
/// The issues of a sheet that cannot be read.
pub fn format(text: &str) -> Result<String, Vec<Issue>> {
    let parsed = parse(text);
    if !parsed.issues.is_empty() {
        return Err(parsed.issues);
    }
    let mut rows = parsed.sheet.rows.iter();
    let mut out = String::with_capacity(text.len() + 1);
    for line in lines(text) {
        match (classify(line), line) {
            (Line::Row { .. }, _) => rows.next().into_iter().for_each(|row| write_row(&mut out, text, row)),
            (_, line) => out.push_str(line),
        }
        out.push('\n');
    }
    Ok(out)
}

fn write_row(out: &mut String, text: &str, row: &Row) {
    out.push_str(row.role.header);
    out.push(':');
    for (at, seat) in row.seats.iter().enumerate() {
        out.push_str(if at == 0 { " " } else { ", " });
        for (at, placed) in seat.attempts.iter().enumerate() {
            if at > 0 {
                out.push_str(" -> ");
            }
            out.push_str(placed.span.text(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_one_shape_and_everything_else_stays() {
        let text = "# budget: low \r\n\nprose\nbug-fix:auto->grok:g@high\nswarm workers:\tauto ,auto";
        let expected = "# budget: low\n\nprose\nbug-fix: auto -> grok:g@high\nswarm workers: auto, auto\n";
        assert_eq!(format(text).unwrap(), expected);
        assert_eq!(format(expected).unwrap(), expected);
    }

    #[test]
    fn a_stale_pin_is_left_to_the_user() {
        let text = "bug-fix: claude:claude-opus-4-1@max\n";
        assert_eq!(format(text).unwrap(), text);
    }

    #[test]
    fn a_broken_sheet_is_not_formatted() {
        assert_eq!(format("bug-fix: nope\n").unwrap_err().len(), 1);
    }
}
