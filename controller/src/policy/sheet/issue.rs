//! What can be wrong with a sheet: a kind with its facts, and where in the text it stands.

use agent::descriptor::Provider;

use super::span::Span;

/// One finding. `Display` is the compatible one-line text; the span is for human output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct Issue {
    pub kind: IssueKind,
    /// `None` for findings about what is missing.
    pub span: Option<Span>,
}

impl Issue {
    /// A finding about a place in the text.
    #[must_use]
    pub const fn at(span: Span, kind: IssueKind) -> Self {
        Self { kind, span: Some(span) }
    }

    /// A finding about the file as a whole.
    #[must_use]
    pub const fn of_file(kind: IssueKind) -> Self {
        Self { kind, span: None }
    }
}

/// The comment lines that hold JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    Access,
    Fallback,
    Continuation,
}

impl Metadata {
    /// The word after `# `.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Fallback => "fallback",
            Self::Continuation => "continuation",
        }
    }
}

/// Kinds of findings (policy-and-contract 2.3, 2.4, 3, 4.1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueKind {
    #[error("unknown role row header \"{text}\"")]
    UnknownHeader { text: String },
    #[error("duplicate role row: {header}")]
    DuplicateRow { header: &'static str },
    /// A finding inside a row.
    #[error("{header}: {inner}")]
    InRow { header: &'static str, inner: Box<IssueKind> },
    #[error("the row has no attempts")]
    NoAttempts,
    #[error("empty seat")]
    EmptySeat,
    #[error("must have exactly one seat, found {found}")]
    NotOneSeat { found: usize },
    #[error("empty attempt in seat \"{seat}\"")]
    EmptyAttempt { seat: String },
    #[error("a seat has {count} attempts; the maximum is 3")]
    TooManyAttempts { count: usize },
    #[error("\"{text}\" is neither an alias nor a provider:model@effort descriptor")]
    BadAttempt { text: String },
    #[error("unsupported effort \"{effort}\" in \"{text}\"")]
    UnsupportedEffort { text: String, effort: String },
    #[error("\"{text}\": an exact id is required for {provider}, at effort default and never auto")]
    ExactIdRequired { text: String, provider: Provider },
    #[error(
        "\"{text}\": the row needs the parent's live MCP surface; only the aliases inherit-parent and auto are possible"
    )]
    AliasesOnly { text: String },
    #[error("seat repeats provider {provider}")]
    RepeatsProvider { provider: Provider },
    #[error("duplicate attempt \"{text}\" in one seat")]
    DuplicateAttempt { text: String },
    #[error("a seat has {count} parent aliases; they are the same account")]
    TooManyAliases { count: usize },

    #[error("# {} line is not JSON: {line}", .what.as_str())]
    MetadataNotJson { what: Metadata, line: String },
    #[error("# {} line is not a JSON object: {line}", .what.as_str())]
    MetadataNotObject { what: Metadata, line: String },
    #[error("# {} line has the unknown key \"{key}\": {line}", .what.as_str())]
    UnknownKey { what: Metadata, key: String, line: String },
    #[error("# access line: \"{field}\" must be {expected}: {line}")]
    AccessField { field: &'static str, expected: String, line: String },
    #[error("more than one access record for provider {provider}")]
    DuplicateAccess { provider: Provider },
    #[error("# {} line: \"on\" must be an array: {line}", .what.as_str())]
    OnNotArray { what: Metadata, line: String },
    #[error("# {} line: unknown entry {entry} in \"on\"; allowed: {allowed}: {line}", .what.as_str())]
    OnUnknown { what: Metadata, entry: String, allowed: String, line: String },
    #[error("# {} line: repeated entry \"{entry}\" in \"on\": {line}", .what.as_str())]
    OnRepeated { what: Metadata, entry: String, line: String },
    #[error("# continuation line: \"max\" must be an integer from 1 to 4: {line}")]
    MaxOutOfRange { line: String },
    #[error("more than one # {} line", .what.as_str())]
    DuplicateMetadata { what: Metadata },

    #[error("setup requires access facts: the sheet has no # access line")]
    NoAccessFacts,
    #[error("missing required role row: {header}")]
    MissingRow { header: &'static str },
    #[error("must have at least {least} seats, found {found}")]
    TooFewSeats { least: usize, found: usize },
    #[error("role \"{role}\" is ambiguous: {}", .headers.join("; "))]
    AmbiguousRole { role: String, headers: Vec<&'static str> },
    #[error("policy-enabled sheet has no role \"{role}\"")]
    NoRole { role: String },
    #[error("{lane}: no access fact for provider {provider}; {descriptor} needs confirmed funding")]
    NoAccessFact { lane: String, provider: Provider, descriptor: String },
    #[error("{lane}: two attempts use the {provider} account")]
    SameAccount { lane: String, provider: Provider },
    #[error("{lane}: {descriptor} is not authorized: {reason}")]
    NotAuthorized { lane: String, descriptor: String, reason: String },
}

impl IssueKind {
    /// The same finding, told of a row.
    #[must_use]
    pub fn in_row(self, header: &'static str) -> Self {
        Self::InRow { header, inner: Box::new(self) }
    }
}
