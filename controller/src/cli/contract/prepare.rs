//! `prepare`: the text that governs a worker.

use std::ffi::OsString;

use agent::descriptor::{Contract, Mode, Parent, Provider};
use agent::ownership::{Route, instructions};
use serde::Serialize;

use crate::cli::helper::{Fault, Flags};
use crate::contract::strict;
use crate::json;

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Output {
    Prepared { contract: Contract, enforcement: &'static str, capabilities: [&'static str; 0], instructions: String },
    Unsupported { contract: Contract, missing: &'static [&'static str], reason: String },
}

pub(super) fn run(words: &[OsString]) -> Result<String, Fault> {
    let flags = Flags::read(words, &["--parent", "--provider", "--route", "--mode", "--contract"])?;
    for required in ["--parent", "--provider", "--route", "--mode"] {
        flags.need(required)?;
    }
    let route = match flags.text("--route")?.as_str() {
        "native" => Route::Native,
        "external" => Route::External,
        other => return Err(Fault::Usage(format!("--route must be one of: native, external; not \"{other}\""))),
    };
    let parent: Parent = flags.word("--parent")?;
    let provider: Provider = flags.word("--provider")?;
    let mode: Mode = flags.word("--mode")?;
    let contract = flags.word_or("--contract", Contract::Legacy)?;
    Ok(json::pretty(&match contract {
        Contract::Legacy => Output::Prepared {
            contract,
            enforcement: "prompt-only",
            capabilities: [],
            instructions: instructions(route, mode),
        },
        Contract::Strict => {
            Output::Unsupported { contract, missing: strict::MISSING, reason: strict::reason(parent, provider, route) }
        }
    }))
}
