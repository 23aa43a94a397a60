//! Agent definition files of Claude Code: which model and effort each native lane runs (policy-and-contract 3.1).
//! The shipped set is built in; a directory of definitions replaces it as a whole.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{NativeLane, native, stale_pin};
use crate::descriptor::{Effort, Parent, Provider, SELECTABLE_EFFORTS};

/// Where the native lanes of a Claude parent come from.
#[derive(Debug)]
pub enum NativeLanes {
    /// The 15 lanes that the plugin ships.
    Shipped,
    /// The definitions of a directory, read when the first Claude descriptor asks for them.
    Directory {
        /// The directory.
        path: PathBuf,
        /// What it held.
        read: OnceCell<Vec<Definition>>,
    },
}

/// One definition file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: String,
    pub model: String,
    pub effort: Effort,
}

/// A definition cannot be trusted. It is a fault, never a reason to choose another route.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error("cannot read agent definitions in {}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot read agent definition {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("agent definition {}: {rule}", .path.display())]
    Broken { path: PathBuf, rule: &'static str },
    #[error("agent definitions {first} and {second} have the same model and effort")]
    Duplicate { first: String, second: String },
}

impl NativeLanes {
    /// The definitions of `directory`, or the shipped ones without it. Reads nothing yet.
    #[must_use]
    pub fn new(directory: Option<PathBuf>) -> Self {
        directory.map_or(Self::Shipped, |path| Self::Directory { path, read: OnceCell::new() })
    }

    /// The native lane that covers a descriptor; `None` means the external runner.
    ///
    /// # Errors
    /// Definitions that cannot be read or trusted.
    pub fn native(
        &self,
        parent: Parent,
        provider: Provider,
        model: &str,
        effort: Effort,
    ) -> Result<Option<NativeLane>, DefinitionError> {
        let Self::Directory { path, read } = self else { return Ok(native(parent, provider, model, effort)) };
        if (parent, provider) != (Parent::Claude, Provider::Claude) {
            return Ok(native(parent, provider, model, effort));
        }
        let definitions = match read.get() {
            Some(definitions) => definitions,
            None => {
                let definitions = read_directory(path)?;
                read.get_or_init(|| definitions)
            }
        };
        let model = stale_pin(model).unwrap_or(model);
        let found = definitions.iter().find(|definition| definition.model == model && definition.effort == effort);
        Ok(found.map(|definition| NativeLane::ClaudeAgent { name: definition.name.clone() }))
    }
}

fn read_directory(directory: &Path) -> Result<Vec<Definition>, DefinitionError> {
    let failed = |source| DefinitionError::Directory { path: directory.to_owned(), source };
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.starts_with("pstack-") && name.ends_with(".md") {
            names.push(name);
        }
    }
    names.sort();
    let mut definitions: Vec<Definition> = Vec::with_capacity(names.len());
    for name in names {
        let path = directory.join(&name);
        let text = fs::read(&path).map_err(|source| DefinitionError::File { path: path.clone(), source })?;
        let stem = name.strip_suffix(".md").unwrap_or(&name);
        let definition = read_definition(stem, &String::from_utf8_lossy(&text))
            .map_err(|rule| DefinitionError::Broken { path, rule })?;
        let same = |other: &&Definition| other.model == definition.model && other.effort == definition.effort;
        if let Some(other) = definitions.iter().find(same) {
            return Err(DefinitionError::Duplicate { first: other.name.clone(), second: definition.name });
        }
        definitions.push(definition);
    }
    Ok(definitions)
}

fn read_definition(stem: &str, text: &str) -> Result<Definition, &'static str> {
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    if lines.next() != Some("---") {
        return Err("must begin with a header block between two lines `---`");
    }
    let (mut name, mut model, mut effort, mut background) = (None, None, None, None);
    loop {
        let line = lines.next().ok_or("the header block has no end")?;
        if line == "---" {
            break;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "name" => name = Some(value.trim()),
            "model" => model = Some(value.trim()),
            "effort" => effort = Some(value.trim()),
            "background" => background = Some(value.trim()),
            _ => {}
        }
    }
    if name != Some(stem) {
        return Err("`name` must be the file's name without `.md`");
    }
    let effort = effort.and_then(|effort| effort.parse().ok()).filter(|effort| SELECTABLE_EFFORTS.contains(effort));
    if background != Some("true") {
        return Err("`background` must be `true`");
    }
    Ok(Definition {
        name: stem.to_owned(),
        model: model.filter(|model| !model.is_empty()).ok_or("`model` must not be empty")?.to_owned(),
        effort: effort.ok_or("`effort` must be one of low, medium, high, xhigh, max")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn lane(dir: &Path, model: &str, effort: Effort) -> Result<Option<String>, DefinitionError> {
        let lanes = NativeLanes::new(Some(dir.to_owned()));
        Ok(lanes.native(Parent::Claude, Provider::Claude, model, effort)?.map(|lane| lane.to_string()))
    }

    const HAIKU: &str =
        "---\r\nname: pstack-haiku-low\r\nmodel: haiku\r\neffort: low\r\nbackground: true\r\n---\r\nText.\n";

    #[test]
    fn a_definition_file_adds_a_lane_and_other_files_are_ignored() {
        let dir = directory(&[("pstack-haiku-low.md", HAIKU), ("readme.md", "x"), ("pstack-x.txt", "x")]);
        assert_eq!(lane(dir.path(), "haiku", Effort::Low).unwrap().as_deref(), Some("pstack-haiku-low"));
        assert_eq!(lane(dir.path(), "haiku", Effort::High).unwrap(), None);
        assert_eq!(lane(dir.path(), "opus", Effort::High).unwrap(), None);
    }

    #[test]
    fn broken_definitions_are_faults() {
        for (from, to) in [
            ("name: pstack-haiku-low", "name: other"),
            ("model: haiku", "model: "),
            ("effort: low", "effort: default"),
            ("background: true", "background: yes"),
            ("---\r\nname", "name"),
            ("---\r\nText", "Text"),
        ] {
            let dir = directory(&[("pstack-haiku-low.md", &HAIKU.replace(from, to))]);
            assert!(matches!(lane(dir.path(), "opus", Effort::Low), Err(DefinitionError::Broken { .. })), "{from}");
        }
        let twin = HAIKU.replace("pstack-haiku-low", "pstack-haiku");
        let dir = directory(&[("pstack-haiku-low.md", HAIKU), ("pstack-haiku.md", &twin)]);
        assert!(matches!(lane(dir.path(), "opus", Effort::Low), Err(DefinitionError::Duplicate { .. })));
        assert!(matches!(lane(&dir.path().join("none"), "opus", Effort::Low), Err(DefinitionError::Directory { .. })));
    }

    #[test]
    fn the_directory_matters_only_for_claude_under_claude() {
        let lanes = NativeLanes::new(Some(PathBuf::from("/nonexistent")));
        assert!(lanes.native(Parent::Codex, Provider::Claude, "opus", Effort::Low).unwrap().is_none());
        assert!(lanes.native(Parent::Codex, Provider::Codex, "x", Effort::Low).unwrap().is_some());
    }
}
