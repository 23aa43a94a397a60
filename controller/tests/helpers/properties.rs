//! Properties of the policy and the contract over random input. The entries are those of the fuzz targets.

#[path = "../../../tests/fuzz/src/entry.rs"]
mod entry;

use agent::descriptor::{Contract, Mode, Parent, ParentOperation, Provider};
use agent::route::definitions::NativeLanes;
use controller::policy::decision::{Decision, Situation};
use controller::policy::recovery::Look;
use controller::policy::resolve::{Lane, ResolvedAttempt, resolve};
use controller::policy::roles::ROLE_ROWS;
use controller::policy::sheet::Sheet;
use controller::policy::sheet::format::format;
use controller::policy::state::{Event, Execution, HandoffRecord, Inspection, OperationScope, Recovery};
use controller::policy::words::{DeniedCause, EventStatus, InspectionState};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const PIECES: &[&str] = &[
    "bug-fix",
    "feature, refactoring",
    "swarm workers",
    "why investigators, synthesizer",
    ":",
    ": ",
    ":\t",
    ",",
    " -> ",
    "->",
    "\n",
    "\r\n",
    " ",
    "\u{feff}",
    "\u{a0}",
    "#",
    "# ",
    "# access:",
    "# fallback:",
    "# continuation:",
    "# budget:",
    "auto",
    "inherit-parent",
    "grok:g-9@high",
    "opencode:a/b:c@default",
    "claude:claude-opus-4-1@max",
    "@",
    "é",
    "{\"on\":[]}",
    "{\"on\":[\"permission\"],\"max\":4}",
    "{\"provider\":\"grok\",\"funding\":\"included\",\"capacity\":\"high\",\"apiSpend\":\"deny\",\"provenance\":\"user\"}",
];

const JSON_PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "1",
    "1.0",
    "-1",
    "1e400",
    "\"events\"",
    "\"attemptIndex\"",
    "\"status\"",
    "\"failed\"",
    "\"access\"",
    "\"read-only\"",
    "\"version\"",
    "\"operations\"",
    "\"id\"",
    "\"\\ud800\"",
    "{\"version\":1,\"operations\":[",
    "{\"id\":\"a\",\"task\":\"t\",\"checkpoint\":\"c\",\"kind\":\"run-checks\",\"state\":\"pending\",\"expected\":{},\"recordedAt\":\"n\",\"completedAt\":null}",
    "{\"events\":[],\"access\":\"read-only\"}",
    "{\"schemaVersion\":2,",
    "\"complete\"",
    "```",
    "```pstack-handoff",
    "\n",
    " ",
    "{\"task\":\"t\",\"checkpoint\":\"c\",\"operation\":\"run-checks\",\"files\":[],\"checks\":[\"x\"],\"summary\":\"s\"}",
];

