//! Git's configuration as a lane may see it: credential helpers, secrets in URLs and headers, hooks and programs are left
//! out of a copy that is mounted over the original. The original is never touched.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::container::Finding;
use crate::container::spec::{Access, Mount};
use crate::worktree::WorktreeError;
use crate::worktree::git::{Git, GitError};
use crate::worktree::resolve::Place;

/// Configuration files looked at below a repository's `modules`.
const MOST_FILES: usize = 512;

/// What a configuration file says: keys, and values where they have one.
type Entries = Vec<(String, Option<String>)>;

/// The configuration that is most likely asked for, read while git still says where the repository is.
#[derive(Debug)]
pub(super) struct Ahead(Option<(PathBuf, Entries)>);

impl Ahead {
    /// Of a working directory that is the top of an ordinary repository.
    pub(super) async fn read(git: &Git, cwd: &Path) -> Self {
        let file = cwd.join(".git").join("config");
        let plain = |path: &Path| path.symlink_metadata().is_ok_and(|meta| !meta.is_symlink());
        if !plain(&cwd.join(".git")) || !plain(&file) {
            return Self(None);
        }
        // Whether it can be read counts when it is asked for.
        Self(git.config_file(&file).await.ok().map(|entries| (file, entries)))
    }

    async fn config_file(&mut self, git: &Git, file: &Path) -> Result<Entries, GitError> {
        match self.0.take_if(|(read, _)| read == file) {
            Some((_, entries)) => Ok(entries),
            None => git.config_file(file).await,
        }
    }
}

