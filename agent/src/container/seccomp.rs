//! Our seccomp profile: unprivileged user namespaces and what a nested sandbox does in them are allowed, the rest is
//! narrower than the engines' defaults.

/// The profile's text, in the format that both engines read.
pub(crate) const PROFILE: &str = include_str!("seccomp.json");

#[cfg(test)]
mod tests {
    use serde_json::Value;

    fn names(action: &str) -> Vec<String> {
        let profile: Value = serde_json::from_str(super::PROFILE).unwrap();
        let mut found = Vec::new();
        for rule in profile["syscalls"].as_array().unwrap() {
            if rule["action"] == action {
                found.extend(rule["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()));
            }
        }
        found
    }

    #[test]
    fn dangerous_calls_are_never_allowed() {
        let allowed = names("SCMP_ACT_ALLOW");
        for name in [
            "bpf",
            "keyctl",
            "add_key",
            "request_key",
            "perf_event_open",
            "userfaultfd",
            "io_uring_setup",
            "kexec_load",
            "init_module",
            "finit_module",
            "open_by_handle_at",
            "quotactl",
            "swapon",
            "reboot",
            "move_mount",
            "fsopen",
        ] {
            assert!(!allowed.iter().any(|have| have == name), "{name} is allowed");
        }
    }

    #[test]
    fn a_nested_sandbox_finds_what_it_needs() {
        let allowed = names("SCMP_ACT_ALLOW");
        for name in ["clone", "clone3", "unshare", "mount", "umount2", "pivot_root", "setns", "seccomp", "sethostname"]
        {
            assert!(allowed.iter().any(|have| have == name), "{name} is not allowed");
        }
    }
}
