//! `interpret`: what a final response means for its task.

use std::ffi::OsString;

use agent::handoff::{Handoff, parse};
use serde::Serialize;
use serde_json::Value;

use crate::cli::helper::{Fault, Flags, read_text, unreadable};
use crate::json;

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum Output {
    Complete,
    NeedsParentOperation { handoff: Value },
    Failed { reason: String, malformed_handoff: bool },
}

pub(super) fn run(words: &[OsString]) -> Result<String, Fault> {
    let flags = Flags::read(words, &["--response"])?;
    let path = flags.need("--response")?;
    let text = read_text(path).map_err(|error| unreadable("response", path, &error))?;
    Ok(json::pretty(&match parse(&text) {
        Handoff::None => Output::Complete,
        Handoff::Valid(request) => Output::NeedsParentOperation { handoff: request.to_value() },
        Handoff::Malformed(why) => Output::Failed { reason: why.reason(), malformed_handoff: true },
    }))
}