fn pieces(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    vec(select(of), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_as_a_sheet_give_rows_or_issues(bytes in vec(any::<u8>(), 0..300)) {
        entry::sheet(&bytes);
    }

    #[test]
    fn any_pieces_of_the_grammar_give_rows_or_issues(text in pieces(PIECES)) {
        entry::sheet(text.as_bytes());
    }

    #[test]
    fn any_bytes_as_response_ledger_state_or_receipt_give_a_result_or_an_error(bytes in vec(any::<u8>(), 0..300)) {
        entry::handoff(&bytes);
        entry::ledger(&bytes);
        entry::state(&bytes);
    }

    #[test]
    fn any_pieces_of_json_give_a_result_or_an_error(text in pieces(JSON_PIECES)) {
        entry::handoff(text.as_bytes());
        entry::ledger(text.as_bytes());
        entry::state(text.as_bytes());
    }

    #[test]
    fn formatting_keeps_the_meaning_of_a_valid_sheet(rows in vec(row(), 1..15), blank in select(vec!["", " ", "\t", "  "])) {
        let mut seen = Vec::new();
        let mut text = String::from("# budget: small\n\nprose\n");
        for (header, seats) in &rows {
            if seen.contains(header) {
                continue; // a row may stand once only
            }
            seen.push(*header);
            let seats: Vec<String> = seats.iter().map(|seat| seat.join(&format!("{blank}->{blank}"))).collect();
            text.push_str(&format!("{header}:{blank}{}{blank}\r\n", seats.join(&format!("{blank},{blank}"))));
        }
        prop_assert!(Sheet::read(&text).is_ok(), "{text}");
        let formatted = format(&text).unwrap();
        prop_assert_eq!(entry::outline(&formatted), entry::outline(&text));
        prop_assert_eq!(format(&formatted).unwrap(), formatted);
    }

    #[test]
    fn next_stays_within_the_saved_chain_whatever_happens(
        policy in policy(), steps in vec(step(), 0..9), access in select(Mode::ALL.to_vec())
    ) {
        Run::new(&policy, access).play(&steps);
    }

    #[test]
    fn next_decides_or_refuses_for_any_history(policy in policy(), steps in vec((0u64..4, step()), 0..6)) {
        let run = Run::new(&policy, Mode::IsolatedWrite);
        let events: Vec<Event> = steps.iter().enumerate().map(|(at, (index, step))| run.event(*index, step, at)).collect();
        let exhausted = [Provider::Grok];
        let situation = Situation { lane: &run.lane, events: &events, exhausted: &exhausted, access: run.access };
        if situation.check_history().is_ok() {
            check(&situation, &situation.decide(Look::Recorded));
        }
    }
}

fn row() -> impl Strategy<Value = (&'static str, Vec<Vec<&'static str>>)> {
    (0..ROLE_ROWS.len()).prop_flat_map(|at| {
        let role = &ROLE_ROWS[at];
        let chain = if role.native_only {
            select(vec![vec!["auto"], vec!["inherit-parent"]]).boxed()
        } else {
            select(vec![
                vec!["auto"],
                vec!["grok:g@high", "devin:swe-2@max", "inherit-parent"],
                vec!["opencode:a/b:c/d@default", "auto"],
                vec!["claude:claude-fable-9@low"],
                vec!["antigravity:x.y@default"],
            ])
            .boxed()
        };
        let seats = if role.seats == controller::policy::roles::Seats::One { 1..2 } else { 1..4usize };
        (Just(role.header), vec(chain, seats))
    })
}

/// A sheet with one chain of up to three accounts, some of them blocked, and saved permissions.
fn policy() -> impl Strategy<Value = String> {
    let chain = select(vec![
        "grok:g@high",
        "grok:g@high -> devin:d@default",
        "grok:g@high -> auto -> claude:c@low",
        "auto -> grok:g@high",
    ]);
    let fallback = select(vec![
        "",
        "[]",
        "[\"usage-exhausted\",\"terminal-failure\"]",
        "[\"usage-exhausted\",\"route-unavailable\",\"terminal-failure\",\"deadline-exceeded\"]",
    ]);
    let continuation = select(vec!["", "\"permission\"", "\"permission\",\"handoff\""]);
    (chain, fallback, continuation, 1..5u64, vec(select(vec!["included", "included", "included", "unknown"]), 4)).prop_map(
        |(chain, fallback, continuation, max, funding)| {
            let mut text = String::new();
            for (provider, funding) in ["grok", "devin", "codex", "claude"].iter().zip(funding) {
                text.push_str(&format!(
                    "# access: {{\"provider\":\"{provider}\",\"funding\":\"{funding}\",\"capacity\":\"high\",\"apiSpend\":\"deny\",\"provenance\":\"user\"}}\n"
                ));
            }
            if !fallback.is_empty() {
                text.push_str(&format!("# fallback: {{\"on\":{fallback}}}\n"));
            }
            if !continuation.is_empty() {
                text.push_str(&format!("# continuation: {{\"on\":[{continuation}],\"max\":{max}}}\n"));
            }
            text + "swarm workers: " + chain + "\n"
        },
    )
}

/// How one execution ends and what the parent then records.
#[derive(Clone, Debug)]
struct Step {
    status: EventStatus,
    started: Option<bool>,
    inspection: Option<InspectionState>,
    cause: DeniedCause,
    /// Which identity is prepared: 0 a fresh one, otherwise one that was used before.
    reuse: u8,
    same_correction: bool,
    exhausts: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let status = prop_oneof![
        3 => Just(EventStatus::PermissionBlocked), 3 => Just(EventStatus::NeedsParentOperation), 4 => select(EventStatus::ALL.to_vec()),
    ];
    let inspection =
        prop_oneof![4 => Just(Some(InspectionState::Clear)), 1 => Just(None), 1 => Just(Some(InspectionState::Unsafe))];
    let cause = prop_oneof![4 => Just(DeniedCause::Permission), 1 => select(DeniedCause::ALL[1..].to_vec())];
    (status, select(vec![None, Some(true), Some(false)]), inspection, cause, 0..4u8, any::<bool>(), any::<bool>())
        .prop_map(|(status, started, inspection, cause, reuse, same_correction, exhausts)| Step {
            status,
            started,
            inspection,
            cause,
            reuse,
            same_correction,
            exhausts,
        })
}

/// A parent that follows the decisions on one lane.
struct Run {
    lane: Lane,
    access: Mode,
}

impl Run {
    fn new(policy: &str, access: Mode) -> Self {
        let sheet = Sheet::read(policy).unwrap();
        let resolved = resolve(&sheet, "swarm workers", Parent::Codex, &NativeLanes::Shipped).unwrap().unwrap();
        Self { lane: resolved.lanes.into_iter().next().unwrap(), access }
    }

    /// Does what is decided, with the given ends, and checks every decision.
    fn play(&self, steps: &[Step]) {
        let (mut events, mut exhausted): (Vec<Event>, Vec<Provider>) = (Vec::new(), Vec::new());
        for (at, step) in steps.iter().enumerate() {
            let situation = Situation { lane: &self.lane, events: &events, exhausted: &exhausted, access: self.access };
            situation
                .check_history()
                .unwrap_or_else(|error| panic!("an honest history is refused: {error}\n{events:#?}"));
            let decision = situation.decide(Look::Recorded);
            check(&situation, &decision);
            let event = match decision {
                Decision::Launch { attempt_index, .. } => self.event(attempt_index, step, at),
                Decision::Continue { attempt_index, prepared_execution, .. } => {
                    Event { execution: Some(prepared_execution), ..self.event(attempt_index, step, at) }
                }
                Decision::ParentOperation { attempt_index, operation } => {
                    let scope = OperationScope {
                        kind: operation.kind,
                        task: operation.task_id,
                        checkpoint: operation.checkpoint_id,
                    };
                    let status = if step.reuse == 3 { EventStatus::Failed } else { EventStatus::Complete };
                    Event { status, parent_operation: Some(scope), ..self.event(attempt_index, &done(), at) }
                }
                Decision::Inspect { .. } | Decision::Stop { .. } | Decision::PolicyDenied { .. } => return,
            };
            if step.exhausts && event.status == EventStatus::UsageExhausted {
                exhausted.push(self.lane.attempts[usize::try_from(event.attempt).unwrap()].exhaustion_group);
            }
            events.push(event);
        }
    }

    fn event(&self, attempt: u64, step: &Step, at: usize) -> Event {
        let correction = if step.same_correction { "same".to_owned() } else { format!("fix {at}") };
        let old = (step.reuse != 0).then(|| at.saturating_sub(usize::from(step.reuse)));
        let execution = self.execution(attempt, at);
        Event {
            attempt,
            status: step.status,
            process_started: step.started,
            inspection: step.inspection.map(|state| Inspection { state, evidence: "seen".to_owned() }),
            continuation_ordinal: None,
            denied_cause: (step.status == EventStatus::PermissionBlocked).then_some(step.cause),
            recovery: Some(Recovery {
                blockage_id: correction.clone(),
                correction,
                snapshot_ref: "s".to_owned(),
                snapshot_digest: "0".repeat(64),
                partial_work_ref: "p".to_owned(),
                side_effects_ref: "e".to_owned(),
                stopped_writers_ref: "w".to_owned(),
                next_execution: self.execution(attempt, old.unwrap_or(at + 1000)),
            }),
            execution: Some(execution),
            handoff: (step.status == EventStatus::NeedsParentOperation).then(|| HandoffRecord {
                scope: OperationScope {
                    kind: ParentOperation::RunChecks,
                    task: "t".to_owned(),
                    checkpoint: format!("c{at}"),
                },
                reference: None,
            }),
            parent_operation: None,
        }
    }

    fn execution(&self, attempt: u64, number: usize) -> Execution {
        let resolved =
            usize::try_from(attempt).ok().and_then(|at| self.lane.attempts.get(at)).unwrap_or(&self.lane.attempts[0]);
        Execution {
            id: format!("x{number}"),
            output_path: format!("/w/o{number}"),
            receipt_path: format!("/w/r{number}"),
            workspace_path: format!("/w/t{number}"),
            descriptor: resolved.descriptor.clone(),
            api_spend: resolved.api_spend,
            access: self.access,
            contract: Contract::Legacy,
        }
    }
}

fn done() -> Step {
    let (status, cause) = (EventStatus::Complete, DeniedCause::None);
    Step { status, started: None, inspection: None, cause, reuse: 0, same_correction: false, exhausts: false }
}

/// What must hold for every decision, whatever led to it.
fn check(situation: &Situation, decision: &Decision) {
    let authorized = |index: u64, attempt: &ResolvedAttempt| {
        assert!(!attempt.blocked(), "a denied route: {decision:?}");
        let index = usize::try_from(index).unwrap();
        assert_eq!(situation.lane.attempts.get(index), Some(attempt), "beyond the saved chain: {decision:?}");
    };
    match decision {
        Decision::Launch { attempt_index, attempt, execution } => {
            authorized(*attempt_index, attempt);
            assert_eq!(*execution, 1);
            assert!(!situation.exhausted.contains(&attempt.exhaustion_group), "an exhausted account: {decision:?}");
            assert!(situation.events.iter().all(|event| event.attempt < *attempt_index), "replayed: {decision:?}");
        }
        Decision::Continue { attempt_index, attempt, execution, prepared_execution: next } => {
            authorized(*attempt_index, attempt);
            assert!(*execution <= situation.lane.continuation.as_ref().unwrap().max_executions);
            assert_eq!(situation.events.last().map(|event| event.attempt), Some(*attempt_index), "another provider");
            for old in situation.events.iter().filter_map(|event| event.execution.as_ref()) {
                assert!(
                    old.id != next.id && old.workspace_path != next.workspace_path,
                    "an identity twice: {decision:?}"
                );
                assert!(old.output_path != next.output_path && old.receipt_path != next.receipt_path, "a path twice");
            }
        }
        Decision::ParentOperation { .. }
        | Decision::Inspect { .. }
        | Decision::Stop { .. }
        | Decision::PolicyDenied { .. } => {}
    }
}
