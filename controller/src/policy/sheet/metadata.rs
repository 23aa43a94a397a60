//! Comment lines that hold facts and permissions (policy-and-contract 2.4).

use std::str::FromStr;

use agent::blank::trim;
use agent::descriptor::{ApiSpend, Provider, VocabularyError};
use serde_json::{Map, Value};

use super::issue::{Issue, IssueKind, Metadata};
use super::{Parsed, Span};
use crate::json;
use crate::policy::words::{Capacity, ContinuationReason, FallbackReason, Funding, Provenance};

/// What the user or a provider said about one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessFact {
    pub provider: Provider,
    pub funding: Funding,
    pub capacity: Capacity,
    pub api_spend: ApiSpend,
    pub provenance: Provenance,
    /// For display only.
    pub plan: Option<String>,
    pub note: Option<String>,
    pub observed_at: Option<String>,
}

/// Permission to run a descriptor again after an interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// In declared order.
    pub on: Vec<ContinuationReason>,
    /// Executions of one descriptor in all, 1 to 4.
    pub max_executions: u64,
}

/// `max` when the line does not say it.
const DEFAULT_MAX: u64 = 2;

/// Which lines were seen, broken ones included: a second one is an issue of its own.
#[derive(Default)]
pub(super) struct Seen {
    fallback: bool,
    continuation: bool,
}

/// Reads what a comment declares, if anything. `comment` starts with its `#`.
pub(super) fn collect(text: &str, comment: &str, parsed: &mut Parsed, seen: &mut Seen) {
    if let Some(budget) = comment.strip_prefix("# budget:") {
        parsed.sheet.budget = Some(trim(budget).to_owned());
    }
    let mut reader = Reader { span: Span::of(text, comment), line: comment, issues: &mut parsed.issues };
    if let Some((_, body)) = comment.split_once("# access:")
        && let Some(fact) = reader.access(body)
    {
        let provider = fact.provider;
        if parsed.sheet.access.iter().any(|known| known.provider == provider) {
            reader.issue(IssueKind::DuplicateAccess { provider });
        } else {
            parsed.sheet.access.push(fact);
        }
    }
    if let Some(body) = comment.strip_prefix("# fallback:") {
        reader.once(Metadata::Fallback, &mut seen.fallback);
        parsed.sheet.fallback = reader.fallback(body).or(parsed.sheet.fallback.take());
    }
    if let Some(body) = comment.strip_prefix("# continuation:") {
        reader.once(Metadata::Continuation, &mut seen.continuation);
        parsed.sheet.continuation = reader.continuation(body).or(parsed.sheet.continuation.take());
    }
}

struct Reader<'a> {
    span: Span,
    line: &'a str,
    issues: &'a mut Vec<Issue>,
}

