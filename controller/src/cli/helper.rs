//! What the policy and the contract helper share as programs: flags, files, exit codes (policy-and-contract section 0).

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use agent::blank::trim;
use agent::descriptor::VocabularyError;

/// Usage errors, unreadable files, bad state, unexpected faults.
const EXIT_USAGE: u8 = 64;
/// A sheet, receipt, checkpoint or ledger breaks a rule.
const EXIT_RULE: u8 = 65;

/// Why a helper has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Exit 64: the message and the usage text.
    #[error("{0}")]
    Usage(String),
    /// Exit 65: a heading and one issue a line.
    #[error("{heading}")]
    Rules { heading: &'static str, issues: Vec<String> },
}

impl Fault {
    /// A fault whose text is the error's, with its causes.
    pub fn of(error: &dyn std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self::Usage(text)
    }
}

/// What a command prints, with the exit code of its success.
#[derive(Debug, Default)]
pub struct Answer {
    pub stdout: String,
    /// 0, or 65 for a report about something that is wrong.
    pub failed: bool,
}

impl From<String> for Answer {
    fn from(stdout: String) -> Self {
        Self { stdout, failed: false }
    }
}

/// Prints the answer or the fault and gives the exit code.
pub fn finish(result: Result<Answer, Fault>, usage: &str) -> ExitCode {
    let fault = match result {
        Ok(answer) => {
            let mut stdout = io::stdout().lock();
            match stdout.write_all(answer.stdout.as_bytes()).and_then(|()| stdout.flush()) {
                Ok(()) => return ExitCode::from(if answer.failed { EXIT_RULE } else { 0 }),
                Err(error) => Fault::Usage(format!("cannot write the answer: {error}")),
            }
        }
        Err(fault) => fault,
    };
    let (text, code) = match fault {
        Fault::Usage(message) => (format!("error: {message}\n\n{usage}"), EXIT_USAGE),
        Fault::Rules { heading, issues } => (format!("{heading}\n{}\n", issues.join("\n")), EXIT_RULE),
    };
    // Nobody is left to tell when stderr is gone, too; the code still says it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
    ExitCode::from(code)
}

/// The flags of one command, read in the order of its words.
#[derive(Debug)]
pub struct Flags<'a> {
    given: Vec<(&'static str, &'a OsStr)>,
}

impl<'a> Flags<'a> {
    /// Reads pairs of a known flag and its value. Words that begin with `--` are no values.
    ///
    /// # Errors
    /// The first unknown word, or a flag without value.
    pub fn read(words: &'a [OsString], known: &[&'static str]) -> Result<Self, Fault> {
        let mut given = Vec::with_capacity(words.len() / 2);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(flag) = known.iter().find(|flag| word == **flag) else {
                return Err(Fault::Usage(format!("unknown argument: {}", word.to_string_lossy())));
            };
            match words.next().filter(|value| !value.as_encoded_bytes().starts_with(b"--")) {
                Some(value) => given.push((*flag, value.as_os_str())),
                None => return Err(Fault::Usage(format!("{flag} needs a value"))),
            }
        }
        Ok(Self { given })
    }

    /// The value of a flag; the last one wins.
    #[must_use]
    pub fn get(&self, flag: &str) -> Option<&'a OsStr> {
        self.all(flag).last()
    }

    /// Every value of a flag, in order.
    pub fn all(&self, flag: &str) -> impl DoubleEndedIterator<Item = &'a OsStr> {
        self.given.iter().filter(move |(name, _)| *name == flag).map(|(_, value)| *value)
    }

    /// The value of a required flag.
    ///
    /// # Errors
    /// The flag is missing.
    pub fn need(&self, flag: &str) -> Result<&'a OsStr, Fault> {
        self.get(flag).ok_or_else(|| Fault::Usage(format!("{flag} is required")))
    }

    /// The text of a required flag; invalid bytes are replaced.
    ///
    /// # Errors
    /// The flag is missing.
    pub fn text(&self, flag: &str) -> Result<String, Fault> {
        self.need(flag).map(|value| value.to_string_lossy().into_owned())
    }

    /// A word of a vocabulary.
    ///
    /// # Errors
    /// The flag is missing or its value unknown.
    pub fn word<T: FromStr<Err = VocabularyError>>(&self, flag: &str) -> Result<T, Fault> {
        parse_word(flag, &self.text(flag)?)
    }

    /// A word of a vocabulary, or the default without the flag.
    ///
    /// # Errors
    /// The value is unknown.
    pub fn word_or<T: FromStr<Err = VocabularyError>>(&self, flag: &str, default: T) -> Result<T, Fault> {
        if self.get(flag).is_none() { Ok(default) } else { self.word(flag) }
    }

    /// A zero-based index, 0 without the flag.
    ///
    /// # Errors
    /// The value is no nonnegative integer.
    pub fn index(&self, flag: &str) -> Result<u64, Fault> {
        let Some(value) = self.get(flag) else { return Ok(0) };
        let text = value.to_string_lossy();
        index(&text).ok_or_else(|| Fault::Usage(format!("{flag} must be a nonnegative integer, not \"{text}\"")))
    }
}

