//! `pstack-worker-contract` and `laneyard contract` (policy-and-contract section 10).

mod interpret;
mod ledger;
mod prepare;
mod record;
mod status;
mod validate;

use std::ffi::OsString;
use std::process::ExitCode;

use super::helper::{Answer, Fault, finish};
use crate::contract::ledger::store::StoreError;

const HEADING: &str = "invalid operation:";

const USAGE: &str = "\
usage: pstack-worker-contract <command> [flags]

  prepare      --parent <claude|codex> --provider <provider> --route <native|external>
               --mode <read-only|isolated-write> [--contract <legacy|strict>]
  interpret    --response <file>
  op-validate  --response <file> --repo <worktree> --task <task> --checkpoint <checkpoint> --expected-head <id>
               [--file <path>]... [--check <check>]...
  op-record    --ledger <file> --id <id> --task <task> --checkpoint <checkpoint>
               --kind <commit-checkpoint|run-checks> --state <pending|complete|rejected>
               [--expected <json object>] [--result <json>]
  op-status    --ledger <file>

Exit codes: 0 answered, 64 usage or unreadable input, 65 a rule is broken.
";

const USAGE_MORE: &str = "
More under `laneyard contract`:
  ledger       --ledger <file>   the operations as a table for people
";

/// The helper under its own name; `words` without the program name.
pub fn helper(words: &[OsString]) -> ExitCode {
    finish(run(words), USAGE)
}

/// `laneyard contract …`: the same commands and more. `--json` is accepted, since all answers are JSON already.
pub fn command(words: &[OsString]) -> ExitCode {
    let words: Vec<OsString> = words.iter().filter(|word| *word != "--json").cloned().collect();
    let usage = format!("{}{USAGE_MORE}", USAGE.replace("pstack-worker-contract", "laneyard contract"));
    let result = match words.first().and_then(|word| word.to_str()) {
        None | Some("--help" | "-h") => Ok(usage.clone().into()),
        Some("ledger") => ledger::run(&words[1..]).map(Answer::from),
        Some(_) => run(&words),
    };
    finish(result, &usage)
}

fn run(words: &[OsString]) -> Result<Answer, Fault> {
    let Some(command) = words.first() else { return Ok(USAGE.to_owned().into()) };
    let words = &words[1..];
    let answer = match command.to_str() {
        Some("--help" | "-h") => Ok(USAGE.to_owned()),
        Some("prepare") => prepare::run(words),
        Some("interpret") => interpret::run(words),
        Some("op-validate") => validate::run(words),
        Some("op-record") => record::run(words),
        Some("op-status") => status::run(words),
        _ => Err(Fault::Usage(format!("unknown command: {}", command.to_string_lossy()))),
    };
    answer.map(Answer::from)
}

fn refused(issues: Vec<String>) -> Fault {
    Fault::Rules { heading: HEADING, issues }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Invalid(issues) => refused(issues),
            StoreError::Step(_) | StoreError::Locked(_) => refused(vec![error.to_string()]),
            StoreError::Io { .. } => Self::of(&error),
        }
    }
}
