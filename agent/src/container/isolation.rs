//! What is really in force around an attempt, read back from the engine and from the kernel. Goes into the receipt.

use std::path::PathBuf;

use serde::Serialize;

use crate::container::Finding;
use crate::container::identity::{Identity, UserMapping};
use crate::container::info::EngineKind;
use crate::container::spec::{Access, SystemPaths};

/// The isolation of one container.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IsolationReport {
    pub engine: EngineKind,
    pub engine_version: String,
    pub rootless: bool,
    pub identity: Identity,
    pub read_only_root: bool,
    pub all_capabilities_dropped: bool,
    pub no_new_privileges: bool,
    pub privileged: bool,
    /// Our profile, by the engine's word.
    pub seccomp: bool,
    /// Name of the AppArmor profile, when the engine has one in force.
    pub app_armor: Option<String>,
    /// The SELinux label confinement of this container.
    pub selinux: SelinuxState,
    /// As the engine says: `none`.
    pub network: String,
    pub host_namespaces: Vec<String>,
    pub system_paths: SystemPaths,
    pub limits: LimitReport,
    pub mounts: Vec<MountReport>,
    /// The kernel's own word about PID 1; `None` before the start, after the end, or behind a virtual machine.
    pub kernel: Option<KernelReport>,
    pub findings: Vec<Finding>,
}

/// SELinux for this container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelinuxState {
    /// The host does not use it.
    Absent,
    /// Switched off for this one container, because labelling would change the user's tree.
    DisabledForContainer,
    Enforced,
}

/// A limit as it is in force.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit<T> {
    Applied(T),
    /// Asked for, and this engine cannot do it here.
    Ignored,
    /// Not asked for.
    Unlimited,
}

/// The limits in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitReport {
    /// Bytes, swap included.
    pub memory: Limit<u64>,
    pub pids: Limit<u64>,
    pub cpus: Limit<f64>,
}

/// One mount as the container has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountReport {
    pub target: PathBuf,
    pub access: Access,
}

/// `/proc/<pid>/status` of PID 1, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelReport {
    pub effective_capabilities: u64,
    pub bounding_capabilities: u64,
    pub no_new_privileges: bool,
    /// A filter is installed (mode 2).
    pub seccomp_filter: bool,
    /// Effective user on the host.
    pub host_uid: u32,
}

impl KernelReport {
    /// Reads it for a process id of the host; `None` when there is no such process here.
    #[must_use]
    pub fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        Some(Self {
            effective_capabilities: u64::from_str_radix(field("CapEff")?, 16).ok()?,
            bounding_capabilities: u64::from_str_radix(field("CapBnd")?, 16).ok()?,
            no_new_privileges: field("NoNewPrivs")? == "1",
            seccomp_filter: field("Seccomp")? == "2",
            host_uid: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
        })
    }
}

impl IsolationReport {
    /// What our default profile promises and this container does not have. Not empty: do not run the lane.
    #[must_use]
    pub fn violations(&self) -> Vec<Finding> {
        let mut broken = Vec::new();
        let mut require = |held: bool, name: &'static str, detail: &str| {
            if !held {
                broken.push(Finding::new(name, detail));
            }
        };
        require(self.read_only_root, "root-writable", "the root file system is writable");
        require(self.all_capabilities_dropped, "capabilities-kept", "the engine kept capabilities");
        require(self.no_new_privileges, "new-privileges", "the container may gain privileges");
        require(!self.privileged, "privileged", "the container is privileged");
        require(self.seccomp, "seccomp-missing", "our seccomp profile is not in force");
        require(self.network == "none", "network-present", "the container has a network");
        require(self.host_namespaces.is_empty(), "host-namespaces", "the container shares namespaces of the host");
        if let Some(kernel) = &self.kernel {
            require(
                kernel.effective_capabilities == 0 && kernel.bounding_capabilities == 0,
                "capabilities-kept",
                "the kernel shows capabilities on PID 1",
            );
            require(kernel.no_new_privileges, "new-privileges", "the kernel shows no no-new-privileges on PID 1");
            require(kernel.seccomp_filter, "seccomp-missing", "the kernel shows no seccomp filter on PID 1");
        }
        broken
    }

    /// Findings that follow from the choice of user and from what the engine cannot do.
    pub(crate) fn derive_findings(&mut self) {
        if self.identity.mapping == UserMapping::PowerlessRoot {
            self.findings.push(Finding::new(
                "runs-as-powerless-root",
                "the worktree belongs to root and id-mapped mounts are not possible here: the lane runs as uid 0 without any capability",
            ));
        }
        let ignored = [
            (matches!(self.limits.memory, Limit::Ignored), "memory"),
            (matches!(self.limits.pids, Limit::Ignored), "pids"),
            (matches!(self.limits.cpus, Limit::Ignored), "cpus"),
        ];
        let names: Vec<&str> = ignored.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        if !names.is_empty() {
            let detail = format!("this engine applies no limit of {} (rootless on cgroup v1?)", names.join(", "));
            self.findings.push(Finding::new("limits-ignored", detail));
        }
        if self.selinux == SelinuxState::DisabledForContainer {
            self.findings.push(Finding::new(
                "selinux-label-disabled",
                "SELinux confinement is off for this container, because relabelling would change the user's tree",
            ));
        }
        if self.system_paths == SystemPaths::Unmasked {
            self.findings.push(Finding::new(
                "system-paths-unmasked",
                "/proc and /sys are not masked, so that the provider's own sandbox can mount its /proc",
            ));
        }
    }
}
