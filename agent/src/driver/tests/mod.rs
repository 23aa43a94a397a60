//! The drivers through their trait: commands, recorded transcripts, every pinned edge case.

mod claude;
mod codex;
mod commands;
mod pieces;
mod recorded;

use super::*;

/// A lane with nothing special about it.
fn lane(provider: Provider, mode: Mode) -> Lane {
    Lane {
        parent: if provider == Provider::Codex { Parent::Claude } else { Parent::Codex },
        provider,
        model: if provider == Provider::Codex { "gpt-5.6-sol" } else { "opus" }.to_owned(),
        effort: Effort::High,
        mode,
        contract: Contract::Legacy,
        api_spend: None,
        cwd: "/w/wt".to_owned(),
        home: "/home/lane".to_owned(),
        receipt: "/r/receipt.json".to_owned(),
        prompt: b"do it\n".to_vec(),
        environment: Environment::new(),
    }
}

/// What a run that printed this comes to.
fn run(lane: &Lane, stdout: &str, stderr: &str, exit: ChildExit) -> (Vec<EventBody>, Judgement) {
    let mut transcript = of(lane.provider).unwrap().transcript(lane);
    let mut events = Vec::new();
    transcript.stdout(stdout.as_bytes(), &mut events);
    transcript.stderr(stderr.as_bytes(), &mut events);
    let judgement = transcript.finish(exit, &mut events);
    (events, judgement)
}

/// `complete`, `handoff`, `handoff-malformed`, or `<status> <phase>: <message>`.
fn outcome(judgement: &Judgement) -> String {
    match &judgement.verdict {
        Verdict::Delivered(delivered) if delivered.handoff.is_some() => "handoff".to_owned(),
        Verdict::Delivered(_) => "complete".to_owned(),
        Verdict::HandoffMalformed { .. } => "handoff-malformed".to_owned(),
        Verdict::Failed { status, phase, message } => {
            format!("{} {}: {message}", status.as_str(), format!("{phase:?}").to_lowercase())
        }
    }
}

fn delivered(judgement: &Judgement) -> &Delivered {
    match &judgement.verdict {
        Verdict::Delivered(delivered) | Verdict::HandoffMalformed { delivered, .. } => delivered,
        Verdict::Failed { .. } => panic!("not delivered: {judgement:?}"),
    }
}

/// Checks outcome (by its beginning), success of the terminal record, and the evidence without its counts.
#[track_caller]
fn expect(judgement: &Judgement, expected: &str, terminal_success: bool, evidence: &[&str]) {
    let outcome = outcome(judgement);
    assert!(outcome.starts_with(expected), "{outcome}\nexpected {expected}");
    assert_eq!(judgement.terminal_success, terminal_success, "terminal success of {outcome}");
    let lines: Vec<&str> = judgement.evidence.lines().collect();
    let (counts, kept) = lines.split_last().unwrap();
    assert!(counts.starts_with("stdout: "), "{counts}");
    assert_eq!(kept, evidence, "evidence of {outcome}");
}
