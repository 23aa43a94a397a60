//! An assignment as clients send them, and what benchmarks of many of them need.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::assignment::{Assignment, CallerPaths, CanonicalPaths, Limits};
use agent::descriptor::{Contract, Effort, InnerSandbox, Mode, Parent, Provider};
use agent::ids::AttemptId;

/// A lane with a prompt of 4 kB.
pub(crate) fn assignment() -> Assignment {
    let text = |text: &str| text.to_owned();
    let canonical = CanonicalPaths { cwd: text("/src"), output: text("/out/answer"), receipt: text("/out/receipt") };
    Assignment {
        attempt: AttemptId::generate(),
        execution_id: text("/out/receipt"),
        parent: Parent::Claude,
        provider: Provider::Codex,
        model: text("gpt-5"),
        effort: Effort::High,
        mode: Mode::ReadOnly,
        contract: Contract::Legacy,
        api_spend: None,
        paths: CallerPaths {
            cwd: text("/src"),
            prompt: text("/in/prompt"),
            output: text("/out/answer"),
            receipt: text("/out/receipt"),
            progress: None,
            canonical,
        },
        prompt: vec![b'x'; 4000],
        started_at: time::OffsetDateTime::now_utc(),
        timeout_ms: None,
        instance: None,
        environment: BTreeMap::new(),
        image: None,
        limits: Limits::default(),
        inner_sandbox: InnerSandbox::Prefer,
        extra_hosts: Vec::new(),
        snapshot: None,
    }
}

/// The value that this part of the sorted values does not exceed.
pub(crate) fn percentile(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a rank")]
    sorted[((last as f64) * part) as usize]
}

/// As many open files as this machine allows.
#[allow(dead_code, reason = "not every benchmark opens many")]
pub(crate) fn many_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}
