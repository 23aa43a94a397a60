//! `validate`: may this sheet be saved for this parent.

use std::ffi::OsString;

use super::{SheetFile, Style, native_lanes};
use crate::cli::helper::{Fault, Flags};
use crate::json;
use crate::policy::validate::validate;

pub(super) fn run(words: &[OsString], style: Style) -> Result<String, Fault> {
    let flags = Flags::read(words, &["--sheet", "--parent"])?;
    let path = flags.need("--sheet")?;
    let parent = flags.word("--parent")?;
    let file = SheetFile::open_present(path, style)?;
    let sheet = file.parse()?;
    let roles = validate(&sheet, parent, &native_lanes()).map_err(|error| file.unresolved(error))?;
    Ok(json::compact(&serde_json::json!({"status": "valid", "roles": roles})) + "\n")
}
