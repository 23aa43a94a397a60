//! What counts as blank in the files of the policy and the contract: white space with no-break space and U+FEFF,
//! without U+0085 (policy-and-contract section 12).

/// True for a white-space character of those files.
#[must_use]
pub fn is_blank_char(c: char) -> bool {
    c == '\u{feff}' || (c != '\u{85}' && c.is_whitespace())
}

/// True when nothing but white space is there.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    text.chars().all(is_blank_char)
}

/// The text without white space at both ends.
#[must_use]
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_blank_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_marks_and_no_break_spaces_are_blank_but_next_line_is_not() {
        assert!(is_blank("\u{feff}\u{a0} \t\r\n\u{2028}"));
        assert!(!is_blank("\u{85}"));
        assert_eq!(trim("\u{feff} a b\u{a0}"), "a b");
    }
}
