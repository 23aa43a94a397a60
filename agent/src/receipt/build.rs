//! Receipts of attempts that never had a child, and the caps on error text.

use std::io;

use time::OffsetDateTime;

use super::{FailurePhase, PreflightReport, ProviderReport, Receipt, ReceiptError, Status};
use crate::assignment::Assignment;

/// Message of a failure of our own after the paths were reserved (runner 2.7).
pub const LAUNCHER_FAILED: &str = "launcher failed after reserving output paths";

/// Additive key beside [`LAUNCHER_FAILED`]: what failed, to what, and what to do; at most 4,000 characters.
pub const FAILURE_DETAIL: &str = "failureDetail";

/// At most `units` UTF-16 units of the text, never half a character.
#[must_use]
pub fn cap(text: &str, units: usize) -> &str {
    if text.len() <= units {
        return text;
    }
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.len_utf16();
        if used > units {
            return &text[..at];
        }
    }
    text
}

/// Evidence of a launcher failure: `Error`, or `Error (CODE)` for the codes of runner 2.6. Never a path or a message.
#[must_use]
pub fn launcher_evidence(error: &io::Error) -> String {
    use nix::errno::Errno;
    let code = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => "ENOENT",
        Some(Errno::EACCES) => "EACCES",
        Some(Errno::EPERM) => "EPERM",
        Some(Errno::EIO) => "EIO",
        Some(Errno::EEXIST) => "EEXIST",
        Some(Errno::ENOSPC) => "ENOSPC",
        Some(Errno::ENOTDIR) => "ENOTDIR",
        Some(Errno::EISDIR) => "EISDIR",
        Some(Errno::EMFILE) => "EMFILE",
        Some(Errno::EPIPE) => "EPIPE",
        _ => return "Error".to_owned(),
    };
    format!("Error ({code})")
}

impl Receipt {
    /// What every receipt of an assignment says, and nothing of what became of it.
    pub(crate) fn of(assignment: &Assignment, status: Status, completed_at: OffsetDateTime) -> Self {
        Self {
            parent: assignment.parent,
            provider: assignment.provider,
            model: assignment.model.clone(),
            effort: assignment.effort,
            mode: assignment.mode,
            paths: assignment.paths.clone(),
            execution_id: assignment.execution_id.clone(),
            timeout_ms: assignment.timeout_ms,
            contract: assignment.contract,
            api_spend: assignment.api_spend,
            status,
            started_at: assignment.started_at,
            completed_at,
            executable: None,
            preflight: PreflightReport::not_run(""),
            argv: Vec::new(),
            exit_code: None,
            signal: None,
            report: ProviderReport::default(),
            error: None,
            failure_phase: None,
            process_started: false,
            workload: None,
            additive: serde_json::Map::new(),
        }
    }

    /// A receipt of an attempt whose workload was never tried: phase `preflight`, preflight `not-run`, nothing resolved.
    /// The caller changes the fields that are known better.
    #[must_use]
    pub fn not_started(
        assignment: &Assignment,
        status: Status,
        error: ReceiptError,
        completed_at: OffsetDateTime,
    ) -> Self {
        let failure_phase = Some(FailurePhase::Preflight);
        Self { error: Some(error), failure_phase, ..Self::of(assignment, status, completed_at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_counts_utf16_units_and_never_splits_a_character() {
        assert_eq!(cap("abc", 3), "abc");
        assert_eq!(cap("abcd", 3), "abc");
        assert_eq!(cap("ab😀", 3), "ab");
        assert_eq!(cap("ab😀", 4), "ab😀");
        assert_eq!(cap("äöü", 3), "äöü");
    }

    #[test]
    fn launcher_evidence_names_only_known_codes() {
        assert_eq!(launcher_evidence(&io::Error::from_raw_os_error(2)), "Error (ENOENT)");
        assert_eq!(launcher_evidence(&io::Error::other("secret")), "Error");
    }
}
