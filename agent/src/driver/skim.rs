//! Reads one JSON object of any length as it comes and keeps a small object in its place: the wanted top-level keys,
//! long strings cut, large inner collections shortened. So a line of gigabytes is still judged as what it is.

mod kept; // what stays of an object

use self::kept::{Kept, Room};
use super::json;

/// Longest kept string that is not the answer, in bytes.
const STRING_CAP: usize = 64 << 10;
/// Longest final answer, in bytes of its JSON text. A larger one is refused, never cut.
pub(super) const ANSWER_CAP: usize = 16 << 20;
/// Bytes kept inside the collections of a wanted value; further members are left out.
const INNER_BUDGET: usize = 256 << 10;
/// Bytes kept in all beside the answer; more makes the object unusable.
const TOTAL_BUDGET: usize = 1 << 20;
const NUMBER_CAP: usize = 1_024;
const KEY_CAP: usize = 256;
const DEPTH_CAP: usize = 100_000;

/// What to keep of an object.
#[derive(Debug)]
pub(super) struct Plan {
    /// Top-level keys.
    pub keys: &'static [&'static str],
    /// Where the answer's text is.
    pub answer: &'static [&'static str],
}

/// A finished object.
#[derive(Debug)]
pub(super) struct Skimmed {
    /// The kept part, itself a JSON object.
    pub text: String,
    /// Something that counts was too large to keep: the answer, or the sum of the wanted values.
    pub overflow: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    Value,
    ValueOrEnd,
    KeyOrEnd,
    Key,
    Colon,
    CommaOrEnd,
    Text { key: bool },
    Escape { key: bool },
    Hex { key: bool, left: u8 },
    Number(Digits),
    Word { word: &'static [u8], at: usize },
    Done,
    Failed,
}

/// Place inside a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl Digits {
    const fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Zero | Self::Whole, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Whole | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::Sign,
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Self::Power,
            _ => return None,
        })
    }

    const fn complete(self) -> bool {
        matches!(self, Self::Zero | Self::Whole | Self::Fraction | Self::Power)
    }
}

/// An open collection.
#[derive(Clone, Copy, Debug)]
struct Level {
    object: bool,
    /// A member was written, so the next one needs a comma.
    written: bool,
}

/// The reader. Feed it until the object ends; it fails for good at the first byte that does not fit.
#[derive(Debug)]
pub(super) struct Skimmer {
    plan: &'static Plan,
    state: State,
    levels: Vec<Level>,
    /// Names of the members that the reader is in, of the first levels.
    path: [Vec<u8>; 2],
    key: Vec<u8>,
    kept: Kept,
}

impl Skimmer {
    pub(super) fn new(plan: &'static Plan) -> Self {
        Self {
            plan,
            state: State::Start,
            levels: Vec::new(),
            path: [Vec::new(), Vec::new()],
            key: Vec::new(),
            kept: Kept::default(),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// The object, if it is complete and nothing but white space follows it.
    pub(super) fn finish(self) -> Option<Skimmed> {
        (self.state == State::Done).then(|| {
            let (text, overflow) = self.kept.finish();
            Skimmed { text, overflow }
        })
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Failed => return,
                State::Text { key } => {
                    let rest = &bytes[at..];
                    let run = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\');
                    let run = run.unwrap_or(rest.len());
                    self.keep(key, &rest[..run]);
                    at += run;
                    if let Some(&byte) = bytes.get(at) {
                        self.leave_run(key, byte);
                        at += 1;
                    }
                }
                State::Number(digits) => match digits.next(bytes[at]) {
                    Some(next) => {
                        self.state = State::Number(next);
                        self.keep(false, &bytes[at..=at]);
                        at += 1;
                    }
                    None if digits.complete() => {
                        self.kept.end_number(self.levels.len());
                        self.end_value();
                    }
                    None => self.state = State::Failed,
                },
                _ => {
                    self.step(bytes[at]);
                    at += 1;
                }
            }
        }
    }

    fn step(&mut self, byte: u8) {
        let space = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        match self.state {
            State::Escape { key } => {
                self.state = match byte {
                    b'u' => State::Hex { key, left: 4 },
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => State::Text { key },
                    _ => State::Failed,
                };
                self.keep_escaped(key, byte, false);
            }
            State::Hex { key, left } => {
                self.state = match (byte.is_ascii_hexdigit(), left) {
                    (false, _) => State::Failed,
                    (true, 1) => State::Text { key },
                    (true, _) => State::Hex { key, left: left - 1 },
                };
                self.keep_escaped(key, byte, false);
            }
            State::Word { word, at } => {
                if word.get(at) != Some(&byte) {
                    self.state = State::Failed;
                } else if at + 1 == word.len() {
                    self.write(word);
                    self.end_value();
                } else {
                    self.state = State::Word { word, at: at + 1 };
                }
            }
            _ if space => {}
            State::Start if byte == b'{' => self.open(true),
            State::Value | State::ValueOrEnd => self.value(byte),
            State::KeyOrEnd if byte == b'}' => self.close(true),
            State::KeyOrEnd | State::Key if byte == b'"' => {
                self.key.clear();
                self.state = State::Text { key: true };
            }
            State::Colon if byte == b':' => self.state = State::Value,
            State::CommaOrEnd => match (byte, self.levels.last().is_some_and(|level| level.object)) {
                (b',', true) => self.state = State::Key,
                (b',', false) => self.state = State::Value,
                (b'}', true) | (b']', false) => self.close(byte == b'}'),
                _ => self.state = State::Failed,
            },
            _ => self.state = State::Failed,
        }
    }

