//! `pstack-model-policy` and `laneyard policy` (policy-and-contract section 4).

mod check;
mod explain;
mod fmt;
mod human;
mod next;
mod normalize;
mod resolve;
mod validate;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use agent::descriptor::Parent;
use agent::route::definitions::NativeLanes;
use serde::Serialize;

use super::helper::{Answer, Fault, Flags, finish, read_text_if_present, unreadable};
use crate::json;
use crate::policy::resolve::{ResolveError, Resolved, resolve as resolve_role};
use crate::policy::sheet::{Issue, Sheet};

const HEADING: &str = "invalid model sheet:";
/// A directory of Claude agent definitions that replaces the shipped native lanes.
const AGENTS_DIR: &str = "LANEYARD_AGENTS_DIR";

const USAGE: &str = "\
usage: pstack-model-policy <command> [flags]

  validate   --sheet <file> --parent <claude|codex>
  resolve    --sheet <file> --role <role> --parent <claude|codex>
  next       --sheet <file> --role <role> --parent <claude|codex> --state <file> [--lane <n>]
  normalize  --sheet <file> --role <role> --parent <claude|codex> --receipt <file>
             --mode <read-only|isolated-write> [--lane <n>] [--attempt <n>] [--contract <legacy|strict>]

Lanes and attempts are counted from 0. Exit codes: 0 answered, 64 usage or unreadable input, 65 a rule is broken.
";

const USAGE_MORE: &str = "
More under `laneyard policy`:
  explain    --sheet <file> --role <role> --parent <claude|codex>   a table for people
  check      --sheet <file> [--parent <claude|codex>]               findings with line, column and suggestions
  fmt        --sheet <file> [--write | --check]                     one stable format, comments kept
  --json     plain issue lines as the helper of that name prints them
";

/// How issues are told on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Exactly as documented.
    Compatible,
    /// With file, line and column.
    Human,
}

/// The helper under its own name; `words` without the program name.
pub fn helper(words: &[OsString]) -> ExitCode {
    finish(run(words, Style::Compatible), USAGE)
}

/// `laneyard policy …`: the same commands and more. `--json` asks for the helper's exact output.
pub fn command(words: &[OsString]) -> ExitCode {
    let plain: Vec<OsString> = words.iter().filter(|word| *word != "--json").cloned().collect();
    let style = if plain.len() == words.len() { Style::Human } else { Style::Compatible };
    let usage = format!("{}{USAGE_MORE}", USAGE.replace("pstack-model-policy", "laneyard policy"));
    let result = match plain.first().and_then(|word| word.to_str()) {
        None | Some("--help" | "-h") => Ok(usage.clone().into()),
        Some("explain") => explain::run(&plain[1..]),
        Some("check") => check::run(&plain[1..]),
        Some("fmt") => fmt::run(&plain[1..]),
        Some(_) => run(&plain, style),
    };
    finish(result, &usage)
}

fn run(words: &[OsString], style: Style) -> Result<Answer, Fault> {
    let Some(command) = words.first() else { return Ok(USAGE.to_owned().into()) };
    let words = &words[1..];
    let answer = match command.to_str() {
        Some("--help" | "-h") => Ok(USAGE.to_owned()),
        Some("validate") => validate::run(words, style),
        Some("resolve") => resolve::run(words, style),
        Some("next") => next::run(words, style),
        Some("normalize") => normalize::run(words, style),
        _ => Err(Fault::Usage(format!("unknown command: {}", command.to_string_lossy()))),
    };
    answer.map(Answer::from)
}

/// A sheet file that was read, under the name that the caller gave it.
struct SheetFile<'a> {
    path: &'a OsStr,
    text: String,
    style: Style,
}

impl<'a> SheetFile<'a> {
    /// `None` when the file is absent.
    fn open(path: &'a OsStr, style: Style) -> Result<Option<Self>, Fault> {
        let text = read_text_if_present(path).map_err(|error| unreadable("sheet", path, &error))?;
        Ok(text.map(|text| Self { path, text, style }))
    }

    /// An absent file is a fault, too.
    fn open_present(path: &'a OsStr, style: Style) -> Result<Self, Fault> {
        let absent = || Fault::Usage(format!("cannot read sheet {}: no such file", path.to_string_lossy()));
        Self::open(path, style)?.ok_or_else(absent)
    }

    fn parse(&self) -> Result<Sheet, Fault> {
        Sheet::read(&self.text).map_err(|issues| self.invalid(&issues))
    }

    fn invalid(&self, issues: &[Issue]) -> Fault {
        let issues = match self.style {
            Style::Compatible => issues.iter().map(ToString::to_string).collect(),
            Style::Human => human::located(&self.path.to_string_lossy(), &self.text, issues),
        };
        Fault::Rules { heading: HEADING, issues }
    }

    fn unresolved(&self, error: ResolveError) -> Fault {
        match error {
            ResolveError::Invalid(issues) => self.invalid(&issues),
            ResolveError::Definitions(error) => Fault::of(&error),
        }
    }
}

/// A role looked up in a sheet file.
enum Lookup {
    /// The answer that says so.
    Unconfigured(String),
    Found(Resolved),
}

fn look_up(path: &OsStr, role: &str, parent: Parent, style: Style) -> Result<Lookup, Fault> {
    let Some(file) = SheetFile::open(path, style)? else {
        let reason = format!("sheet not found: {}", path.to_string_lossy());
        return Ok(Lookup::Unconfigured(unconfigured(role, Some(reason))));
    };
    let sheet = file.parse()?;
    match resolve_role(&sheet, role, parent, &native_lanes()).map_err(|error| file.unresolved(error))? {
        None => Ok(Lookup::Unconfigured(unconfigured(role, None))),
        Some(resolved) => Ok(Lookup::Found(resolved)),
    }
}

/// One compact line: the caller uses its documented default as one attempt, without fallback.
fn unconfigured(role: &str, reason: Option<String>) -> String {
    #[derive(Serialize)]
    struct Unconfigured<'a> {
        status: &'a str,
        role: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }
    json::compact(&Unconfigured { status: "unconfigured", role, reason }) + "\n"
}

fn native_lanes() -> NativeLanes {
    NativeLanes::new(std::env::var_os(AGENTS_DIR).filter(|path| !path.is_empty()).map(PathBuf::from))
}

/// The lane of a resolved role, by its zero-based index.
fn lane(resolved: &Resolved, index: u64) -> Result<&crate::policy::resolve::Lane, Fault> {
    let lane = usize::try_from(index).ok().and_then(|index| resolved.lanes.get(index));
    lane.ok_or_else(|| {
        let count = resolved.lanes.len();
        Fault::Usage(format!("--lane {index} is out of range: \"{}\" has {count} lane(s)", resolved.role.header))
    })
}

fn sheet_and_role<'a>(flags: &Flags<'a>) -> Result<(&'a OsStr, String), Fault> {
    Ok((flags.need("--sheet")?, flags.text("--role")?))
}
