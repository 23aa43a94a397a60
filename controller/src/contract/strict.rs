//! Why no route offers the strict contract (policy-and-contract 10.1; runner 8.3).

use agent::descriptor::{Parent, Provider};
use agent::ownership::Route;

/// What a strict route would have to prove.
pub const MISSING: &[&str] =
    &["confined-file-edits", "git-metadata-denied", "remote-mutation-denied", "no-shell-descendants"];

/// One sentence about what the route cannot prove.
#[must_use]
pub fn reason(parent: Parent, provider: Provider, route: Route) -> String {
    if route == Route::Native {
        return format!(
            "native lanes of {parent} run with the host's full-access tools, which a prompt cannot restrict."
        );
    }
    match provider {
        Provider::Claude => {
            "claude's restriction flags are not proven against metadata pointers, alternate gitdirs, hard links and \
             authenticated remote changes."
        }
        Provider::Codex => "codex cannot run without a shell, and remote changes are not proven to be blocked.",
        Provider::Grok => "the Git coverage of grok's sandbox is not verified.",
        Provider::Devin => "devin writers need a shell for their edits.",
        Provider::Cursor => "the Git coverage of cursor's sandbox is not verified.",
        Provider::Antigravity => "antigravity limits only the surface of its tools, which is no boundary.",
        Provider::OpenCode => "opencode's permissions are no sandbox of the operating system.",
    }
    .to_owned()
}
