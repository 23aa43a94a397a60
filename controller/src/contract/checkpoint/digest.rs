//! The digest that binds a checkpoint: SHA-256 over one compact JSON object, so that every part is framed.

use std::fmt::Write;

use agent::handoff::Request;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::json;

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub path: String,
    /// Permission bits, `st_mode & 0o777`.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Lower-case hexadecimal SHA-256 of the bytes.
    pub content: String,
}

#[derive(Serialize)]
struct Framed<'a> {
    version: u32,
    task: &'a str,
    checkpoint: &'a str,
    operation: &'a str,
    head: &'a str,
    checks: &'a [String],
    entries: &'a [Entry],
}

/// Lower-case hexadecimal digest over task, checkpoint, operation, HEAD, checks and files, in the handoff's order.
#[must_use]
pub fn digest(request: &Request, head: &str, entries: &[Entry]) -> String {
    let framed = Framed {
        version: 1,
        task: &request.task,
        checkpoint: &request.checkpoint,
        operation: request.operation.as_str(),
        head,
        checks: &request.checks,
        entries,
    };
    hex(&Sha256::digest(json::compact(&framed)))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use agent::descriptor::ParentOperation;

    use super::*;

    fn request() -> Request {
        Request {
            task: "task-7".into(),
            checkpoint: "cp-1".into(),
            operation: ParentOperation::CommitCheckpoint,
            files: vec!["src/a.rs".into()],
            checks: vec![],
            summary: "not hashed".into(),
        }
    }

    fn entry(mode: u32, content: &[u8]) -> Entry {
        Entry { path: "src/a.rs".into(), mode, size: content.len() as u64, content: hex(&Sha256::digest(content)) }
    }

    const HEAD: &str = "7a62002eb4098d1e9488288d37c8908e67a4ed5a";

    #[test]
    fn the_worked_value_of_the_document_agrees() {
        assert_eq!(
            digest(&request(), HEAD, &[entry(420, b"one\n")]),
            "cfdbab2884277a4f9e96e338260945a85d5dd9feb9aec64f55b320cc75cd218f"
        );
    }

    #[test]
    fn bytes_and_mode_change_the_digest_and_the_summary_does_not() {
        let base = digest(&request(), HEAD, &[entry(420, b"one\n")]);
        assert_ne!(base, digest(&request(), HEAD, &[entry(493, b"one\n")]));
        assert_ne!(base, digest(&request(), HEAD, &[entry(420, b"two\n")]));
        let told = Request { summary: "other".into(), ..request() };
        assert_eq!(base, digest(&told, HEAD, &[entry(420, b"one\n")]));
    }
}
