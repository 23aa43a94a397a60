//! Why each provider's external lane cannot take the strict contract (runner 8.3).

use crate::descriptor::Provider;

/// Evidence of every strict stop.
pub const STRICT_EVIDENCE: &str = "strict route lacks live boundary evidence";

/// `error.message` of a strict stop.
#[must_use]
pub const fn strict_reason(provider: Provider) -> &'static str {
    match provider {
        Provider::Claude => {
            "strict contract is unsupported for claude: its restriction flags are not proven against metadata pointers, \
             alternate gitdirs, hard links and authenticated remote changes"
        }
        Provider::Codex => {
            "strict contract is unsupported for codex: its shell cannot be removed and blocking of authenticated remote \
             changes is not proven"
        }
        Provider::Grok => {
            "strict contract is unsupported for grok: its sandbox is not verified to cover Git metadata and remotes"
        }
        Provider::Devin => "strict contract is unsupported for devin: its writers need exec",
        Provider::Cursor => {
            "strict contract is unsupported for cursor: its sandbox is not verified to cover Git metadata and remotes"
        }
        Provider::Antigravity => {
            "strict contract is unsupported for antigravity: it limits the tool surface only, not the file system"
        }
        Provider::OpenCode => "strict contract is unsupported for opencode: its permissions are not an OS sandbox",
    }
}
