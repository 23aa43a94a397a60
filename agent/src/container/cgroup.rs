//! The kernel's own counters of a container's control group. Found by PID 1 while it lives; the group vanishes with it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::container::ContainerId;

/// Where a container's counters are. Keep it in the journal: after a restart of ours it is still right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    version: u8,
    /// The memory controller's directory of the container.
    memory: PathBuf,
    /// A directory that lists its processes.
    processes: PathBuf,
}

/// What is left of a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "processes")]
pub enum GroupState {
    /// The directory is gone: the kernel removes only empty groups.
    Gone,
    Empty,
    Populated(usize),
}

impl Cgroup {
    /// The group of a running container. `None` where it cannot be seen (another machine, macOS), or when the container
    /// has none of its own, as with a rootless engine on cgroup v1: the counters would be the engine's. Engines put the
    /// container's id into the group's name.
    #[must_use]
    pub fn of(pid: u32, id: &ContainerId) -> Option<Self> {
        let table = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Self::parse(&table, id, Path::new("/sys/fs/cgroup"))
    }

    fn parse(table: &str, id: &ContainerId, root: &Path) -> Option<Self> {
        let find = |text: &str, wanted: &str| -> Option<String> {
            text.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                controllers.split(',').any(|name| name == wanted).then(|| path.to_owned())
            })
        };
        let (version, controller) = if find(table, "memory").is_some() { (1, "memory") } else { (2, "") };
        let path = find(table, controller)?;
        if !path.contains(id.as_str()) {
            return None;
        }
        let base = if version == 1 { root.join("memory") } else { root.to_owned() };
        let memory = base.join(path.trim_start_matches('/'));
        Some(Self { version, processes: memory.clone(), memory })
    }

    /// How often the kernel killed a process of the group for memory; `None` once the group is gone.
    #[must_use]
    pub fn oom_kills(&self) -> Option<u64> {
        let file = if self.version == 1 { "memory.oom_control" } else { "memory.events" };
        let text = std::fs::read_to_string(self.memory.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    /// The highest use of memory so far, in bytes.
    #[must_use]
    pub fn peak_memory(&self) -> Option<u64> {
        let file = if self.version == 1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        std::fs::read_to_string(self.memory.join(file)).ok()?.trim().parse().ok()
    }

    /// Is anybody left in it?
    #[must_use]
    pub fn state(&self) -> GroupState {
        if !self.processes.exists() {
            return GroupState::Gone;
        }
        match count(&self.processes, 0) {
            0 => GroupState::Empty,
            left => GroupState::Populated(left),
        }
    }
}

/// Processes of a group and of those below it.
fn count(dir: &Path, depth: u8) -> usize {
    let own = std::fs::read_to_string(dir.join("cgroup.procs")).map_or(0, |text| text.lines().count());
    if depth > 8 {
        return own;
    }
    let below = std::fs::read_dir(dir).into_iter().flatten().flatten();
    own + below
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| count(&entry.path(), depth + 1))
        .sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hierarchies_are_found() {
        let v1 = "12:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n";
        let found = Cgroup::parse(v1, &ContainerId::new("abc"), Path::new("/cg")).unwrap();
        assert_eq!(found.memory, Path::new("/cg/memory/docker/abc"));
        let v2 = "0::/machine.slice/libpod-abc.scope/container\n";
        let found = Cgroup::parse(v2, &ContainerId::new("abc"), Path::new("/cg")).unwrap();
        assert_eq!(found.memory, Path::new("/cg/machine.slice/libpod-abc.scope/container"));
    }

    #[test]
    fn a_group_of_the_engine_is_never_taken_for_the_containers() {
        assert_eq!(Cgroup::parse("0::/user.slice/x\n", &ContainerId::new("abc"), Path::new("/cg")), None);
    }
}
