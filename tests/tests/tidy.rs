//! Rules of the code base that a compiler does not check.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Lines a file may have; aim at 400.
const LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All files below a directory with this extension, generated ones left out.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

fn sources() -> Vec<(PathBuf, String)> {
    let members = ["agent", "controller", "tests"].map(|member| root().join(member));
    let paths = members.iter().flat_map(|member| files(member, "rs"));
    paths.map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn files_stay_short_enough_to_read() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|(path, text)| (text.lines().count(), path))
        .filter(|(lines, _)| *lines > LINES)
        .collect();
    assert!(long.is_empty(), "split by concern: {long:#?}");
}

#[test]
fn the_worker_side_never_depends_on_the_controller() {
    let manifest = fs::read_to_string(root().join("agent/Cargo.toml")).unwrap();
    assert!(!manifest.contains("controller"));
}

#[test]
fn only_one_module_names_the_engine_library() {
    let naming: Vec<_> = sources()
        .into_iter()
        .filter(|(path, text)| {
            let docker = path.components().any(|part| part.as_os_str() == "docker");
            text.contains("bollard::") && !docker && !path.ends_with("tests/tests/tidy.rs")
        })
        .map(|(path, _)| path)
        .collect();
    assert!(naming.is_empty(), "{naming:#?}");
}

#[test]
fn drivers_never_spawn_wait_or_touch_a_file() {
    for path in files(&root().join("agent/src/driver"), "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for word in ["std::fs", "std::process", "tokio::", "Instant::now", "SystemTime::now", "now_utc("] {
            assert!(!code.contains(word), "`{word}` in {}", path.display());
        }
    }
}
