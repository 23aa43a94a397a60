//! The only place that prints: data to stdout, talk to stderr. A closed pipe is the reader's choice, not an error.

use std::io::{self, IsTerminal as _, Write as _};

/// One line of data on stdout.
pub fn data(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Text on stdout, as it is.
pub fn raw(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// One line on stderr.
pub fn line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A failure of a command: what happened, with its causes.
pub fn failure(error: &dyn std::error::Error) {
    line(&format!("error: {}", chain(error)));
}

/// An error and its causes on one line, without saying anything twice.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

/// Talk for people, on stderr: silent where nobody reads it.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    on: bool,
}

impl Talk {
    /// Says nothing.
    pub const SILENT: Self = Self { on: false };

    /// Talks on a terminal, or where it was asked for.
    #[must_use]
    pub fn new(verbose: bool, quiet: bool) -> Self {
        Self { on: verbose || (!quiet && io::stderr().is_terminal()) }
    }

    /// Says one line.
    pub fn say(self, text: &str) {
        if self.on {
            line(text);
        }
    }
}
