//! Values of one JSON line, found without building a tree. Like the JavaScript reader that the providers' own tools
//! use: the last of two equal keys counts, lone surrogates and bytes that are no UTF-8 become U+FFFD.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// A value's own text inside its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a>(&'a str);

/// Wanted fields of an object, in the order in which they were asked for.
pub(super) type Fields<'a, const N: usize> = [Option<Raw<'a>>; N];

/// Reads the text as one JSON object and picks `keys`; `None` when it is no JSON object.
pub(super) fn object<'a, const N: usize>(text: &'a str, keys: &[&str; N]) -> Option<Fields<'a, N>> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let fields = Wanted(keys).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(fields)
}

impl<'a> Raw<'a> {
    /// The fields of an object; `None` for any other value.
    pub(super) fn fields<const N: usize>(self, keys: &[&str; N]) -> Option<Fields<'a, N>> {
        if self.0.starts_with('{') { object(self.0, keys) } else { None }
    }

    /// Calls `each` for the elements of an array; false for any other value.
    pub(super) fn elements(self, each: &mut dyn FnMut(Raw<'a>)) -> bool {
        self.0.starts_with('[') && serde_json::Deserializer::from_str(self.0).deserialize_seq(Elements(each)).is_ok()
    }

    pub(super) fn is_null(self) -> bool {
        self.0 == "null"
    }

    pub(super) fn boolean(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// A string's value.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        string(self.0)
    }

    /// The beginning of a string's value, at most this many characters, without looking at the rest.
    pub(super) fn text_start(self, characters: usize) -> Option<String> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        let mut rest = inner.chars();
        for _ in 0..characters {
            match rest.next() {
                None => break,
                Some('\\') => skip_escape(&mut rest),
                Some(_) => {}
            }
        }
        let start = &inner[..inner.len() - rest.as_str().len()];
        string(&format!("\"{start}\"")).map(Cow::into_owned)
    }

    /// A finite number as the provider wrote it.
    pub(super) fn number(self) -> Option<Number> {
        let number: Number = serde_json::from_str(self.0).ok()?;
        number.as_f64().is_some_and(f64::is_finite).then_some(number)
    }

    /// The value as a tree; its own text when it nests too deep for one.
    pub(super) fn value(self) -> Value {
        serde_json::from_str(self.0).unwrap_or_else(|_| Value::String(self.0.to_owned()))
    }

    /// The value's JSON text.
    pub(super) const fn source(self) -> &'a str {
        self.0
    }
}

/// The value of a JSON string with its quotes.
pub(super) fn string(quoted: &str) -> Option<Cow<'_, str>> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.as_bytes().contains(&b'\\') {
        return Some(Cow::Borrowed(inner));
    }
    if let Ok(text) = serde_json::from_str::<String>(quoted) {
        return Some(Cow::Owned(text));
    }
    let mut reader = serde_json::Deserializer::from_str(quoted);
    let bytes = reader.deserialize_byte_buf(Bytes).ok()?;
    Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Passes what follows a backslash; the two escapes of a surrogate pair are one character.
fn skip_escape(rest: &mut std::str::Chars<'_>) {
    if rest.next() != Some('u') {
        return;
    }
    let mut after = rest.as_str();
    let high = after
        .get(..4)
        .is_some_and(|hex| matches!(hex.as_bytes(), [b'd' | b'D', b'8' | b'9' | b'a'..=b'b' | b'A'..=b'B', ..]));
    after = after.get(4..).unwrap_or_default();
    if high && after.starts_with("\\u") {
        after = after.get(6..).unwrap_or_default();
    }
    *rest = after.chars();
}

/// A nonempty string.
pub(super) fn nonempty(raw: Option<Raw<'_>>) -> Option<Cow<'_, str>> {
    raw?.text().filter(|text| !text.is_empty())
}

/// True when the field is this string.
pub(super) fn is(raw: Option<Raw<'_>>, expected: &str) -> bool {
    raw.and_then(Raw::text).is_some_and(|text| text == expected)
}

struct Wanted<'k, const N: usize>(&'k [&'k str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Wanted<'_, N> {
    type Value = Fields<'de, N>;
    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Wanted<'_, N> {
    type Value = Fields<'de, N>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = [None; N];
        while let Some(index) = map.next_key_seed(Key(self.0))? {
            match index {
                Some(index) => fields[index] = Some(Raw(map.next_value::<&'de RawValue>()?.get())),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}

/// The index of a key among the wanted ones.
struct Key<'k, const N: usize>(&'k [&'k str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Key<'_, N> {
    type Value = Option<usize>;
    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_bytes(self)
    }
}

impl<const N: usize> Visitor<'_> for Key<'_, N> {
    type Value = Option<usize>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        self.visit_bytes(key.as_bytes())
    }
    fn visit_bytes<E: serde::de::Error>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|wanted| wanted.as_bytes() == key))
    }
}

struct Elements<'f, 'a>(&'f mut dyn FnMut(Raw<'a>));

impl<'de> Visitor<'de> for Elements<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            (self.0)(Raw(element.get()));
        }
        Ok(())
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
        Ok(text.as_bytes().to_vec())
    }
    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_counts() {
        let [a, b] = object(r#"{"a":1,"x":{"a":2},"a":"three"}"#, &["a", "b"]).unwrap();
        assert_eq!(a.unwrap().text().unwrap(), "three");
        assert!(b.is_none());
    }

    #[test]
    fn only_whole_objects_are_objects() {
        for text in ["[1]", "1", "\"a\"", "null", "{", "{} x", "{\"a\":}", "", "{'a':1}", "{\"a\":1,}"] {
            assert!(object(text, &["a"]).is_none(), "{text}");
        }
        assert!(object(" {} \r", &["a"]).is_some());
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        let [a] = object(r#"{"\ud800k":1,"a":"x\ud800y\u0041"}"#, &["a"]).unwrap();
        let text = a.unwrap().text().unwrap().into_owned();
        assert!(text.starts_with("x\u{fffd}") && text.ends_with("yA"), "{text:?}");
    }

    #[test]
    fn the_start_of_a_string_never_splits_an_escape() {
        let [a] = object(r#"{"a":"x\n\ud83d\ude00\u00e9yé\"z"}"#, &["a"]).unwrap();
        let start = |characters| a.unwrap().text_start(characters).unwrap();
        let whole = "x\n\u{1f600}\u{e9}y\u{e9}\"z";
        for characters in 0..10 {
            assert_eq!(start(characters), whole.chars().take(characters).collect::<String>());
        }
    }

    #[test]
    fn deep_nesting_is_still_an_object() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
        assert!(object(&deep, &["b"]).is_some());
        let [a] = object(&deep, &["a"]).unwrap();
        assert!(a.unwrap().value().is_string());
    }
}
