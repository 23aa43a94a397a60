//! Golden receipts: the documented examples are read and written back byte for byte; old samples still parse.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use agent::descriptor::Contract;
use agent::receipt::{Receipt, ReceiptError, Status, status_of};
use serde_json::{Value, json};

fn fixture(name: &str) -> String {
    let path = format!("{}/tests/fixtures/receipts/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[track_caller]
fn unchanged(name: &str) {
    let text = fixture(name);
    let receipt = Receipt::from_json(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(receipt.pretty(), text, "{name}");
    let compact = receipt.compact();
    assert!(!compact.contains('\n'));
    assert_eq!(serde_json::from_str::<Value>(&compact).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
}

#[test]
fn a_complete_receipt_is_written_as_documented() {
    unchanged("v2-complete");
}

#[test]
fn a_failed_workload_puts_its_status_after_the_signal() {
    unchanged("v2-child-failed");
}

#[test]
fn a_handoff_stands_between_cost_and_error() {
    unchanged("v2-handoff");
}

#[test]
fn a_preflight_failure_puts_its_status_before_the_start_and_keeps_additive_fields_last() {
    unchanged("v2-preflight");
}

#[test]
fn schema_1_reads_as_legacy_without_a_deadline() {
    let receipt = Receipt::from_json(&fixture("v1-complete")).unwrap();
    assert_eq!((receipt.status, receipt.contract, receipt.timeout_ms), (Status::Complete, Contract::Legacy, None));
    assert_eq!(receipt.paths.receipt, "");
}

#[test]
fn schema_1_never_has_a_handoff_and_unknown_schemas_are_refused() {
    let mut value: Value = serde_json::from_str(&fixture("v1-complete")).unwrap();
    value["status"] = json!("needs-parent-operation");
    assert!(Receipt::from_value(&value).is_err());
    value["schemaVersion"] = json!(3);
    assert_eq!(
        Receipt::from_value(&value).unwrap_err().to_string(),
        "receipt schema 3 is unknown, this program reads 1 and 2"
    );
    assert_eq!(status_of(&value), None);
}

#[test]
fn error_texts_are_capped_when_written() {
    let mut receipt = Receipt::from_json(&fixture("v2-preflight")).unwrap();
    receipt.error = Some(ReceiptError { message: "m".repeat(501), evidence: "😀".repeat(2_001) });
    let value = receipt.to_value();
    assert_eq!(value["error"]["message"].as_str().unwrap().len(), 500);
    assert_eq!(value["error"]["evidence"].as_str().unwrap().encode_utf16().count(), 4_000);
}

#[test]
fn an_additive_field_never_replaces_a_known_one() {
    let mut receipt = Receipt::from_json(&fixture("v2-preflight")).unwrap();
    receipt.additive.insert("status".to_owned(), json!("complete"));
    receipt.additive.insert("terminalSuccess".to_owned(), json!(true));
    let value = receipt.to_value();
    assert_eq!(value["status"], "unauthenticated");
    assert_eq!(value.get("terminalSuccess"), None);
}

#[test]
fn whole_provider_numbers_lose_their_fraction() {
    let mut value: Value = serde_json::from_str(&fixture("v2-complete")).unwrap();
    value["usage"]["inputTokens"] = json!(1820.0);
    value["costUsd"] = json!(1.0);
    let written = Receipt::from_value(&value).unwrap().compact();
    assert!(written.contains("\"inputTokens\":1820,") && written.contains("\"costUsd\":1,"), "{written}");
}
