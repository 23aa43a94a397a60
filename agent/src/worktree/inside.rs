//! What Git is told inside the container, by environment only: no file of the user's or of the image is edited.

use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) fn environment(safe: &[PathBuf], more: &[(&'static str, &str)]) -> BTreeMap<String, String> {
    let mut settings: Vec<(&str, String)> = [
        ("core.hooksPath", "/dev/null"),
        ("core.fsmonitor", "false"),
        ("credential.helper", ""),
        ("gc.auto", "0"),
        // A container sees one worktree; the others must not look stale to it.
        ("gc.worktreePruneExpire", "never"),
        ("maintenance.auto", "false"),
        ("core.pager", "cat"),
    ]
    .map(|(key, value)| (key, value.to_owned()))
    .to_vec();
    settings.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
    // Exactly what is mounted, never a wildcard.
    for path in safe {
        settings.push(("safe.directory", path.display().to_string()));
    }
    let mut environment = BTreeMap::from([
        ("GIT_CONFIG_NOSYSTEM".to_owned(), "1".to_owned()),
        ("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned()),
        ("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()),
        ("GIT_NO_LAZY_FETCH".to_owned(), "1".to_owned()),
        ("GIT_PAGER".to_owned(), "cat".to_owned()),
        ("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string()),
    ]);
    for (index, (key, value)) in settings.into_iter().enumerate() {
        environment.insert(format!("GIT_CONFIG_KEY_{index}"), key.to_owned());
        environment.insert(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    environment
}