    fn value(&mut self, byte: u8) {
        if byte == b']' && self.state == State::ValueOrEnd {
            return self.close(false);
        }
        if !self.begin_member() {
            self.state = State::Failed;
            return;
        }
        match byte {
            b'{' => self.open(true),
            b'[' => self.open(false),
            b'"' => {
                self.write(b"\"");
                self.kept.begin(if self.at_answer() { Room::Answer } else { Room::Text });
                self.state = State::Text { key: false };
            }
            b'-' | b'0'..=b'9' => {
                self.kept.begin(Room::Number);
                self.keep(false, &[byte]);
                self.state = State::Number(match byte {
                    b'-' => Digits::Minus,
                    b'0' => Digits::Zero,
                    _ => Digits::Whole,
                });
            }
            b't' => self.state = State::Word { word: b"true", at: 1 },
            b'f' => self.state = State::Word { word: b"false", at: 1 },
            b'n' => self.state = State::Word { word: b"null", at: 1 },
            _ => self.state = State::Failed,
        }
    }

    /// Decides whether the member that begins is kept, and writes its comma and key. False when nothing can be kept.
    fn begin_member(&mut self) -> bool {
        let depth = self.levels.len();
        let object = self.levels.last().is_some_and(|level| level.object);
        let wanted = depth > 1 || self.plan.keys.iter().any(|wanted| wanted.as_bytes() == self.key);
        if !self.kept.member(depth, wanted) {
            return false;
        }
        if object && let Some(name) = self.path.get_mut(depth - 1) {
            name.clone_from(&self.key);
        }
        if self.kept.is_skipping() {
            return true;
        }
        if let Some(level) = self.levels.last_mut()
            && std::mem::replace(&mut level.written, true)
        {
            self.write(b",");
        }
        if object {
            let key = serde_json::to_vec(&String::from_utf8_lossy(&self.key)).unwrap_or_default();
            self.write(&key);
            self.write(b":");
        }
        true
    }

    fn at_answer(&self) -> bool {
        let answer = self.plan.answer;
        answer.len() == self.levels.len()
            && self.levels.iter().all(|level| level.object)
            && answer.iter().zip(&self.path).all(|(wanted, name)| wanted.as_bytes() == name.as_slice())
    }

    fn open(&mut self, object: bool) {
        if self.levels.len() >= DEPTH_CAP {
            self.state = State::Failed;
            return;
        }
        self.write(if object { b"{" } else { b"[" });
        self.levels.push(Level { object, written: false });
        self.state = if object { State::KeyOrEnd } else { State::ValueOrEnd };
    }

    fn close(&mut self, object: bool) {
        self.levels.pop();
        self.write(if object { b"}" } else { b"]" });
        self.end_value();
    }

    fn end_value(&mut self) {
        self.kept.value_ended(self.levels.len());
        self.state = if self.levels.is_empty() { State::Done } else { State::CommaOrEnd };
    }

    /// A byte that ends a run of plain characters.
    fn leave_run(&mut self, key: bool, byte: u8) {
        match byte {
            b'\\' => {
                self.state = State::Escape { key };
                self.keep_escaped(key, byte, true);
            }
            b'"' if key => {
                self.resolve_key();
                self.state = State::Colon;
            }
            b'"' => {
                self.kept.end_text(self.levels.len());
                self.end_value();
            }
            _ => self.state = State::Failed,
        }
    }

    /// Resolves escapes of a key, so that it can be compared.
    fn resolve_key(&mut self) {
        if self.key.contains(&b'\\') {
            let quoted = format!("\"{}\"", String::from_utf8_lossy(&self.key));
            if let Some(text) = json::string(&quoted) {
                self.key = text.into_owned().into_bytes();
            }
        }
    }

    fn keep(&mut self, key: bool, run: &[u8]) {
        if key {
            let room = KEY_CAP.saturating_sub(self.key.len());
            self.key.extend_from_slice(&run[..run.len().min(room)]);
        } else {
            self.kept.run(run);
        }
    }

    fn keep_escaped(&mut self, key: bool, byte: u8, first: bool) {
        if !key {
            self.kept.escaped(byte, first);
        } else if self.key.len() < KEY_CAP {
            // A key that long is none of the wanted ones, so where it is cut does not matter.
            self.key.push(byte);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.kept.write(bytes, self.levels.len());
    }
}

#[cfg(test)]
mod tests;
