//! JSON as the policy and contract files mean it: integers in any spelling, two-space output with plain numbers.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Largest integer that a number of these files can name without loss.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// A number as an integer: `1`, `1.0` and `1e0` are the same.
#[must_use]
pub fn integer(value: &Value) -> Option<i64> {
    let number = value.as_number()?;
    if let Some(integer) = number.as_i64() {
        return Some(integer);
    }
    let float = number.as_f64()?;
    // The range check makes the conversion exact.
    #[expect(clippy::cast_possible_truncation, reason = "integral and within the safe range")]
    (float.fract() == 0.0 && float.abs() <= MAX_SAFE).then_some(float as i64)
}

/// A nonnegative integer.
#[must_use]
pub fn index(value: &Value) -> Option<u64> {
    integer(value).and_then(|integer| integer.try_into().ok())
}

/// Two-space JSON and a final newline; empty containers as `[]` and `{}`, non-ASCII as it is.
#[must_use]
pub fn pretty(value: &impl Serialize) -> String {
    let mut text = write(value, Numbers(PrettyFormatter::new()));
    text.push('\n');
    text
}

/// One line without blanks or newline.
#[must_use]
pub fn compact(value: &impl Serialize) -> String {
    write(value, Numbers(CompactFormatter))
}

fn write<F: Formatter>(value: &impl Serialize, formatter: F) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Strings as keys and a writer in memory: neither can fail for the values printed here.
    let written = value.serialize(&mut serializer);
    debug_assert!(written.is_ok());
    String::from_utf8(bytes).unwrap_or_default()
}

/// Writes whole floats as integers, so that `1.0` read is `1` written.
struct Numbers<F>(F);

macro_rules! delegate {
    ($($name:ident($($arg:ident: $type:ty),*));+ $(;)?) => {
        $(fn $name<W: ?Sized + io::Write>(&mut self, writer: &mut W $(, $arg: $type)*) -> io::Result<()> {
            self.0.$name(writer $(, $arg)*)
        })+
    };
}

impl<F: Formatter> Formatter for Numbers<F> {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        if value.fract() == 0.0 && value.abs() < 1e21 {
            // Adding zero turns minus zero into zero.
            write!(writer, "{:.0}", value + 0.0)
        } else {
            let text = format!("{value:e}");
            match text.split_once('e').and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?))) {
                Some((_, -6..=20)) | None => write!(writer, "{value}"),
                Some((digits, power)) if power > 0 => write!(writer, "{digits}e+{power}"),
                Some((digits, power)) => write!(writer, "{digits}e{power}"),
            }
        }
    }

    delegate! {
        begin_array(); end_array(); begin_array_value(first: bool); end_array_value();
        begin_object(); end_object(); begin_object_key(first: bool); end_object_key();
        begin_object_value(); end_object_value();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_count_in_any_spelling_but_only_whole_and_safe() {
        let read = |text: &str| integer(&serde_json::from_str(text).unwrap());
        assert_eq!([read("1"), read("1.0"), read("1e0"), read("-0.0")], [Some(1), Some(1), Some(1), Some(0)]);
        assert_eq!([read("1.5"), read("\"1\""), read("1e300")], [None, None, None]);
        assert_eq!(index(&serde_json::json!(-1)), None);
    }

    #[test]
    fn output_is_indented_by_two_with_plain_numbers() {
        let value: Value =
            serde_json::from_str(r#"{"a":[],"b":{},"c":[1.0,-0.0,1.5,1e21,1e20,1e-7,"é\u0001"]}"#).unwrap();
        assert_eq!(compact(&value), r#"{"a":[],"b":{},"c":[1,0,1.5,1e+21,100000000000000000000,1e-7,"é\u0001"]}"#);
        assert_eq!(
            pretty(&serde_json::json!({"a": [], "b": {"c": 1}})),
            "{\n  \"a\": [],\n  \"b\": {\n    \"c\": 1\n  }\n}\n"
        );
    }
}
