//! Numbers as the runner's JSON writes them: no decimal point where the value is whole.

use serde_json::{Number, Value};

/// Whole values up to here are exact in a 64-bit float, so that they are written digit by digit.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The value as a JSON number, an integer where it is whole (runner 2.1: `timeoutMs` 5400000, not 5400000.0).
#[must_use]
pub fn number_value(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        return Value::from(value as i64);
    }
    if value.fract() == 0.0
        && let Some(digits) = shortest_digits(value)
    {
        return Value::from(digits);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// A large whole number as JavaScript writes it: the fewest digits that read back as it, then zeros. `None` beyond 64 bits.
fn shortest_digits(value: f64) -> Option<u64> {
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let zeros = exponent.parse::<usize>().ok()?.checked_sub(fraction.len())?;
    format!("{whole}{fraction}{:0<zeros$}", "").parse().ok()
}

/// The value as text inside a message, such as `launcher exceeded the explicit 1500ms deadline` (runner 2.7).
#[must_use]
pub fn js_number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e21 {
        return shortest_digits(value).map_or_else(|| format!("{value:.0}"), |digits| digits.to_string());
    }
    number_value(value).to_string()
}

/// A provider's number without a pointless fraction: `1820.0` becomes `1820`.
pub(super) fn plain(number: &Number) -> Value {
    if number.is_f64() {
        return number.as_f64().map_or(Value::Null, number_value);
    }
    Value::Number(number.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: f64, expected: &str) {
        assert_eq!(number_value(value).to_string(), expected);
        assert_eq!(js_number(value), expected);
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        check(5_400_000.0, "5400000");
        check(0.5, "0.5");
        check(1e-7, "1e-7");
        check(1.5, "1.5");
        check(3_000_000_000_000.0, "3000000000000");
        check(1e16, "10000000000000000");
        check(1_152_921_504_606_846_976.0, "1152921504606847000");
        assert_eq!(js_number(1e20), "100000000000000000000");
    }
}
