//! What every fuzz target does with its bytes. The normal test suite runs the same functions over random input.

use agent::descriptor::{Effort, Mode, Parent, Provider};
use agent::handoff::{self, Handoff};
use agent::route::definitions::NativeLanes;
use controller::contract::ledger::Ledger;
use controller::policy::receipt::{Expected, ReceiptFacts};
use controller::policy::resolve::resolve;
use controller::policy::roles::ROLE_ROWS;
use controller::policy::sheet::format::format;
use controller::policy::sheet::{Sheet, parse};
use controller::policy::state::LaneState;

/// A sheet: issues with places in the text, or rows that resolve and format.
pub(crate) fn sheet(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parsed = parse(&text);
    for issue in &parsed.issues {
        assert!(!issue.to_string().is_empty());
        assert!(issue.span.is_none_or(|span| text.get(span.start..span.end).is_some()), "{issue}: no place");
        let _ = controller::policy::suggest::suggest(&issue.kind);
    }
    let Ok(read) = Sheet::read(&text) else { return };
    for parent in [Parent::Claude, Parent::Codex] {
        for role in ROLE_ROWS.iter().flat_map(|row| row.roles) {
            let _ = resolve(&read, role, parent, &NativeLanes::Shipped);
        }
    }
    let formatted = format(&text).expect("a readable sheet formats");
    assert_eq!(format(&formatted).as_deref(), Ok(formatted.as_str()), "formatting is stable");
    assert_eq!(outline(&formatted), outline(&text), "formatting changes nothing");
}

/// A sheet without the places of its parts.
pub(crate) fn outline(text: &str) -> String {
    let Sheet { rows, access, fallback, continuation, budget } = parse(text).sheet;
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let chain = |seat: &controller::policy::sheet::Seat| {
                seat.attempts.iter().map(|placed| placed.attempt.to_string()).collect::<Vec<_>>()
            };
            (row.role.header, row.seats.iter().map(chain).collect::<Vec<_>>())
        })
        .collect();
    format!("{rows:?}{access:?}{fallback:?}{continuation:?}{budget:?}")
}

/// A final response: an answer that a request's own text gives again.
pub(crate) fn handoff(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Handoff::Valid(request) = handoff::parse(&text) {
        let again = format!("```pstack-handoff\n{}\n```", request.to_value());
        // A fence inside a string would end the block early, so only blocks without one can come back.
        if again.matches("```").count() == 2 {
            assert_eq!(handoff::parse(&again), Handoff::Valid(request));
        }
    }
}

/// A ledger: listed issues, or a file that reads back the same.
pub(crate) fn ledger(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Ledger::read(&text, "ledger") {
        Ok(ledger) => assert_eq!(Ledger::read(&ledger.render(), "ledger").as_ref(), Ok(&ledger)),
        Err(issues) => assert!(!issues.is_empty()),
    }
}

/// A lane state and a receipt: a result or an error with a text.
pub(crate) fn state(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    if let Err(error) = LaneState::from_value(&value) {
        assert!(!error.to_string().is_empty());
    }
    let expected = Expected {
        parent: Parent::Codex,
        provider: Provider::Grok,
        model: "g",
        effort: Effort::High,
        mode: Mode::ReadOnly,
        api_spend: "deny",
        contract: "legacy",
        receipt_path: "/w/r.json",
    };
    if let Ok(facts) = ReceiptFacts::read(&value, &expected) {
        let _ = controller::policy::normalize::outcome(&facts);
    }
}
