//! Recognizes commands that failed because the CLI's own sandbox could not start (real CLIs 3.5 and 6.6).

/// How the first line of such a command's output begins.
const STARTS: &[&str] = &[
    "bwrap: ",
    "Error: sandbox required but unavailable",
    "apply-seccomp: ",
    "filesystem-restricted execution requires bubblewrap",
    "error running codex-linux-sandbox",
];

/// True for the output of a command that never ran. Claude puts `Exit code N` before the output.
pub(super) fn could_not_start(output: &str) -> bool {
    let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut first = lines.next().unwrap_or_default();
    if first.starts_with("Exit code ") {
        first = lines.next().unwrap_or_default();
    }
    let first = first.strip_prefix("Error: Exit code 1 ").unwrap_or(first);
    STARTS.iter().any(|start| first.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_tells() {
        assert!(could_not_start("Exit code 1\nbwrap: No permissions to create new namespace, likely because"));
        assert!(could_not_start("bwrap: setting up uid map: Operation not permitted\n"));
        assert!(!could_not_start("ok\nbwrap: No permissions to create new namespace"));
        assert!(!could_not_start("Exit code 2\nls: cannot access 'x'"));
        assert!(!could_not_start(""));
    }
}