impl Reader<'_> {
    fn issue(&mut self, kind: IssueKind) {
        self.issues.push(Issue::at(self.span, kind));
    }

    fn quote(&self) -> String {
        self.line.to_owned()
    }

    fn once(&mut self, what: Metadata, seen: &mut bool) {
        if std::mem::replace(seen, true) {
            self.issue(IssueKind::DuplicateMetadata { what });
        }
    }

    /// The JSON object of a line, whose keys must all be known.
    fn object(&mut self, what: Metadata, body: &str, keys: &[&str]) -> Option<Map<String, Value>> {
        let line = self.quote();
        let kind = match serde_json::from_str(body) {
            Err(_) => IssueKind::MetadataNotJson { what, line },
            Ok(Value::Object(map)) => match map.keys().find(|key| !keys.contains(&key.as_str())) {
                None => return Some(map),
                Some(key) => IssueKind::UnknownKey { what, key: key.clone(), line },
            },
            Ok(_) => IssueKind::MetadataNotObject { what, line },
        };
        self.issue(kind);
        None
    }

    fn access(&mut self, body: &str) -> Option<AccessFact> {
        const KEYS: &[&str] =
            &["provider", "funding", "capacity", "apiSpend", "provenance", "plan", "note", "observedAt"];
        let map = self.object(Metadata::Access, body, KEYS)?;
        // Every field is looked at before the first missing one gives up, so that one run names them all.
        let provider = self.word::<Provider>(&map, "provider");
        let funding = self.word::<Funding>(&map, "funding");
        let capacity = self.word::<Capacity>(&map, "capacity");
        let api_spend = self.word::<ApiSpend>(&map, "apiSpend");
        let provenance = self.word::<Provenance>(&map, "provenance");
        let plan = self.optional(&map, "plan");
        let note = self.optional(&map, "note");
        let observed_at = self.optional(&map, "observedAt");
        Some(AccessFact {
            provider: provider?,
            funding: funding?,
            capacity: capacity?,
            api_spend: api_spend?,
            provenance: provenance?,
            plan: plan?,
            note: note?,
            observed_at: observed_at?,
        })
    }

    fn word<T: FromStr<Err = VocabularyError>>(&mut self, map: &Map<String, Value>, field: &'static str) -> Option<T> {
        match map.get(field).and_then(Value::as_str).unwrap_or_default().parse() {
            Ok(word) => Some(word),
            Err(VocabularyError { allowed, .. }) => {
                let expected = format!("one of: {}", allowed.join(", "));
                self.issue(IssueKind::AccessField { field, expected, line: self.quote() });
                None
            }
        }
    }

    /// The outer `None` means an issue.
    fn optional(&mut self, map: &Map<String, Value>, field: &'static str) -> Option<Option<String>> {
        match map.get(field) {
            None => Some(None),
            Some(Value::String(text)) => Some(Some(text.clone())),
            Some(_) => {
                let expected = "a string".to_owned();
                self.issue(IssueKind::AccessField { field, expected, line: self.quote() });
                None
            }
        }
    }

    fn fallback(&mut self, body: &str) -> Option<Vec<FallbackReason>> {
        let map = self.object(Metadata::Fallback, body, &["on"])?;
        self.on(Metadata::Fallback, &map, FallbackReason::WORDS)
    }

    fn continuation(&mut self, body: &str) -> Option<Continuation> {
        let map = self.object(Metadata::Continuation, body, &["on", "max"])?;
        let on = self.on(Metadata::Continuation, &map, ContinuationReason::WORDS);
        let max =
            map.get("max").map_or(Some(DEFAULT_MAX), |value| json::index(value).filter(|max| (1..=4).contains(max)));
        if max.is_none() {
            self.issue(IssueKind::MaxOutOfRange { line: self.quote() });
        }
        Some(Continuation { on: on?, max_executions: max? })
    }

    fn on<T>(&mut self, what: Metadata, map: &Map<String, Value>, allowed: &[&str]) -> Option<Vec<T>>
    where
        T: FromStr<Err = VocabularyError> + PartialEq,
    {
        let Some(entries) = map.get("on").and_then(Value::as_array) else {
            self.issue(IssueKind::OnNotArray { what, line: self.quote() });
            return None;
        };
        let mut words: Vec<T> = Vec::new();
        let mut good = true;
        for entry in entries {
            let problem = match entry.as_str().map(str::parse::<T>) {
                Some(Ok(word)) if !words.contains(&word) => {
                    words.push(word);
                    continue;
                }
                Some(Ok(_)) => {
                    let entry = entry.as_str().unwrap_or_default().to_owned();
                    IssueKind::OnRepeated { what, entry, line: self.quote() }
                }
                _ => IssueKind::OnUnknown {
                    what,
                    entry: entry.to_string(),
                    allowed: allowed.join(", "),
                    line: self.quote(),
                },
            };
            good = false;
            self.issue(problem);
        }
        good.then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::sheet::parse;

    const FACT: &str =
        r#"{"provider":"grok","funding":"included","capacity":"high","apiSpend":"deny","provenance":"user"}"#;

    #[track_caller]
    fn check(text: &str, fragments: &[&str]) {
        let issues: Vec<String> = parse(text).issues.iter().map(ToString::to_string).collect();
        assert_eq!(issues.len(), fragments.len(), "{text}: {issues:#?}");
        for (issue, fragment) in issues.iter().zip(fragments) {
            assert!(issue.contains(fragment), "{text}: no {fragment:?} in {issue}");
        }
    }

    #[test]
    fn an_access_line_is_found_anywhere_in_a_comment_but_not_without_its_blank() {
        for text in [format!("# access: {FACT}"), format!("# see # access:{FACT}"), format!("  # access:{FACT}")] {
            assert_eq!(parse(&text).sheet.access.len(), 1, "{text}");
        }
        assert!(parse(&format!("#access: {FACT}")).sheet.access.is_empty());
    }

    #[test]
    fn every_bad_access_field_is_an_issue_of_its_own() {
        check("# access: {", &["not JSON"]);
        check("# access: []", &["not a JSON object"]);
        check("# access: {\"x\":1}", &["unknown key \"x\""]);
        check("# access: {}", &["\"provider\"", "\"funding\"", "\"capacity\"", "\"apiSpend\"", "\"provenance\""]);
        check(&format!("# access: {}", FACT.replace('}', ",\"plan\":null}")), &["\"plan\" must be a string"]);
        check(
            &format!("# access: {FACT}\n# access: {}", FACT.replace("high", "standard")),
            &["more than one access record"],
        );
    }

    #[test]
    fn fallback_and_continuation_stand_at_the_start_of_one_comment_only() {
        let text =
            "# see # fallback: {}\n# fallback: {\"on\":[]}\n# continuation:{\"on\":[\"permission\",\"handoff\"]}";
        let sheet = parse(text).sheet;
        assert_eq!(sheet.fallback, Some(vec![]));
        assert_eq!(sheet.continuation.map(|it| it.max_executions), Some(2));
        check("# fallback: {\"on\":[]}\nbug-fix: auto\n# fallback: {\"on\":[]}", &["more than one # fallback"]);
        check("# continuation: 1\n# continuation: {\"on\":[]}", &["not a JSON object", "more than one # continuation"]);
        check(
            "# fallback: {\"on\":[\"failed\",\"usage-exhausted\",\"usage-exhausted\"]}",
            &["unknown entry", "repeated entry"],
        );
        check("# fallback: {}", &["must be an array"]);
    }

    #[test]
    fn max_is_an_integer_from_one_to_four() {
        for max in ["1", "4", "2.0", "1e0"] {
            check(&format!("# continuation: {{\"on\":[],\"max\":{max}}}"), &[]);
        }
        for max in ["0", "5", "null", "1.5", "\"2\"", "-1"] {
            check(&format!("# continuation: {{\"on\":[],\"max\":{max}}}"), &["from 1 to 4"]);
        }
    }
}
