//! The engine: which, how new, what it can enforce, and whether the images are there.

use std::path::Path;

use crate::container::identity::Owner;
use crate::container::idmap::IdmapMounts;
use crate::container::{Engine, EngineError, EngineKind, image};
use crate::descriptor::Provider;
use crate::doctor::Check;

/// Engine clock against ours: above this a token refresh inside starts to fail.
const SKEW_FAIL_MS: i64 = 120_000;
const SKEW_WARN_MS: i64 = 2_000;

pub(super) fn checks(engine: &Engine, state_dir: &Path) -> Vec<Check> {
    let info = engine.info();
    let name = if info.kind == EngineKind::Docker { "Docker" } else { "Podman" };
    let mut all = vec![
        Check::ok("engine", format!("{name} {} at {}", info.version, info.address)),
        Check::ok("engine-api", format!("API {}, {}, kernel {}", info.api, info.platform(), info.kernel)),
    ];
    all.push(if info.rootless {
        Check::ok("engine-user", format!("rootless, of uid {}", info.socket_uid.unwrap_or_default()))
    } else if info.userns_remap {
        Check::warn(
            "engine-user",
            "root, with userns-remap",
            "lanes run with the host's user namespace, so that files keep their owner",
        )
    } else {
        Check::ok("engine-user", "root; lanes run as the worktree's owner")
    });
    all.push(limits(engine));
    all.push(if info.seccomp {
        Check::ok("seccomp", "available; lanes run under laneyard's own profile")
    } else {
        Check::fail(
            "seccomp",
            "the engine has no seccomp",
            "use a kernel and an engine with seccomp: lanes do not run without it",
        )
    });
    all.push(nested(engine));
    if info.selinux {
        let remedy = "nothing: each lane's container runs without label confinement, and its receipt says so";
        all.push(Check::warn("selinux", "enforcing in the engine", remedy));
    }
    all.push(clock(info.clock_skew_ms));
    if cfg!(target_os = "linux") && !info.rootless && Owner::current().uid == 0 {
        all.push(idmap(state_dir));
    }
    all.extend(
        info.warnings.iter().map(|warning| Check::warn("engine-warning", warning, "see the engine's documentation")),
    );
    all
}

fn limits(engine: &Engine) -> Check {
    let info = engine.info();
    let version = info.cgroup.map_or_else(|| "cgroups unknown".to_owned(), |version| format!("cgroup v{version}"));
    let have = info.limits;
    let missing: Vec<&str> = [(have.memory, "memory"), (have.swap, "swap"), (have.pids, "pids"), (have.cpus, "cpus")]
        .iter()
        .filter(|(have, _)| !have)
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return Check::ok("limits", format!("{version}; memory, pids and CPU limits work"));
    }
    let saw = format!("{version}; no limit of {}", missing.join(", "));
    let remedy = if info.rootless && info.cgroup == Some(1) {
        "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or use a rootful engine"
    } else if info.rootless {
        "delegate the controllers to the user (systemd: Delegate=cpu memory pids in user@.service)"
    } else {
        "enable the cgroup controllers (kernel options cgroup_enable=memory swapaccount=1)"
    };
    Check::warn("limits", saw, remedy)
}

fn nested(engine: &Engine) -> Check {
    let allowed = |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let blocked = [
        ("/proc/sys/user/max_user_namespaces", 0, "sysctl user.max_user_namespaces=15000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", 0, "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            1,
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    for (path, bad, remedy) in blocked {
        if allowed(path) == Some(bad) {
            return Check::warn(
                "nested-sandbox",
                format!("{path} is {bad}: a provider's own sandbox cannot start"),
                remedy,
            );
        }
    }
    if engine.info().apparmor {
        let remedy = "nothing: the container is the boundary then, and the receipt says so";
        return Check::warn("nested-sandbox", "the engine's AppArmor profile forbids mounts inside", remedy);
    }
    Check::ok("nested-sandbox", "user namespaces are allowed; a provider's own sandbox can start")
}

fn clock(skew: Option<i64>) -> Check {
    match skew {
        None => Check::warn("clock", "the engine does not tell the time", "compare `date` on both sides"),
        Some(skew) if skew.abs() >= SKEW_FAIL_MS => Check::fail(
            "clock",
            format!("the engine's clock is off by {skew} ms"),
            "restart the engine's virtual machine, or set its clock",
        ),
        Some(skew) if skew.abs() > SKEW_WARN_MS => Check::warn(
            "clock",
            format!("the engine's clock is off by {skew} ms"),
            "set the clock of the engine's virtual machine",
        ),
        Some(skew) => Check::ok("clock", format!("the engine's clock is within {} ms", skew.abs())),
    }
}

/// Tries one for real, on a directory of ours.
fn idmap(state_dir: &Path) -> Check {
    let base = if state_dir.is_dir() { state_dir.to_owned() } else { std::env::temp_dir() };
    let tried = tempfile::Builder::new().prefix("laneyard-doctor-").tempdir_in(&base).map(|dir| {
        let root = Owner { uid: 0, gid: 0 };
        let inside = Owner { uid: 1000, gid: 1000 };
        let mut mounts = IdmapMounts::new(dir.path().join("mounts"))?;
        mounts.add(dir.path(), root, inside).map(drop)
    });
    match tried {
        Ok(Ok(())) => {
            Check::ok("root-worktrees", "id-mapped mounts work: lanes on root's directories run as an ordinary user")
        }
        Ok(Err(error)) => Check::warn(
            "root-worktrees",
            format!("{error}: {}", error.source),
            "lanes on root's directories run as uid 0 without capabilities; use a directory of an ordinary user, or Linux 5.12 and a file system with id-mapped mounts",
        ),
        Err(error) => Check::warn(
            "root-worktrees",
            format!("{} cannot be written: {error}", base.display()),
            "choose another state directory",
        ),
    }
}

pub(super) async fn images(engine: &Engine, wanted: &[(Provider, image::Reference)]) -> Vec<Check> {
    let mut all = Vec::new();
    for (provider, reference) in wanted {
        all.push(match image::resolve(engine, reference, image::PullPolicy::Never, None).await {
            Ok(found) => {
                Check::ok("image", format!("{reference} ({}/{}, {} MB)", found.os, found.arch, found.size / 1_000_000))
            }
            Err(EngineError::NoImage { remedy, .. }) => {
                Check::warn("image", format!("{reference} is missing: no lane of {provider} can run"), remedy)
            }
            Err(error @ EngineError::WrongPlatform { .. }) => {
                Check::fail("image", error.to_string(), "build it for this engine with `images/build`")
            }
            Err(error) => Check::fail(
                "image",
                error.to_string(),
                "see that the engine answers (`laneyard doctor`), then try again",
            ),
        });
    }
    all
}
