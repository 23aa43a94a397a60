//! Skimming: what is kept, what is cut, what fails.

use super::*;

const PLAN: Plan = Plan { keys: &["type", "result", "item", "message"], answer: &["result"] };

fn skim(text: &str, chunk: usize) -> Option<Skimmed> {
    static PLAN_REF: Plan = PLAN;
    let mut skimmer = Skimmer::new(&PLAN_REF);
    for piece in text.as_bytes().chunks(chunk) {
        skimmer.feed(piece);
    }
    skimmer.finish()
}

#[test]
fn wanted_keys_stay_and_the_rest_goes() {
    let text = r#" {"x":[1,{"type":2}],"type" : "a\u0062\n","r":null,"item":{"a":[true,false,-1.5e+3],"b":{}},"\u0074ype":"c"} "#;
    for chunk in [1, 2, 7, 1000] {
        let skimmed = skim(text, chunk).unwrap();
        assert_eq!(skimmed.text, r#"{"type":"a\u0062\n","item":{"a":[true,false,-1.5e+3],"b":{}},"type":"c"}"#);
        assert!(!skimmed.overflow);
    }
}

#[test]
fn only_whole_objects_pass() {
    for bad in [
        "",
        "[]",
        "1",
        "{",
        "{}x",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":[1,]}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":+1}",
        "{\"a\":tru}",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":[}",
        "{} {}",
        "{a:1}",
    ] {
        assert!(skim(bad, 1).is_none(), "{bad}");
        assert!(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(bad).is_err(), "{bad}");
    }
}

#[test]
fn long_strings_are_cut_between_characters_however_they_come() {
    let text =
        format!("{{\"message\":{{\"t\":\"{}\",\"n\":{}}},\"type\":\"x\"}}", "aß→".repeat(30_000), "9".repeat(5_000));
    let whole = skim(&text, usize::MAX).unwrap();
    assert!(whole.text.len() < STRING_CAP + 100 && whole.text.ends_with(r#" (180000 bytes)","n":null},"type":"x"}"#));
    assert!(!whole.text.contains('\u{fffd}'));
    for chunk in [1, 3, 4096] {
        assert_eq!(skim(&text, chunk).unwrap().text, whole.text);
    }
}

#[test]
fn an_answer_is_kept_whole_up_to_its_cap() {
    let fits = format!("{{\"result\":\"{}\"}}", "x".repeat(ANSWER_CAP));
    let skimmed = skim(&fits, 1 << 16).unwrap();
    assert_eq!((skimmed.text, skimmed.overflow), (fits, false));
    let large = format!("{{\"result\":\"{}\"}}", "x".repeat(ANSWER_CAP + 1));
    assert!(skim(&large, 1 << 16).unwrap().overflow);
}

#[test]
fn endless_collections_are_shortened_but_later_keys_are_found() {
    let text =
        format!("{{\"message\":{{\"content\":[{}0],\"model\":\"m\"}},\"type\":\"x\"}}", "{\"a\":1},".repeat(200_000));
    let skimmed = skim(&text, 4096).unwrap();
    assert!(skimmed.text.len() < 2 * INNER_BUDGET && skimmed.text.ends_with("],\"model\":\"m\"},\"type\":\"x\"}"));
}
