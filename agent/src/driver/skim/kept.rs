//! The part of an object that is kept while the rest goes by, within its budgets.

use super::{ANSWER_CAP, INNER_BUDGET, NUMBER_CAP, STRING_CAP, TOTAL_BUDGET};

/// Output and budgets of one object.
#[derive(Debug, Default)]
pub(super) struct Kept {
    out: Vec<u8>,
    scalar: Scalar,
    /// Depth of the member that is left out with all that is in it.
    skipping: Option<usize>,
    /// Bytes written: of answers, of everything else, and of that what lies inside collections of a wanted value.
    answer: usize,
    other: usize,
    inner: usize,
    overflow: bool,
}

/// The string or number that is being read.
#[derive(Debug, Default)]
struct Scalar {
    /// Where it begins in the output, and how many bytes of it may be kept.
    from: usize,
    room: usize,
    answer: bool,
    cut: bool,
    /// Bytes read so far.
    length: usize,
}

/// What may be kept of a string or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Answer,
    Text,
    Number,
}

impl Kept {
    pub(super) const fn is_skipping(&self) -> bool {
        self.skipping.is_some()
    }

    /// A member begins at this depth: decides whether it is left out. False when the object cannot be kept at all.
    pub(super) fn member(&mut self, depth: usize, wanted: bool) -> bool {
        if self.skipping.is_some() {
            return true;
        }
        let full = self.other > TOTAL_BUDGET;
        let left_out = match depth {
            1 => !wanted,
            2 => full,
            _ => full || self.inner > INNER_BUDGET,
        };
        if left_out {
            self.skipping = Some(depth);
            self.overflow |= depth == 2;
        }
        left_out || self.other <= 2 * TOTAL_BUDGET
    }

    /// A value ended in a collection of this depth.
    pub(super) fn value_ended(&mut self, depth: usize) {
        if self.skipping == Some(depth) {
            self.skipping = None;
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8], depth: usize) {
        if self.skipping.is_none() {
            self.count(bytes.len(), depth);
            self.out.extend_from_slice(bytes);
        }
    }

    /// A string or number begins.
    pub(super) fn begin(&mut self, room: Room) {
        let bytes = match room {
            Room::Answer => ANSWER_CAP - self.answer,
            Room::Text => STRING_CAP,
            Room::Number => NUMBER_CAP,
        };
        self.scalar = Scalar { from: self.out.len(), room: bytes, answer: room == Room::Answer, cut: false, length: 0 };
    }

    /// Keeps plain bytes of the string or number, as far as there is room.
    pub(super) fn run(&mut self, run: &[u8]) {
        self.scalar.length += run.len();
        if self.scalar.cut || self.skipping.is_some() {
            return;
        }
        let room = self.scalar.room.saturating_sub(self.out.len() - self.scalar.from);
        self.scalar.cut = run.len() > room;
        self.out.extend_from_slice(&run[..run.len().min(room)]);
    }

    /// Keeps a byte of an escape sequence. Sequences are kept whole, so they may pass the cap by a few bytes.
    pub(super) fn escaped(&mut self, byte: u8, first: bool) {
        if first && self.out.len() - self.scalar.from >= self.scalar.room {
            self.scalar.cut = true;
        }
        self.scalar.length += 1;
        if !self.scalar.cut && self.skipping.is_none() {
            self.out.push(byte);
        }
    }

    pub(super) fn end_text(&mut self, depth: usize) {
        if self.skipping.is_some() {
            return;
        }
        if self.scalar.cut {
            self.overflow |= self.scalar.answer;
            trim_partial_character(&mut self.out, self.scalar.from);
            self.out.extend_from_slice(format!("… ({} bytes)", self.scalar.length).as_bytes());
        }
        self.account(depth);
        self.write(b"\"", depth);
    }

    pub(super) fn end_number(&mut self, depth: usize) {
        if self.skipping.is_some() {
            return;
        }
        if self.scalar.cut {
            self.out.truncate(self.scalar.from);
            self.out.extend_from_slice(b"null");
        }
        self.account(depth);
    }

    /// The kept text, and whether something that counts is missing.
    pub(super) fn finish(self) -> (String, bool) {
        let text =
            String::from_utf8(self.out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        (text, self.overflow)
    }

    fn account(&mut self, depth: usize) {
        let written = self.out.len() - self.scalar.from;
        if self.scalar.answer {
            self.answer = ANSWER_CAP.min(self.answer + written);
        } else {
            self.count(written, depth);
        }
    }

    fn count(&mut self, written: usize, depth: usize) {
        self.other += written;
        if depth >= 3 {
            self.inner += written;
        }
    }
}

/// Removes the beginning of a UTF-8 character whose rest was cut off.
fn trim_partial_character(out: &mut Vec<u8>, from: usize) {
    let tail = out.len().saturating_sub(3).max(from);
    let Some(lead) = (tail..out.len()).rev().find(|&at| out[at] & 0xc0 != 0x80) else { return };
    let width = match out[lead] {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    if lead + width > out.len() {
        out.truncate(lead);
    }
}