/// Mounts that hide what must not be seen. Copies are written below `private_dir`.
pub(super) async fn overlays(
    (git, mut ahead): (&Git, Ahead),
    common: &Path,
    place: &Place,
    private_dir: &Path,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Mount>, WorktreeError> {
    let mut mounts = Vec::new();
    let mut targets: Vec<PathBuf> = vec![common.join("config"), common.join("config.worktree")];
    if let Some(git_dir) = &place.git_dir {
        targets.push(git_dir.join("config.worktree"));
    }
    nested_configs(&common.join("modules"), &mut targets, 0);
    nested_configs(&common.join("worktrees"), &mut targets, 0);
    targets.dedup();
    for target in targets {
        if !target.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let (text, dropped) = harmless(&ahead.config_file(git, &target).await?);
        if dropped.is_empty() {
            continue;
        }
        let copy = private_dir.join(format!("git-config-{}", mounts.len()));
        write(&copy, &text)?;
        findings.push(Finding::new(
            "git-config-redacted",
            format!("`{}`: {} not carried in", target.display(), dropped.join(", ")),
        ));
        mounts.push(Mount { source: copy, target, access: Access::ReadOnly });
    }
    let hooks = common.join("hooks");
    if has_hooks(&hooks) {
        let empty = private_dir.join("no-hooks");
        std::fs::create_dir_all(&empty).map_err(|source| WorktreeError::Write { path: empty.clone(), source })?;
        findings.push(Finding::new("git-hooks-hidden", format!("`{}` is not carried in", hooks.display())));
        mounts.push(Mount { source: empty, target: hooks, access: Access::ReadOnly });
    }
    // The same files seen through another spelling of the common directory.
    if let Some(spelled) = spelled_common(place, common) {
        let again: Vec<Mount> = mounts
            .iter()
            .filter_map(|mount| {
                Some(Mount { target: spelled.join(mount.target.strip_prefix(common).ok()?), ..mount.clone() })
            })
            .collect();
        mounts.extend(again);
    }
    Ok(mounts)
}

fn spelled_common(place: &Place, common: &Path) -> Option<PathBuf> {
    let (spelled, git_dir) = (place.spelled_git_dir.as_ref()?, place.git_dir.as_ref()?);
    let tail = git_dir.strip_prefix(common).ok()?;
    if spelled == git_dir || !spelled.ends_with(tail) {
        return None;
    }
    Some(spelled.ancestors().nth(tail.components().count())?.to_owned())
}

/// `config` and `config.worktree` files of submodules and other worktrees; no links are followed.
fn nested_configs(dir: &Path, found: &mut Vec<PathBuf>, depth: u8) {
    if depth > 8 || found.len() > MOST_FILES {
        return;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name();
        if kind.is_file() && (name == "config" || name == "config.worktree") {
            found.push(entry.path());
        } else if kind.is_dir() && !["objects", "refs", "logs", "hooks", "info"].iter().any(|skip| name == *skip) {
            nested_configs(&entry.path(), found, depth + 1);
        }
    }
}

fn has_hooks(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    dir.symlink_metadata().is_ok_and(|meta| meta.is_dir())
        && entries.into_iter().any(|entry| entry.path().extension().is_none_or(|extension| extension != "sample"))
}

/// Replaced, never rewritten: an attempt that is adopted has the old file mounted.
fn write(path: &Path, text: &str) -> Result<(), WorktreeError> {
    let failed = |source| WorktreeError::Write { path: path.to_owned(), source };
    if std::fs::read_to_string(path).is_ok_and(|have| have == text) {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(failed)?;
    file.persist(path).map(drop).map_err(|error| failed(error.error))
}

/// The configuration again, without what is a secret or starts a program. Second: keys left out or shortened.
fn harmless(entries: &[(String, Option<String>)]) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut dropped: Vec<String> = Vec::new();
    let mut drop_key = |key: String| {
        if !dropped.contains(&key) {
            dropped.push(key);
        }
    };
    for (key, value) in entries {
        let Some((section, name)) = key.rsplit_once('.') else { continue };
        let (shown, subsection) = match section.split_once('.') {
            Some((section, subsection)) => (section, Some(subsection)),
            None => (section, None),
        };
        let clean_subsection = subsection.map(without_secret);
        let label = clean_subsection.as_ref().map_or_else(|| key.clone(), |sub| format!("{shown}.{sub}.{name}"));
        if forbidden(shown, name) {
            drop_key(label);
            continue;
        }
        if clean_subsection.as_deref() != subsection {
            // `[url "https://user:token@host/"] insteadOf` has no meaning without its secret.
            drop_key(label);
            continue;
        }
        let clean = value.as_deref().map(without_secret);
        if clean != *value {
            drop_key(label);
        }
        emit(&mut text, shown, subsection, name, clean.as_deref());
    }
    (text, dropped)
}

fn emit(text: &mut String, section: &str, subsection: Option<&str>, name: &str, value: Option<&str>) {
    let escape = |raw: &str| raw.replace('\\', "\\\\").replace('"', "\\\"");
    let _ = match subsection {
        Some(subsection) => writeln!(text, "[{section} \"{}\"]", escape(subsection)),
        None => writeln!(text, "[{section}]"),
    };
    let _ = match value {
        Some(value) => {
            let value = escape(value).replace('\n', "\\n").replace('\t', "\\t").replace('\u{8}', "\\b");
            writeln!(text, "\t{name} = \"{value}\"")
        }
        None => writeln!(text, "\t{name}"),
    };
}

/// Keys (Git gives them in lower case) that hold secrets or name programs and files of the host.
fn forbidden(section: &str, name: &str) -> bool {
    const SECRET_WORDS: &[&str] = &["token", "password", "passwd", "secret", "apikey", "oauth"];
    match section {
        "credential" | "include" | "includeif" | "sendemail" | "imap" => true,
        "http" => matches!(
            name,
            "extraheader" | "cookiefile" | "sslkey" | "sslcert" | "proxy" | "proxysslkey" | "proxysslcert"
        ),
        "core" => matches!(
            name,
            "fsmonitor"
                | "hookspath"
                | "sshcommand"
                | "askpass"
                | "gitproxy"
                | "editor"
                | "pager"
                | "alternaterefscommand"
        ),
        "alias" | "gpg" | "ssh" | "trailer" => true,
        // Every git reads relative pointers, but one before 2.48 in the image refuses a repository that announces them.
        "extensions" => name == "relativeworktrees",
        _ => SECRET_WORDS.iter().any(|word| name.contains(word)),
    }
}

/// A URL loses the user and password between `://` and `@`; a bare user name of ssh stays. Queries with tokens go too.
fn without_secret(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    let Some((user, host)) = authority.rsplit_once('@') else { return text.to_owned() };
    let ssh = scheme.ends_with("ssh");
    if ssh && !user.contains(':') {
        return text.to_owned();
    }
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_leave_urls_and_ssh_users_stay() {
        assert_eq!(without_secret("https://me:t0ken@host/x.git"), "https://host/x.git");
        assert_eq!(without_secret("https://t0ken@host/x.git"), "https://host/x.git");
        assert_eq!(without_secret("ssh://git@host/x.git"), "ssh://git@host/x.git");
        assert_eq!(without_secret("git@host:x.git"), "git@host:x.git");
        assert_eq!(without_secret("https://host/a@b"), "https://host/a@b");
    }

    #[test]
    fn an_ordinary_configuration_is_left_alone() {
        let entries: Vec<(String, Option<String>)> = [
            ("core.bare", "false"),
            ("remote.origin.url", "https://host/x.git"),
            ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
            ("extensions.worktreeconfig", "true"),
        ]
        .map(|(key, value)| (key.to_owned(), Some(value.to_owned())))
        .to_vec();
        assert!(harmless(&entries).1.is_empty());
    }

    #[test]
    fn what_is_dropped_is_named_without_the_secret() {
        let entries: Vec<(String, Option<String>)> = [
            ("remote.origin.url", "https://me:t0ken@host/x.git"),
            ("url.https://me:t0ken@host/.insteadof", "gh:"),
            ("http.https://host/.extraheader", "Authorization: Basic t0ken"),
            ("credential.helper", "store"),
        ]
        .map(|(key, value)| (key.to_owned(), Some(value.to_owned())))
        .to_vec();
        let (text, dropped) = harmless(&entries);
        assert!(!text.contains("t0ken") && !dropped.join(" ").contains("t0ken"), "{text} {dropped:?}");
        assert_eq!(dropped.len(), 4);
        assert!(text.contains("url = \"https://host/x.git\""), "{text}");
    }
}
