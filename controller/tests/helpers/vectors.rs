//! The golden vectors of the policy and contract reference, run against the real program byte for byte
//! (policy-and-contract section 14), under both names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{Called, Helper, fresh};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    id: String,
    cmd: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    setup: Vec<String>,
    exit: i32,
    stdout: String,
    stderr_nonempty: bool,
    #[serde(default)]
    mask: Vec<String>,
    #[serde(default)]
    after: BTreeMap<String, Option<String>>,
    #[serde(default, rename = "note")]
    _note: String,
}

fn run_all(helper: Helper, vectors: &str) {
    let mut failures = Vec::new();
    let mut count = 0;
    for line in vectors.lines().filter(|line| !line.is_empty()) {
        let vector: Vector = serde_json::from_str(line).unwrap();
        for called in [Called::ByName, Called::ByLink, Called::AsSubcommand] {
            count += 1;
            if let Err(why) = run(&vector, helper, called) {
                failures.push(format!("{} ({called:?}): {why}", vector.id));
            }
        }
    }
    assert!(count > 150, "only {count} runs: the vector file is cut");
    assert!(failures.is_empty(), "{} of {count} runs differ:\n{}", failures.len(), failures.join("\n\n"));
}

fn run(vector: &Vector, helper: Helper, called: Called) -> Result<(), String> {
    let (_guard, directory) = fresh();
    let real = directory.to_str().unwrap();
    let placed = |text: &str| text.replace("{{DIR}}", real);
    for (name, content) in &vector.files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, placed(content)).unwrap();
    }
    for command in &vector.setup {
        let status = Command::new("sh").args(["-c", &placed(command)]).current_dir(&directory).status().unwrap();
        assert!(status.success(), "setup of {}: {command}", vector.id);
    }
    let words: Vec<String> = vector
        .cmd
        .iter()
        .map(|word| word.strip_prefix('@').map_or_else(|| placed(word), |name| format!("{real}/{name}")))
        .collect();
    let output = helper.command(called, &words, &directory).output().unwrap();
    let (stdout, stderr) = (crate::program::stdout(&output), crate::program::stderr(&output));
    if output.status.code() != Some(vector.exit) {
        return Err(format!("exit {:?} instead of {}\n{stdout}{stderr}", output.status.code(), vector.exit));
    }
    if stderr.is_empty() == vector.stderr_nonempty {
        return Err(format!("stderr: {stderr:?}"));
    }
    same(&masked(&stdout, &vector.mask)?, &placed(&vector.stdout)).map_err(|why| format!("stdout {why}"))?;
    vector.after.iter().try_for_each(|(name, expected)| after(&directory.join(name), expected.as_deref().map(placed)))
}

fn after(path: &Path, expected: Option<String>) -> Result<(), String> {
    match (fs::read_to_string(path), expected) {
        (Ok(found), Some(expected)) => same(&found, &expected).map_err(|why| format!("{} {why}", path.display())),
        (Err(_), None) if !path.exists() => Ok(()),
        (found, expected) => Err(format!("{}: {found:?} instead of {expected:?}", path.display())),
    }
}

/// Replaces free text by its mark, after making sure that there is some.
fn masked(stdout: &str, mask: &[String]) -> Result<String, String> {
    if mask.iter().any(String::is_empty) {
        return if stdout.is_empty() { Err("empty".to_owned()) } else { Ok("{{TEXT}}".to_owned()) };
    }
    if mask.is_empty() {
        return Ok(stdout.to_owned());
    }
    let mut value: Value = serde_json::from_str(stdout).map_err(|error| error.to_string())?;
    for pointer in mask {
        let text = value.pointer_mut(pointer).ok_or_else(|| format!("nothing at {pointer}"))?;
        match text.as_str() {
            Some(free) if !free.is_empty() => *text = "{{TEXT}}".into(),
            _ => return Err(format!("no text at {pointer}")),
        }
    }
    Ok(format!("{}\n", serde_json::to_string_pretty(&value).unwrap()))
}

/// Compares byte for byte; `{{NOW}}` stands for a UTC time with milliseconds.
fn same(found: &str, expected: &str) -> Result<(), String> {
    let mut rest = found;
    for (at, part) in expected.split("{{NOW}}").enumerate() {
        if at > 0 {
            let (time, after) = rest.split_at_checked(24).ok_or("too short")?;
            if !is_time(time) {
                return Err(format!("no time: {time:?}"));
            }
            rest = after;
        }
        rest =
            rest.strip_prefix(part).ok_or_else(|| format!("differs\n--- found\n{found}\n--- expected\n{expected}"))?;
    }
    if rest.is_empty() { Ok(()) } else { Err(format!("goes on: {rest:?}")) }
}

fn is_time(text: &str) -> bool {
    text.bytes().zip("dddd-dd-ddTdd:dd:dd.dddZ".bytes()).all(|(found, shape)| match shape {
        b'd' => found.is_ascii_digit(),
        other => found == other,
    })
}

#[test]
fn every_policy_vector_agrees_byte_for_byte() {
    run_all(Helper::Policy, include_str!("../vectors/policy.jsonl"));
}

#[test]
fn every_contract_vector_agrees_byte_for_byte() {
    run_all(Helper::Contract, include_str!("../vectors/contract.jsonl"));
}
