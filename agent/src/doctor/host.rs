//! Disk, git and the working directory.

use std::path::Path;

use crate::descriptor::Mode;
use crate::doctor::Check;
use crate::worktree::{self, Kind, git::Git};

/// Free bytes below which a lane is likely to fail, and below which it will.
const DISK_WARN: u64 = 5 << 30;
const DISK_FAIL: u64 = 256 << 20;

pub(super) async fn git() -> Check {
    match Git::new().version().await {
        Err(error) => Check::fail("git", error.to_string(), "install git (apt-get install git)"),
        Ok(version) if at_least(&version, (2, 31)) => Check::ok("git", format!("git {version}")),
        Ok(version) => Check::fail("git", format!("git {version}"), "install git 2.31 or newer"),
    }
}

fn at_least(version: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= wanted
}

pub(super) fn disk(name: &'static str, dir: &Path) -> Check {
    // What does not exist yet will be on the disk of its nearest ancestor.
    let Some(existing) = dir.ancestors().find(|path| path.exists()) else {
        return Check::fail(name, format!("`{}` has no existing parent", dir.display()), "choose another directory");
    };
    let free = match nix::sys::statvfs::statvfs(existing) {
        // Widths differ between systems.
        #[allow(clippy::useless_conversion)]
        Ok(stat) => u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size())),
        Err(error) => {
            return Check::fail(name, format!("`{}`: {error}", existing.display()), "choose another directory");
        }
    };
    let saw = format!("{} free at {}", bytesize::ByteSize(free), existing.display());
    let remedy = "free some space (old attempts, unused images), or move the state directory";
    if nix::unistd::access(existing, nix::unistd::AccessFlags::W_OK).is_err() {
        return Check::fail(
            name,
            format!("`{}` cannot be written", existing.display()),
            "choose another state directory",
        );
    }
    match free {
        free if free < DISK_FAIL => Check::fail(name, saw, remedy),
        free if free < DISK_WARN => Check::warn(name, saw, remedy),
        _ => Check::ok(name, saw),
    }
}

pub(super) async fn worktree(cwd: &Path, state_dir: &Path) -> Vec<Check> {
    let private = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(error) => return vec![Check::fail("worktree", error.to_string(), "make the temporary directory writable")],
    };
    match worktree::plan(&Git::new(), cwd, Mode::IsolatedWrite, private.path(), &[state_dir.to_owned()]).await {
        Err(error) => {
            vec![Check::fail("worktree", error.to_string(), "name another directory with --cwd, or mend this one")]
        }
        Ok(plan) => {
            let kind = match &plan.kind {
                Kind::Plain => "a plain directory".to_owned(),
                Kind::Repository { .. } => "a repository".to_owned(),
                Kind::Linked { common, .. } => format!("a linked worktree of {}", common.display()),
            };
            let saw = format!("{} is {kind}, owned by uid {}", plan.root.display(), plan.owner.uid);
            let mut all = vec![Check::ok("worktree", saw)];
            all.extend(
                plan.findings.iter().map(|finding| Check::warn("worktree", &finding.detail, "for your information")),
            );
            all
        }
    }
}
