//! What a lane could leave behind on the host.

use std::fs;

use super::World;

/// Everything of this world that is still there, one line each.
pub(super) fn of(world: &World) -> Vec<String> {
    let mut left = Vec::new();
    for container in world.containers() {
        left.push(format!("container {} ({})", container.name, container.state));
    }
    left.extend(
        world.engine.networks().into_iter().filter(|name| name.contains("laneyard")).map(|n| format!("network {n}")),
    );
    let root = world.root.path().to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(mounts.lines().filter(|line| line.contains(&root)).map(|line| format!("mount {line}")));
    left.extend(processes(world).into_iter().map(|(pid, line)| format!("process {pid} {line}")));
    let runs = fs::read_dir(world.state().join("run")).into_iter().flatten().flatten();
    left.extend(runs.map(|entry| format!("run directory {}", entry.path().display())));
    left
}

/// Ends processes that a failed test left.
pub(super) fn end_processes(world: &World) {
    for (pid, _) in processes(world) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Processes that name this world's directories or attempts on their command line, or work in them.
fn processes(world: &World) -> Vec<(i32, String)> {
    let root = world.root.path().to_string_lossy().into_owned();
    let attempts = world.attempts();
    let own = std::process::id().cast_signed();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let cwd = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let ours = line.contains(&root)
            || cwd.starts_with(world.root.path())
            || attempts.iter().any(|attempt| line.contains(attempt.as_str()));
        // A dead child that nobody has asked for yet has an empty command line.
        if ours && pid != own && !line.is_empty() {
            found.push((pid, line));
        }
    }
    found
}
