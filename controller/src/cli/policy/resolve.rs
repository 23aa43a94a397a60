//! `resolve`: what a role's lanes are for a parent.

use std::ffi::OsString;

use serde::Serialize;

use super::{Lookup, Style, look_up, sheet_and_role};
use crate::cli::helper::{Fault, Flags};
use crate::json;
use crate::policy::resolve::Lane;

#[derive(Serialize)]
struct Output<'a> {
    status: &'a str,
    role: &'a str,
    header: &'a str,
    lanes: &'a [Lane],
}

pub(super) fn run(words: &[OsString], style: Style) -> Result<String, Fault> {
    let flags = Flags::read(words, &["--sheet", "--role", "--parent"])?;
    let (sheet, role) = sheet_and_role(&flags)?;
    let parent = flags.word("--parent")?;
    Ok(match look_up(sheet, &role, parent, style)? {
        Lookup::Unconfigured(answer) => answer,
        Lookup::Found(resolved) => json::pretty(&Output {
            status: "resolved",
            role: &role,
            header: resolved.role.header,
            lanes: &resolved.lanes,
        }),
    })
}
