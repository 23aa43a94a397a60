//! A writer's session settings (runner 3.2, real CLIs 6.6).

use serde_json::json;

use crate::driver::InnerState;

/// Starts a sandbox like the one that Claude starts for each Bash command. Like it, it keeps the container's `/proc`,
/// because a masked `/proc` forbids to mount a new one.
pub(super) const PROBE: &[&str] = &[
    "bwrap",
    "--new-session",
    "--die-with-parent",
    "--unshare-net",
    "--unshare-pid",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "true",
];

/// The value of `--settings`, compact.
pub(super) fn of_writer(inner: InnerState) -> String {
    match inner {
        InnerState::Enforced => json!({
            "sandbox": {
                "enabled": true,
                "autoAllowBashIfSandboxed": true,
                "failIfUnavailable": true,
                "allowUnsandboxedCommands": false,
                "excludedCommands": [],
                // Keeps the container's own masked /proc; the pid namespace around it is the container's.
                "enableWeakerNestedSandbox": true,
                "network": { "allowedDomains": [] },
            }
        }),
        // Nobody answers prompts here, so Bash must be allowed outright: the container is the boundary.
        InnerState::ContainerOnly => json!({
            "sandbox": { "enabled": false },
            "permissions": { "allow": ["Bash"] },
        }),
    }
    .to_string()
}
