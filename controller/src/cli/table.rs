//! Plain tables for people.

/// Columns padded to their widest cell, two blanks apart, indented by four.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    padded("    ", rows)
}

/// Columns padded to their widest cell, two blanks apart. No line ends with a blank.
#[must_use]
pub fn columns(rows: &[Vec<String>]) -> String {
    padded("", rows)
}

fn padded(indent: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = indent.to_owned();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
