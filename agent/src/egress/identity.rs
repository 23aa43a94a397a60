//! A process that is still the one we started: its number together with its start time.

use serde::{Deserialize, Serialize};

/// Process number and start time; together they name one process of this machine for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessIdentity {
    pub(super) pid: i32,
    started: String,
}

impl ProcessIdentity {
    /// The process that now has this number; `None` if there is none, or only its unreaped remains.
    pub(super) fn of(pid: i32) -> Option<Self> {
        start_time(pid).map(|started| Self { pid, started })
    }

    /// True while exactly this process runs.
    pub(super) fn is_alive(&self) -> bool {
        self.pid > 1 && start_time(self.pid).is_some_and(|started| started == self.started)
    }
}

/// Boot and clock ticks since it.
#[cfg(target_os = "linux")]
fn start_time(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold spaces and parentheses: fields are counted from the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{}:{}", boot.trim(), fields.nth(18)?))
}

#[cfg(not(target_os = "linux"))]
fn start_time(pid: i32) -> Option<String> {
    let output = std::process::Command::new("ps")
        .env("LC_ALL", "C")
        .args(["-o", "stat=,lstart=", "-p", &pid.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (state, started) = text.trim().split_once(char::is_whitespace)?;
    (!state.starts_with('Z')).then(|| started.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_number_is_another_process() {
        let own = ProcessIdentity::of(std::process::id().cast_signed()).unwrap();
        assert!(own.is_alive());
        let other = ProcessIdentity { started: "1970:1".to_owned(), ..own };
        assert!(!other.is_alive());
    }
}
