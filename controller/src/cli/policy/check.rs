//! `laneyard policy check`: every finding of a sheet with its place and what was probably meant.

use std::ffi::OsString;
use std::fmt::Write;

use agent::descriptor::Parent;

use super::human::LineIndex;
use super::{SheetFile, Style, native_lanes};
use crate::cli::helper::{Answer, Fault, Flags};
use crate::policy::resolve::ResolveError;
use crate::policy::sheet::{Issue, Parsed, Span, parse};
use crate::policy::suggest::suggest;
use crate::policy::validate::{completeness, validate};

pub(super) fn run(words: &[OsString]) -> Result<Answer, Fault> {
    let flags = Flags::read(words, &["--sheet", "--parent"])?;
    let path = flags.need("--sheet")?;
    let parent: Option<Parent> = flags.get("--parent").map(|_| flags.word("--parent")).transpose()?;
    let file = SheetFile::open_present(path, Style::Human)?;
    let Parsed { sheet, mut issues } = parse(&file.text);
    match parent {
        // What a parent lacks can only be told of a sheet that can be read.
        Some(parent) if issues.is_empty() => match validate(&sheet, parent, &native_lanes()) {
            Ok(_) => {}
            Err(ResolveError::Invalid(found)) => issues = found,
            Err(error @ ResolveError::Definitions(_)) => return Err(file.unresolved(error)),
        },
        _ => completeness(&sheet, &mut issues),
    }
    issues.sort_by_key(|issue| issue.span.map_or(usize::MAX, |span| span.start));
    issues.dedup();
    let mut report = Report {
        file: &path.to_string_lossy(),
        text: &file.text,
        index: LineIndex::of(&file.text),
        out: String::new(),
    };
    issues.iter().for_each(|issue| report.issue(issue));
    for placed in sheet.rows.iter().flat_map(|row| &row.seats).flat_map(|seat| &seat.attempts) {
        let (written, read) = (placed.span.text(&file.text), placed.attempt.to_string());
        if written != read {
            let message = format!("\"{written}\" is a stale pin and is read as {read}; setup will rewrite it");
            report.finding("note", Some(placed.span), &message, None);
        }
    }
    let count = issues.len();
    let end = if count == 0 { "no issues".to_owned() } else { format!("{count} issue(s)") };
    Ok(Answer { stdout: format!("{}{}: {end}\n", report.out, report.file), failed: count > 0 })
}

struct Report<'a> {
    file: &'a str,
    text: &'a str,
    index: LineIndex,
    out: String,
}

impl Report<'_> {
    fn issue(&mut self, issue: &Issue) {
        self.finding("error", issue.span, &issue.to_string(), suggest(&issue.kind).as_deref());
    }

    fn finding(&mut self, level: &str, span: Option<Span>, message: &str, meant: Option<&str>) {
        // Writing to a string cannot fail.
        let _ = self.write(level, span, message, meant);
    }

    fn write(&mut self, level: &str, span: Option<Span>, message: &str, meant: Option<&str>) -> std::fmt::Result {
        let (file, out) = (self.file, &mut self.out);
        match span {
            None => writeln!(out, "{file}: {level}: {message}")?,
            Some(span) => {
                let place = self.index.position(self.text, span);
                let line = self.index.line(self.text, place.line);
                let before: String =
                    line.chars().take(place.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
                let width = span.text(self.text).chars().count().max(1);
                writeln!(out, "{file}:{place}: {level}: {message}")?;
                writeln!(out, "  | {line}\n  | {before}{}", "^".repeat(width))?;
            }
        }
        match meant {
            Some(meant) => writeln!(out, "  = did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}
