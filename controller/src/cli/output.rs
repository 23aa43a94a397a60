//! The only place that prints: data to stdout, talk to stderr. A closed pipe is the reader's choice, not an error.

use std::io::{self, IsTerminal as _, Write as _};

use agent::shuttle::Far;

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

/// Bytes on stdout, as they are.
///
/// # Errors
/// They cannot all be written: half of them would mislead.
pub fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
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
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

/// Talk for people, on stderr: silent where nobody reads it, but for what must not be missed.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    on: bool,
    insists: bool,
}

impl Talk {
    /// Says nothing.
    pub const SILENT: Self = Self { on: false, insists: false };

    /// Talks on a terminal, or where it was asked for; insists unless it shall be quiet.
    #[must_use]
    pub fn new(verbose: bool, quiet: bool) -> Self {
        Self { on: verbose || (!quiet && io::stderr().is_terminal()), insists: !quiet }
    }

    /// True if every line is said.
    #[must_use]
    pub const fn is_on(self) -> bool {
        self.on
    }

    /// Says one line.
    pub fn say(self, text: &str) {
        if self.on {
            line(text);
        }
    }

    /// Says one line that must not be missed, also where only a program reads along.
    pub fn insist(self, text: &str) {
        if self.on || self.insists {
            line(text);
        }
    }
}

/// How far something has come, on one line of a terminal that is written over and over. Clones share the line.
#[derive(Clone, Debug)]
pub struct Meter {
    label: &'static str,
    shown: Option<std::sync::Arc<std::sync::Mutex<Shown>>>,
}

#[derive(Debug, Default)]
struct Shown {
    at: Option<std::time::Instant>,
    anything: bool,
}

impl Meter {
    /// Shows itself where `talk` talks and stderr is a terminal.
    #[must_use]
    pub fn new(label: &'static str, talk: Talk) -> Self {
        let on = talk.on && io::stderr().is_terminal();
        Self { label, shown: on.then(std::sync::Arc::default) }
    }

    /// So far.
    pub fn show(&self, far: Far) {
        const EVERY: std::time::Duration = std::time::Duration::from_millis(200);
        let Some(shown) = &self.shown else { return };
        let mut shown = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let whole = matches!(far, Far::Bytes { done, total } if done >= total);
        if shown.at.is_some_and(|at| at.elapsed() < EVERY) && !whole {
            return;
        }
        (shown.at, shown.anything) = (Some(std::time::Instant::now()), true);
        let _ = write!(io::stderr().lock(), "\r\x1b[K{}: {far}", self.label);
    }

    /// Removes the line.
    pub fn clear(&self) {
        if let Some(shown) = &self.shown
            && std::mem::take(&mut shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner).anything)
        {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}
