//! The vocabulary of an assignment: parents, providers, efforts, modes, contracts, spending.
//! Source: dispatch document; `policy-and-contract` section 1.

/// The text is none of the allowed words of its vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} must be one of: {}", allowed.join(", "))]
pub struct VocabularyError {
    /// Name of the vocabulary as the command line spells it, without dashes.
    pub name: &'static str,
    /// Allowed words in documented order.
    pub allowed: &'static [&'static str],
}

/// Declares a closed vocabulary: an enum with one spelling a value, in documented order.
/// The controller declares the words of its own files with it, too.
#[macro_export]
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident, $label:literal, { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// All values in documented order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// All spellings in documented order.
            pub const WORDS: &'static [&'static str] = &[$($text),+];

            /// The one spelling.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::descriptor::VocabularyError;
            fn from_str(text: &str) -> ::std::result::Result<Self, $crate::descriptor::VocabularyError> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::descriptor::VocabularyError { name: $label, allowed: Self::WORDS }),
                }
            }
        }
    };
}

vocabulary!(
    /// The top-level harness that owns the repository and the route.
    Parent, "parent", { Claude = "claude", Codex = "codex" }
);
vocabulary!(
    /// A coding-agent CLI.
    Provider, "provider", {
        Claude = "claude", Codex = "codex", Grok = "grok", Devin = "devin",
        Cursor = "cursor", Antigravity = "antigravity", OpenCode = "opencode",
    }
);
vocabulary!(
    /// Reasoning effort; `default` means that the provider has no separate effort flag.
    Effort, "effort", {
        Low = "low", Medium = "medium", High = "high", XHigh = "xhigh", Max = "max", Default = "default",
    }
);
vocabulary!(
    /// What a lane may do with its working directory.
    Mode, "mode", { ReadOnly = "read-only", IsolatedWrite = "isolated-write" }
);
vocabulary!(
    /// Which ownership contract governs the lane.
    Contract, "contract", { Legacy = "legacy", Strict = "strict" }
);
vocabulary!(
    /// Saved permission to use a metered route. Absent on the command line means `legacy` on the receipt.
    ApiSpend, "api-spend", { Deny = "deny", Approved = "approved" }
);
vocabulary!(
    /// An operation that only the parent carries out, asked for by a handoff.
    ParentOperation, "kind", { CommitCheckpoint = "commit-checkpoint", RunChecks = "run-checks" }
);
vocabulary!(
    /// What is asked of the CLI's own sandbox inside the container (design section 6).
    InnerSandbox, "inner-sandbox", {
        /// Keep it where the probe shows that it works, else rely on the container alone.
        Prefer = "prefer",
        /// Fail the lane when it cannot start.
        Require = "require",
        /// Never use it.
        Off = "off",
    }
);

/// The efforts that a provider with an effort flag takes.
pub const SELECTABLE_EFFORTS: &[Effort] = &[Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max];

impl Mode {
    /// True for lanes that may change their worktree.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::IsolatedWrite)
    }
}
