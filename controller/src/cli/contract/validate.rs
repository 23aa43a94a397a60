//! `op-validate`: may the parent act on this handoff, and under which digest.

use std::ffi::OsString;

use agent::handoff::{Handoff, parse};

use super::refused;
use crate::cli::helper::{Fault, Flags, read_text, unreadable};
use crate::contract::checkpoint::{Assignment, CheckpointError, validate};
use crate::json;

const ONCE: &[&str] = &["--response", "--repo", "--task", "--checkpoint", "--expected-head"];

pub(super) fn run(words: &[OsString]) -> Result<String, Fault> {
    let known: Vec<&str> = ONCE.iter().copied().chain(["--file", "--check"]).collect();
    let flags = Flags::read(words, &known)?;
    if let Some(flag) = ONCE.iter().find(|flag| flags.all(flag).count() > 1) {
        return Err(Fault::Usage(format!("{flag} may be given once only")));
    }
    let response = flags.need("--response")?;
    let repository = flags.need("--repo")?;
    let (task, checkpoint) = (flags.text("--task")?, flags.text("--checkpoint")?);
    let expected_head = flags.text("--expected-head")?;
    let listed = |flag: &str| flags.all(flag).map(|value| value.to_string_lossy().into_owned()).collect();

    let text = read_text(response).map_err(|error| unreadable("response", response, &error))?;
    let request = match parse(&text) {
        Handoff::Valid(request) => request,
        Handoff::None => return Err(refused(vec!["handoff is none".to_owned()])),
        Handoff::Malformed(why) => return Err(refused(vec![format!("handoff is malformed: {why}")])),
    };
    let assignment = Assignment {
        repository,
        task: &task,
        checkpoint: &checkpoint,
        expected_head: &expected_head,
        files: listed("--file"),
        checks: listed("--check"),
    };
    let validated = validate(&request, &assignment).map_err(|error| match error {
        CheckpointError::Refused(issues) => refused(issues),
        CheckpointError::Io { .. } | CheckpointError::Git { .. } => Fault::of(&error),
    })?;
    Ok(json::pretty(&validated))
}
