//! `laneyard policy fmt`: one stable format.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use super::{SheetFile, Style};
use crate::cli::helper::{Answer, Fault, Flags};
use crate::policy::sheet::format::format;

pub(super) fn run(words: &[OsString]) -> Result<Answer, Fault> {
    // Flags come in pairs everywhere in this helper; the two switches may stand alone.
    let switch = |name: &str| words.iter().any(|word| word == name);
    let (write, check) = (switch("--write"), switch("--check"));
    let words: Vec<OsString> = words.iter().filter(|word| *word != "--write" && *word != "--check").cloned().collect();
    let flags = Flags::read(&words, &["--sheet"])?;
    let path = flags.need("--sheet")?;
    let file = SheetFile::open_present(path, Style::Human)?;
    let formatted = format(&file.text).map_err(|issues| file.invalid(&issues))?;
    let shown = path.to_string_lossy();
    if check {
        let failed = formatted != file.text;
        let stdout = if failed { format!("{shown}: not in the stable format\n") } else { String::new() };
        return Ok(Answer { stdout, failed });
    }
    if !write {
        return Ok(formatted.into());
    }
    if formatted != file.text {
        replace(Path::new(path), &formatted)
            .map_err(|error| Fault::Usage(format!("cannot write sheet {shown}: {error}")))?;
    }
    Ok(Answer::default())
}

/// Old or new, never half of it; the file's permissions stay.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.as_file().set_permissions(path.metadata()?.permissions())?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}
