//! Splits words into flags as strictly as the runner does (runner 1.2): no positional words, no unknown or ambiguous
//! options, the last of a repeated flag counts. What the values mean is decided elsewhere.

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Value,
    Nothing,
}

/// One flag that exists.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub takes: Takes,
}

impl Flag {
    /// `--name VALUE`.
    #[must_use]
    pub const fn value(name: &'static str) -> Self {
        Self { name, short: None, takes: Takes::Value }
    }

    /// `--name`.
    #[must_use]
    pub const fn switch(name: &'static str) -> Self {
        Self { name, short: None, takes: Takes::Nothing }
    }

    fn spelling(&self) -> String {
        let short = self.short.map(|short| format!("-{short}, ")).unwrap_or_default();
        let value = if self.takes == Takes::Value { " <value>" } else { "" };
        format!("{short}--{}{value}", self.name)
    }
}

/// The flags that were given, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Given(Vec<(&'static str, String)>);

impl Given {
    /// The last value of a flag.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// All values of a flag, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// True if a flag was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.last(name).is_some()
    }
}

/// The words are no flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("Unknown option '{0}'")]
    Unknown(String),
    #[error("Unexpected argument '{0}'. This command does not take positional arguments")]
    Positional(String),
    #[error("Option '{0}' argument missing")]
    Missing(String),
    #[error("Option '{0}' does not take an argument")]
    NoArgument(String),
    #[error(
        "Option '{0}' argument is ambiguous.\nDid you forget to specify the option argument for '{0}'?\n\
         To specify an option argument starting with a dash use '{0}=-XYZ'."
    )]
    Ambiguous(String),
}

/// Reads the words against the flags that exist; the first mistake is reported, in order of the words.
///
/// # Errors
/// The first mistake.
pub fn parse(words: &[String], known: &[Flag]) -> Result<Given, FlagError> {
    let mut given = Given::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            return match words.next() {
                Some(extra) => Err(FlagError::Positional(extra.clone())),
                None => Ok(given),
            };
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, inline) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let flag = known.iter().find(|flag| flag.name == name);
            let flag = flag.ok_or_else(|| FlagError::Unknown(format!("--{name}")))?;
            let value = match (flag.takes, inline) {
                (Takes::Nothing, None) => String::new(),
                (Takes::Nothing, Some(_)) => return Err(FlagError::NoArgument(flag.spelling())),
                (Takes::Value, Some(value)) => value.to_owned(),
                (Takes::Value, None) => {
                    let value = words.next().ok_or_else(|| FlagError::Missing(flag.spelling()))?;
                    if value.len() > 1 && value.starts_with('-') {
                        return Err(FlagError::Ambiguous(format!("--{name}")));
                    }
                    value.clone()
                }
            };
            given.0.push((flag.name, value));
        } else if word.len() > 1 && word.starts_with('-') {
            for short in word.chars().skip(1) {
                let flag = known.iter().find(|flag| flag.short == Some(short));
                let flag = flag.ok_or_else(|| FlagError::Unknown(format!("-{short}")))?;
                given.0.push((flag.name, String::new())); // only switches have short names
            }
        } else {
            return Err(FlagError::Positional(word.clone()));
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Flag] =
        &[Flag { short: Some('h'), ..Flag::switch("help") }, Flag::value("mode"), Flag::value("allow-host")];

    fn run(line: &str) -> Result<Given, FlagError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words, KNOWN)
    }

    #[track_caller]
    fn refused(line: &str, expected: &str) {
        let message = run(line).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{line}: {message}");
    }

    #[test]
    fn values_come_apart_or_joined_and_the_last_one_counts() {
        let given = run("--mode a --mode=b --allow-host=x --allow-host y -h").unwrap();
        assert_eq!(given.last("mode"), Some("b"));
        assert_eq!(given.all("allow-host").collect::<Vec<_>>(), ["x", "y"]);
        assert!(given.has("help"));
        assert_eq!(run("--mode=").unwrap().last("mode"), Some(""));
        assert_eq!(run("--mode=-x").unwrap().last("mode"), Some("-x"));
        assert_eq!(run("--mode=a=b").unwrap().last("mode"), Some("a=b"));
        assert_eq!(run("--mode -").unwrap().last("mode"), Some("-"));
    }

    #[test]
    fn mistakes_are_named_in_order() {
        refused("--nope --help", "Unknown option '--nope'");
        refused("--help --nope=1", "Unknown option '--nope'");
        refused("-x", "Unknown option '-x'");
        refused("-hx", "Unknown option '-x'");
        refused("word", "Unexpected argument 'word'");
        refused("-- word", "Unexpected argument 'word'");
        refused("-", "Unexpected argument '-'");
        refused("--mode", "Option '--mode <value>' argument missing");
        refused("--mode -x", "Option '--mode' argument is ambiguous");
        refused("--mode --help", "Option '--mode' argument is ambiguous");
        refused("--help=yes", "Option '-h, --help' does not take an argument");
        assert_eq!(run("--mode a --"), run("--mode a"));
    }
}
