//! The text of the worker contract: who owns Git, how a worker finishes (policy-and-contract 10.1, runner 8.1).
//! One text serves `contract prepare` and the prompt of every external lane. It is guidance, no enforcement.

use crate::descriptor::Mode;

/// Which surface runs the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The parent's own subagent primitive.
    Native,
    /// A provider CLI started by the runner.
    External,
}

const ROLE: &str = "\
## Worker contract

You are a subordinate worker. The parent that gave you this assignment owns the repository and decides what happens to \
your result.";

const OWNERSHIP: &str = "\
Git ownership:
- The parent does every Git mutation, every remote write and every repository- or account-level change. Never stage, \
commit, reset, rebase, cherry-pick, tag, branch, push or fetch, and run no Git command with arguments that write. Create \
or edit nothing inside Git metadata, be `.git` a directory or a pointer file: no config, hooks, refs, index or worktree \
records. Run no package manager, hook or other command that changes them as a side effect.
- You may read with `git status`, `git diff` and `git log` where they are available. That is never a licence to write.
- Create and edit files only inside the assigned directory or at an explicitly assigned output path. A read-only \
assignment leaves the inspected checkout alone and writes its assigned output artifact only. Make throw-away \
repositories only when the task explicitly asks for them, inside the assigned directory, and never let them refer to \
the repository's own Git directory.";

const NATIVE: &str = "\
You run on a surface that the host provides. Its tools come from the host: this text grants none of them and enforces \
nothing.";

const CHECKS: &str = "\
Local checks:
- Run suitable checks with what is available, and keep their artifacts in the assigned paths.
- A failing check is not a denial: repair what your edits broke, then run the affected checks again.
- When a check cannot run here, ask for it through a handoff with `run-checks`.
- Report the commands you ran, what they showed, and what stayed unchecked.";

const FINISHING: &str = "\
Finishing:
- End with an ordinary final response that says what changed and what you verified. Without a handoff block it closes \
the task.
- If a step that only the parent may do blocks you, end the final response with exactly one block of this form and \
nothing after it:

```pstack-handoff
{\"task\":\"<assigned task>\",\"checkpoint\":\"<assigned checkpoint>\",\"operation\":\"commit-checkpoint\",\"files\":\
[\"<repository-relative path>\"],\"checks\":[\"<check identifier>\"],\"summary\":\"<what is asked and why>\"}
```

  All six keys are required. `operation` is `commit-checkpoint` or `run-checks`; `files` are repository-relative paths; \
`checks` are identifiers. A handoff is an untrusted request: the parent checks it and carries it out with arguments of \
its own. It never holds shell text and never claims that the operation already happened.
- If a means is denied to you, stop and describe the denial. Do not retry, work around or escalate it.";

/// The contract's text, lines joined by LF, without a final newline. Parent and provider do not change it.
#[must_use]
pub fn instructions(route: Route, mode: Mode) -> String {
    text(route, mode, None)
}

/// The whole prompt of an external lane: contract, optional guidance of the driver for its own tools, and the caller's
/// task, whose bytes are kept as they are.
#[must_use]
pub fn prompt(mode: Mode, guidance: Option<&str>, task: &[u8]) -> Vec<u8> {
    let mut prompt = text(Route::External, mode, guidance).into_bytes();
    prompt.extend_from_slice(b"\n\nAssigned task:\n");
    prompt.extend_from_slice(task);
    prompt
}

fn text(route: Route, mode: Mode, guidance: Option<&str>) -> String {
    let mut parts = vec![ROLE, OWNERSHIP];
    if route == Route::Native {
        parts.push(NATIVE);
    }
    parts.extend(guidance.map(str::trim_end).filter(|text| !text.is_empty()));
    if mode.writes() {
        parts.push(CHECKS);
    }
    parts.push(FINISHING);
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::{self, Handoff};

    #[test]
    fn every_contract_names_the_owner_the_forbidden_verbs_and_the_handoff() {
        for route in [Route::Native, Route::External] {
            for mode in Mode::ALL {
                let text = instructions(route, *mode);
                assert!(text.starts_with("## Worker contract\n\n"));
                assert!(!text.ends_with('\n') && !text.contains('\r'));
                for part in [
                    "subordinate worker",
                    "Never stage, commit, reset, rebase",
                    ".git",
                    "cherry-pick, tag, branch",
                    "git status",
                    "pstack-handoff",
                    "commit-checkpoint",
                    "run-checks",
                    "untrusted request",
                ] {
                    assert!(text.contains(part), "{part}");
                }
                assert_eq!(text.contains("Local checks:"), mode.writes());
                assert_eq!(text.contains("surface that the host provides"), route == Route::Native);
            }
        }
    }

    #[test]
    fn the_template_block_is_itself_a_valid_handoff() {
        let text = instructions(Route::External, Mode::ReadOnly);
        let start = text.find("```pstack-handoff").unwrap();
        let end = start + 3 + text[start + 3..].find("```").unwrap() + 3;
        assert!(matches!(handoff::parse(&text[start..end]), Handoff::Valid(_)));
    }

    #[test]
    fn the_prompt_ends_with_the_callers_bytes() {
        let prompt = prompt(Mode::IsolatedWrite, Some("Use the sandboxed shell.\n"), b"do\xff it\n");
        assert!(prompt.ends_with(b"\n\nAssigned task:\ndo\xff it\n"));
        let text = String::from_utf8_lossy(&prompt);
        let (guidance, finishing) = (text.find("Use the sandboxed shell."), text.find("Finishing:"));
        assert!(guidance < finishing && guidance > text.find("Git ownership:"));
    }
}
