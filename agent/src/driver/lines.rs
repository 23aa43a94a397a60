//! Cuts a stream into lines, whatever the chunks are, and remembers at most one line of bounded length.

use memchr::memchr;

use super::skim::{Plan, Skimmed, Skimmer};

/// Longest line that is handed over whole, in bytes; longer ones are skimmed as they come.
pub(super) const LINE_CAP: usize = 1 << 20;

/// One line without its end.
#[derive(Debug)]
pub(super) enum Line<'a> {
    Whole(&'a [u8]),
    /// A line over [`LINE_CAP`] that is a JSON object.
    Skimmed(Skimmed),
    /// A line over [`LINE_CAP`] that is none.
    LongNoise,
}

/// The cutter.
#[derive(Debug)]
pub(super) struct Lines {
    plan: &'static Plan,
    held: Vec<u8>,
    long: Option<Box<Skimmer>>,
}

impl Lines {
    pub(super) const fn new(plan: &'static Plan) -> Self {
        Self { plan, held: Vec::new(), long: None }
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], each: &mut dyn FnMut(Line<'_>)) {
        while let Some(at) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..at], &bytes[at + 1..]);
            if self.long.is_none() && self.held.is_empty() && line.len() <= LINE_CAP {
                each(Line::Whole(line));
            } else {
                self.hold(line);
                self.end_line(each);
            }
            bytes = rest;
        }
        self.hold(bytes);
    }

    /// Hands over a last line that has no end.
    pub(super) fn finish(&mut self, each: &mut dyn FnMut(Line<'_>)) {
        if self.long.is_some() || !self.held.is_empty() {
            self.end_line(each);
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        if let Some(long) = &mut self.long {
            long.feed(bytes);
        } else if self.held.len() + bytes.len() <= LINE_CAP {
            self.held.extend_from_slice(bytes);
        } else {
            let mut long = Box::new(Skimmer::new(self.plan));
            long.feed(&self.held);
            long.feed(bytes);
            self.held = Vec::new();
            self.long = Some(long);
        }
    }

    fn end_line(&mut self, each: &mut dyn FnMut(Line<'_>)) {
        match self.long.take() {
            Some(long) => each(long.finish().map_or(Line::LongNoise, Line::Skimmed)),
            None => {
                each(Line::Whole(&self.held));
                self.held.clear();
            }
        }
    }
}
