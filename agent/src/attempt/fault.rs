//! Named points at which a test kills this process. Only builds with debug assertions have them.

/// Kills the process (SIGKILL, as `kill -9` would) if the environment's `LANEYARD_FAULT` is `<when>:<name>`.
#[cfg(debug_assertions)]
pub fn point(when: &str, name: &str) {
    let Some(wanted) = std::env::var_os("LANEYARD_FAULT") else { return };
    if wanted.to_str() == Some(&format!("{when}:{name}")) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Release builds have no fault points.
#[cfg(not(debug_assertions))]
pub fn point(_when: &str, _name: &str) {}
