//! Receipts that `laneyard run` writes go through `normalize` unchanged, every status of them.

use std::fs;
use std::path::Path;

use crate::fixture;
use crate::program::{Helper, fresh, stderr, stdout};
use agent::assignment::{Assignment, CanonicalPaths};
use agent::descriptor::{ApiSpend, Provider};
use agent::handoff::{self, Handoff};
use agent::receipt::{
    DenialCause, FailurePhase, ModelEvidence, PreflightReport, PreflightStatus, Receipt, ReceiptError, Status,
    ToolDenial, WorkloadFields,
};
use serde_json::Value;
use time::OffsetDateTime;

const SHEET: &str = "\
# access: {\"provider\":\"grok\",\"funding\":\"included\",\"capacity\":\"high\",\"apiSpend\":\"deny\",\"provenance\":\"user\"}
swarm workers: grok:g-9@high
";

fn assignment(directory: &Path) -> Assignment {
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let mut assignment = Assignment {
        execution_id: path("receipt.json"),
        provider: Provider::Grok,
        model: "g-9".to_owned(),
        api_spend: Some(ApiSpend::Deny),
        timeout_ms: Some(1500.0),
        ..fixture::assignment()
    };
    let paths = &mut assignment.paths;
    (paths.cwd, paths.output, paths.receipt) = (path("work"), path("output.md"), path("receipt.json"));
    paths.canonical = CanonicalPaths { cwd: path("work"), output: path("output.md"), receipt: path("receipt.json") };
    assignment
}

fn failed(status: Status, directory: &Path) -> Receipt {
    let error = ReceiptError { message: "m".to_owned(), evidence: "stdout: 0 line(s)".to_owned() };
    Receipt::not_started(&assignment(directory), status, error, OffsetDateTime::now_utc())
}

/// A receipt of a workload that ran to its end.
fn worked(status: Status, directory: &Path) -> Receipt {
    let delivered = status.delivered();
    let mut receipt = failed(status, directory);
    receipt.preflight = PreflightReport {
        argv: vec!["/usr/bin/grok".to_owned()],
        status: PreflightStatus::Passed,
        evidence: "ok".to_owned(),
    };
    receipt.exit_code = Some(if matches!(status, Status::MalformedOutput) || delivered { 0 } else { 1 });
    receipt.failure_phase = match status {
        _ if delivered => None,
        Status::MalformedOutput => Some(FailurePhase::Postprocess),
        _ => Some(FailurePhase::Invocation),
    };
    receipt.process_started = true;
    receipt.workload =
        Some(WorkloadFields { terminal_success: (!delivered).then_some(false), ..WorkloadFields::default() });
    if delivered {
        receipt.error = None;
        receipt.report.model_verified = true;
        receipt.report.model_evidence = Some(ModelEvidence::ProviderReport);
        receipt.report.reported_model = Some("g-9".to_owned());
    }
    receipt.additive.insert("container".to_owned(), serde_json::json!({"id": "c"}));
    receipt
}

/// Writes the receipt as the runner does and gives the event that `normalize` prints.
#[track_caller]
fn normalized(receipt: &Receipt, directory: &Path) -> Value {
    fs::write(directory.join("sheet.md"), SHEET).unwrap();
    fs::write(directory.join("receipt.json"), receipt.pretty()).unwrap();
    let path = directory.join("receipt.json");
    let words = [
        "normalize",
        "--sheet",
        "sheet.md",
        "--role",
        "swarm workers",
        "--parent",
        "codex",
        "--receipt",
        path.to_str().unwrap(),
        "--mode",
        "read-only",
    ];
    let output = Helper::Policy.run(&words, directory);
    assert!(output.status.success(), "{}\n{}", stderr(&output), receipt.pretty());
    let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
    value["event"].clone()
}

#[test]
fn every_status_that_stops_before_the_workload_becomes_its_outcome() {
    let (_guard, directory) = fresh();
    for (status, expected) in [
        (Status::Cancelled, "failed"),
        (Status::UnavailableCli, "route-unavailable"),
        (Status::Unauthenticated, "route-unavailable"),
        (Status::UnavailableModel, "route-unavailable"),
        (Status::BillingPolicyBlocked, "failed"),
        (Status::TimedOut, "deadline-exceeded"),
        (Status::ChildFailed, "failed"),
        (Status::UnsupportedCapability, "failed"),
    ] {
        let event = normalized(&failed(status, &directory), &directory);
        assert_eq!(event["status"], expected, "{status:?}");
        assert_eq!(event["processStarted"], false);
        assert_eq!(event["execution"]["workspacePath"], directory.join("work").to_str().unwrap());
    }
}

#[test]
fn every_status_of_a_workload_becomes_its_outcome() {
    let (_guard, directory) = fresh();
    for (status, expected) in [
        (Status::Complete, "complete"),
        (Status::UsageExhausted, "usage-exhausted"),
        (Status::TimedOut, "deadline-exceeded"),
        (Status::ChildFailed, "terminal-failure"),
        (Status::MalformedOutput, "terminal-failure"),
        (Status::Cancelled, "failed"),
    ] {
        let event = normalized(&worked(status, &directory), &directory);
        assert_eq!(event["status"], expected, "{status:?}");
    }
}

#[test]
fn handoffs_and_denials_keep_what_the_parent_needs() {
    let (_guard, directory) = fresh();
    let text = "```pstack-handoff\n{\"task\":\"t\",\"checkpoint\":\"c\",\"operation\":\"run-checks\",\"files\":[],\"checks\":[\"unit\"],\"summary\":\"please\"}\n```";
    let Handoff::Valid(request) = handoff::parse(text) else { panic!("a valid handoff") };
    let mut receipt = worked(Status::NeedsParentOperation, &directory);
    receipt.workload = Some(WorkloadFields { handoff: Some(request.to_value()), ..WorkloadFields::default() });
    let event = normalized(&receipt, &directory);
    assert_eq!(
        event["handoff"],
        serde_json::json!({"operation": "run-checks", "taskId": "t", "checkpointId": "c", "ref": "please"})
    );

    let mut receipt = worked(Status::MalformedOutput, &directory);
    let tool_denial = Some(ToolDenial {
        verified: true,
        cause: Some(DenialCause::Permission),
        tool: Some("write".to_owned()),
        requested_action: None,
        evidence: "denied".to_owned(),
    });
    receipt.workload = Some(WorkloadFields { tool_denial, terminal_success: Some(false), ..WorkloadFields::default() });
    let event = normalized(&receipt, &directory);
    assert_eq!(
        (&event["status"], &event["deniedCause"]),
        (&Value::from("permission-blocked"), &Value::from("permission"))
    );
}
