//! All processes but ourselves: as first process everything in the container, otherwise our descendants.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use laneyard_supervisor::protocol::{Health, TreeEnd};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

/// How often a killer looks.
const LOOK: Duration = Duration::from_millis(5);

/// Killed processes are gone within this, unless the kernel holds them.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// True for the first process of a container.
pub(super) fn is_first() -> bool {
    getpid().as_raw() == 1
}

#[derive(Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    zombie: bool,
}

/// Ours, alive or not.
fn ours() -> Vec<Process> {
    let all: Vec<Process> =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| read(&entry)).collect();
    let me = getpid().as_raw();
    if is_first() {
        return all.into_iter().filter(|process| process.pid != me).collect();
    }
    let mut family = HashSet::from([me]);
    loop {
        let before = family.len();
        family.extend(
            all.iter()
                .filter(|process| family.contains(&process.parent))
                .map(|process| process.pid)
                .collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    family.remove(&me);
    all.into_iter().filter(|process| family.contains(&process.pid)).collect()
}

/// `pid (any name) STATE parent …`
fn read(entry: &fs::DirEntry) -> Option<Process> {
    let pid = entry.file_name().to_str()?.parse().ok()?;
    let stat = fs::read(entry.path().join("stat")).ok()?;
    let after = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[after + 1..]).ok()?.split_ascii_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    Some(Process { pid, parent: fields.next()?.parse().ok()?, zombie })
}

fn alive() -> Vec<Process> {
    ours().into_iter().filter(|process| !process.zombie).collect()
}

/// What became of orphans, given how many were collected.
pub(super) fn health(orphans_reaped: u64) -> Health {
    let zombies = ours().iter().filter(|process| process.zombie).count();
    Health { orphans_reaped, zombies: u32::try_from(zombies).unwrap_or(u32::MAX) }
}

fn signal_all(processes: &[Process], signal: Signal) {
    if is_first() {
        let _ = kill(Pid::from_raw(-1), signal); // at once, so that no fork slips through
    } else {
        for process in processes {
            let _ = kill(Pid::from_raw(process.pid), signal);
        }
    }
}

/// Ends everything at once; for a supervisor that ends itself and is not the first process.
pub(super) fn leave_nothing() {
    if !is_first() {
        signal_all(&alive(), Signal::SIGKILL);
    }
}

/// A ladder in progress.
#[derive(Debug)]
pub(super) struct TreeKill {
    pub(super) id: u64,
    end: TreeEnd,
    rung: Rung,
    look_at: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Rung {
    Asked { until: Instant },
    Killed { until: Instant },
}

impl TreeKill {
    pub(super) fn begin(id: u64, grace: Duration, now: Instant) -> Self {
        let processes = alive();
        signal_all(&processes, Signal::SIGTERM);
        signal_all(&processes, Signal::SIGCONT); // a stopped process takes its TERM only then
        let end = TreeEnd { found: count(&processes), ..TreeEnd::default() };
        let until = now.checked_add(grace).unwrap_or(now + AFTER_KILL);
        Self { id, end, rung: Rung::Asked { until }, look_at: now }
    }

    pub(super) fn next_wake(&self) -> Instant {
        self.look_at
    }

    /// The result, once there is one.
    pub(super) fn on_time(&mut self, now: Instant) -> Option<TreeEnd> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK;
        let left = alive();
        match self.rung {
            _ if left.is_empty() => return Some(self.end),
            Rung::Asked { until } if now >= until => {
                self.end.killed = count(&left);
                signal_all(&left, Signal::SIGKILL);
                self.rung = Rung::Killed { until: now + AFTER_KILL };
            }
            Rung::Asked { .. } => {}
            Rung::Killed { until } if now >= until => return Some(TreeEnd { left: count(&left), ..self.end }),
            Rung::Killed { .. } => signal_all(&left, Signal::SIGKILL),
        }
        None
    }
}

fn count(processes: &[Process]) -> u32 {
    u32::try_from(processes.len()).unwrap_or(u32::MAX)
}
