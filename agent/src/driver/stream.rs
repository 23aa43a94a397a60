//! One output stream as JSON lines: counts for the evidence, objects for the driver.

use std::borrow::Cow;

use super::evidence::Counts;
use super::json::{self, Fields};
use super::lines::{Line, Lines};
use super::skim::{Plan, Skimmer};

/// What a line that is not blank turned out to be.
pub(super) enum Item<'a, const N: usize> {
    /// A JSON object with its wanted fields; `overflow` when something that counts was too large to keep.
    Object { fields: Fields<'a, N>, overflow: bool },
    /// Anything else.
    Noise,
}

/// The reader of one stream.
pub(super) struct JsonStream<const N: usize> {
    keys: &'static [&'static str; N],
    lines: Lines,
    whole: Whole,
    counts: Counts,
}

/// The stream as one JSON text that spans several lines. Needed only if its first line is no object by itself.
enum Whole {
    /// Nothing but blank lines and the first line so far.
    Open(Box<Skimmer>),
    Excluded,
}

impl<const N: usize> JsonStream<N> {
    pub(super) fn new(keys: &'static [&'static str; N], plan: &'static Plan) -> Self {
        Self {
            keys,
            lines: Lines::new(plan),
            whole: Whole::Open(Box::new(Skimmer::new(plan))),
            counts: Counts::default(),
        }
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_, N>)) {
        if let Whole::Open(skimmer) = &mut self.whole {
            skimmer.feed(bytes);
            if skimmer.has_failed() {
                self.whole = Whole::Excluded;
            }
        }
        let Self { keys, lines, whole, counts } = self;
        lines.feed(bytes, &mut |line| judge(keys, line, counts, whole, each));
    }

    /// Ends the stream. Returns the object that spans the whole stream over several lines, if it is one.
    pub(super) fn finish(&mut self, each: &mut dyn FnMut(Item<'_, N>)) -> Option<String> {
        let Self { keys, lines, whole, counts } = self;
        lines.finish(&mut |line| judge(keys, line, counts, whole, each));
        match std::mem::replace(whole, Whole::Excluded) {
            Whole::Open(skimmer) => skimmer.finish().map(|skimmed| skimmed.text),
            Whole::Excluded => None,
        }
    }
}

fn judge<const N: usize>(
    keys: &'static [&'static str; N],
    line: Line<'_>,
    counts: &mut Counts,
    whole: &mut Whole,
    each: &mut dyn FnMut(Item<'_, N>),
) {
    let (text, overflow) = match line {
        Line::Whole(bytes) => (lossy(bytes), false),
        Line::Skimmed(skimmed) => (Cow::Owned(skimmed.text), skimmed.overflow),
        Line::LongNoise => (Cow::Borrowed("long"), false),
    };
    let text = crate::blank::trim(&text);
    if text.is_empty() {
        return;
    }
    counts.lines += 1;
    match json::object(text, keys) {
        Some(fields) => {
            counts.events += 1;
            *whole = Whole::Excluded;
            each(Item::Object { fields, overflow });
        }
        None => each(Item::Noise),
    }
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