fn parse_word<T: FromStr<Err = VocabularyError>>(flag: &str, text: &str) -> Result<T, Fault> {
    text.parse().map_err(|error: VocabularyError| {
        Fault::Usage(format!("{flag} must be one of: {}; not \"{text}\"", error.allowed.join(", ")))
    })
}

/// A nonnegative integer in any of the spellings that a number has: `01`, `1.0`, `0x1`, `1e0`, blank for 0 (section 12).
fn index(text: &str) -> Option<u64> {
    let text = trim(text);
    if text.is_empty() {
        return Some(0);
    }
    let radix = |prefix: [&str; 2]| prefix.into_iter().find_map(|prefix| text.strip_prefix(prefix));
    let based = [(["0x", "0X"], 16), (["0o", "0O"], 8), (["0b", "0B"], 2)];
    if let Some((digits, base)) = based.into_iter().find_map(|(prefix, base)| Some((radix(prefix)?, base))) {
        return if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, base).ok() };
    }
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number: f64 = if plain { text.parse().ok()? } else { return None };
    // Beyond 2^53 neighbouring integers are the same number; no lane has so many seats.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a small whole number")]
    (number.fract() == 0.0 && (0.0..=9_007_199_254_740_991.0).contains(&number)).then_some(number as u64)
}

/// Reads a file as text: invalid bytes become U+FFFD, a byte-order mark stays.
///
/// # Errors
/// The file cannot be read.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = std::fs::read(path)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Like [`read_text`], with `None` for a file that is not there.
///
/// # Errors
/// The file is there, or its place is none, and it cannot be read.
pub fn read_text_if_present(path: impl AsRef<Path>) -> io::Result<Option<String>> {
    match read_text(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// The fault of a file that cannot be read.
#[must_use]
pub fn unreadable(what: &str, path: &OsStr, error: &io::Error) -> Fault {
    Fault::Usage(format!("cannot read {what} {}: {error}", path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_has_the_spellings_of_a_number() {
        for (text, expected) in
            [("0", 0), ("01", 1), ("1.0", 1), ("0x1F", 31), ("1e1", 10), ("", 0), (" 2 ", 2), ("+3", 3), ("-0", 0)]
        {
            assert_eq!(index(text), Some(expected), "{text:?}");
        }
        for text in ["-1", "x", "1.5", "1,0", "inf", "NaN", "1 2", "0x", "1e400", "--", "0x-1"] {
            assert_eq!(index(text), None, "{text:?}");
        }
    }

    #[test]
    fn flags_are_pairs_and_the_last_one_wins() {
        let words: Vec<OsString> = ["--a", "1", "--b", "", "--a", "-2"].map(OsString::from).into();
        let flags = Flags::read(&words, &["--a", "--b"]).unwrap();
        assert_eq!(flags.get("--a"), Some(OsStr::new("-2")));
        assert_eq!(flags.get("--b"), Some(OsStr::new("")));
        for words in [&["x"][..], &["--c", "1"], &["--a"], &["--a", "--b"], &["--a=1"], &["--help"]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert!(Flags::read(&words, &["--a", "--b"]).is_err(), "{words:?}");
        }
    }
}
