//! Words of the sheet, the lane state and the events (policy-and-contract section 1).

use agent::vocabulary;

vocabulary!(
    /// An attempt that means the parent's own model.
    Alias, "alias", { InheritParent = "inherit-parent", Auto = "auto" }
);
vocabulary!(
    /// How an account is paid for.
    Funding, "funding", { Included = "included", Metered = "metered", Unknown = "unknown" }
);
vocabulary!(
    /// How much an account gives; advisory.
    Capacity, "capacity", { Standard = "standard", High = "high", Unknown = "unknown" }
);
vocabulary!(
    /// Who stated an access fact. Only the user's facts authorize.
    Provenance, "provenance", { User = "user", Provider = "provider" }
);
vocabulary!(
    /// The saved spending choice of an attempt; `unset` without an access fact.
    Spend, "apiSpend", { Deny = "deny", Approved = "approved", Unset = "unset" }
);
vocabulary!(
    /// Outcomes after which a sheet may let the next attempt start.
    FallbackReason, "fallback reason", {
        UsageExhausted = "usage-exhausted",
        RouteUnavailable = "route-unavailable",
        TerminalFailure = "terminal-failure",
        DeadlineExceeded = "deadline-exceeded",
    }
);
vocabulary!(
    /// Interruptions after which a sheet may let the same descriptor go on.
    ContinuationReason, "continuation reason", { Handoff = "handoff", Permission = "permission" }
);
vocabulary!(
    /// How an execution ended, as the policy sees it.
    EventStatus, "status", {
        Complete = "complete",
        UsageExhausted = "usage-exhausted",
        RouteUnavailable = "route-unavailable",
        TerminalFailure = "terminal-failure",
        DeadlineExceeded = "deadline-exceeded",
        Failed = "failed",
        PermissionBlocked = "permission-blocked",
        NeedsParentOperation = "needs-parent-operation",
    }
);
vocabulary!(
    /// Why a tool was denied.
    DeniedCause, "deniedCause", {
        None = "none",
        Permission = "permission",
        UnsupportedTool = "unsupported-tool",
        ChangedFiles = "changed-files",
        Guard = "guard",
        Other = "other",
    }
);
vocabulary!(
    /// The parent's verdict over what a writer left behind; `none` counts as no verdict.
    InspectionState, "inspection state", { Clear = "clear", Unsafe = "unsafe", None = "none" }
);

impl EventStatus {
    /// The fallback reason that this outcome is, if it is one.
    #[must_use]
    pub const fn fallback_reason(self) -> Option<FallbackReason> {
        match self {
            Self::UsageExhausted => Some(FallbackReason::UsageExhausted),
            Self::RouteUnavailable => Some(FallbackReason::RouteUnavailable),
            Self::TerminalFailure => Some(FallbackReason::TerminalFailure),
            Self::DeadlineExceeded => Some(FallbackReason::DeadlineExceeded),
            Self::Complete | Self::Failed | Self::PermissionBlocked | Self::NeedsParentOperation => None,
        }
    }
}
