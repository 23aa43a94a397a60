//! Identifiers. Each has one spelling, the same in logs, labels, paths and URLs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One execution of one descriptor in one container. A version 7 UUID, so ids sort by time of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptId(Uuid);

impl AttemptId {
    /// A new id, unique on this and every other machine.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// An id after all others, for the end of ranges.
    #[must_use]
    pub const fn last() -> Self {
        Self(Uuid::max())
    }

    /// The last 12 hexadecimal digits: short names of directories and sockets, never an identity.
    #[must_use]
    pub fn short(&self) -> String {
        let text = self.0.simple().to_string();
        text[text.len() - 12..].to_owned()
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// The text is no id.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not an id of {what}")]
pub struct IdError {
    what: &'static str,
    text: String,
}

impl FromStr for AttemptId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Uuid::parse_str(text).map(Self).map_err(|_| IdError { what: "an attempt", text: text.to_owned() })
    }
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            /// 1 to 63 characters of `a-z A-Z 0-9 . _ -`, the first a letter or digit.
            fn from_str(text: &str) -> Result<Self, IdError> {
                let good = text.len() <= 63
                    && text.starts_with(|c: char| c.is_ascii_alphanumeric())
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
                if good { Ok(Self(text.to_owned())) } else { Err(IdError { what: $what, text: text.to_owned() }) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_id!(
    /// A host with an engine and an agent.
    WorkerId,
    "a worker"
);
name_id!(
    /// One configured account of a driver on a worker.
    InstanceId,
    "an instance"
);
name_id!(
    /// A state directory: the owner of containers, written into their labels.
    OwnerId,
    "an owner"
);

/// Grows with each lease of an attempt; a message that carries an older one is late and is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);
