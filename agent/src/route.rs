//! Which descriptors the parent's own subagents cover, and the Claude ids that are read as their family
//! (policy-and-contract 3.1; dispatch document, "Read-time normalization").

pub mod definitions; // lanes that a directory of definitions adds

use std::fmt;

use crate::descriptor::{Effort, Parent, Provider, SELECTABLE_EFFORTS};

/// The Claude families whose pinned revisions are read as the family itself.
pub const FAMILIES: &[&str] = &["fable", "opus", "sonnet"];

/// A lane of the parent itself. `Display` is the name under which the parent starts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeLane {
    /// Codex' `spawn_agent`, any model and effort.
    SpawnAgent,
    /// An agent definition of Claude Code; the shipped ones are called `pstack-<family>-<effort>`.
    ClaudeAgent {
        /// The definition's name.
        name: String,
    },
}

impl fmt::Display for NativeLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpawnAgent => f.write_str("spawn_agent"),
            Self::ClaudeAgent { name } => f.write_str(name),
        }
    }
}

/// The native lane that covers a descriptor by the shipped definitions; `None` means the external runner.
/// A stale pin is treated as its family.
#[must_use]
pub fn native(parent: Parent, provider: Provider, model: &str, effort: Effort) -> Option<NativeLane> {
    match (parent, provider) {
        (Parent::Codex, Provider::Codex) => Some(NativeLane::SpawnAgent),
        (Parent::Claude, Provider::Claude) => {
            let model = stale_pin(model).unwrap_or(model);
            (FAMILIES.contains(&model) && SELECTABLE_EFFORTS.contains(&effort))
                .then(|| NativeLane::ClaudeAgent { name: format!("pstack-{model}-{effort}") })
        }
        _ => None,
    }
}

/// The family of a versioned Claude id that an older sheet may hold: `claude-<family>-` and then only digits and
/// hyphens. Such an id must never reach a CLI; other ids are `None` and pass unchanged.
#[must_use]
pub fn stale_pin(model: &str) -> Option<&'static str> {
    let rest = model.strip_prefix("claude-")?;
    FAMILIES.iter().copied().find(|family| {
        rest.strip_prefix(family).and_then(|rest| rest.strip_prefix('-')).is_some_and(|revision| {
            !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(parent: Parent, provider: Provider, model: &str, effort: Effort, expected: Option<&str>) {
        let lane = native(parent, provider, model, effort).map(|lane| lane.to_string());
        assert_eq!(lane.as_deref(), expected, "{parent} {provider}:{model}@{effort}");
    }

    #[test]
    fn each_parent_covers_its_own_models_only() {
        check(Parent::Codex, Provider::Codex, "anything", Effort::Default, Some("spawn_agent"));
        check(Parent::Claude, Provider::Codex, "anything", Effort::High, None);
        check(Parent::Claude, Provider::Claude, "opus", Effort::Max, Some("pstack-opus-max"));
        check(Parent::Codex, Provider::Claude, "opus", Effort::Max, None);
        check(Parent::Claude, Provider::Claude, "opus", Effort::Default, None);
        check(Parent::Claude, Provider::Claude, "haiku", Effort::Low, None);
        check(Parent::Claude, Provider::Claude, "claude-opus-4-1", Effort::Max, Some("pstack-opus-max"));
        check(Parent::Claude, Provider::Claude, "claude-haiku-4-5", Effort::Max, None);
        check(Parent::Claude, Provider::Grok, "opus", Effort::Max, None);
    }

    #[test]
    fn only_digits_and_hyphens_after_a_family_are_a_stale_pin() {
        assert_eq!(stale_pin("claude-fable-1"), Some("fable"));
        assert_eq!(stale_pin("claude-sonnet-4--5-"), Some("sonnet"));
        for model in ["opus", "claude-opus", "claude-opus-", "claude-opus-4.1", "claude-opus-4-x", "claude-haiku-4"] {
            assert_eq!(stale_pin(model), None, "{model}");
        }
    }
}
