//! How the container is told to start its first process.

use std::fmt;

use uuid::Uuid;

/// Variable that carries the token into the container; the supervisor hides it from everything it starts.
const TOKEN_VARIABLE: &str = "LANEYARD_TOKEN";

/// Secret shared by an agent and the supervisor of one attempt. Keep it with the attempt's private files: an agent that
/// adopts the attempt needs it again.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// 244 random bits.
    #[must_use]
    pub fn generate() -> Self {
        Self(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
    }

    /// A token read back from the attempt's private files.
    #[must_use]
    pub fn from_saved(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, to be saved.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares without leaving early.
    pub(super) fn matches(&self, other: &str) -> bool {
        let (mine, theirs) = (self.0.as_bytes(), other.as_bytes());
        mine.len() == theirs.len() && mine.iter().zip(theirs).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Paths and ports inside the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where the run directory is mounted, such as `/run/laneyard`; holds the sockets.
    pub run_dir: String,
    /// Where the supervisor itself is mounted, such as `/run/laneyard/supervisor`.
    pub supervisor: String,
    /// Made with mode 0700 when it is missing.
    pub home: String,
    /// TCP port on 127.0.0.1 where the egress socket is offered.
    pub proxy_port: u16,
}

impl Entry {
    /// The container's entry point and arguments.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        use super::{AGENT_SOCKET, EGRESS_SOCKET};
        let Self { run_dir, supervisor, home, proxy_port } = self;
        vec![
            supervisor.clone(),
            "--socket".to_owned(),
            format!("{run_dir}/{AGENT_SOCKET}"),
            "--token-env".to_owned(),
            TOKEN_VARIABLE.to_owned(),
            "--proxy".to_owned(),
            format!("127.0.0.1:{proxy_port}={run_dir}/{EGRESS_SOCKET}"),
            "--home".to_owned(),
            home.clone(),
        ]
    }

    /// The container's variables as `NAME=value`: the token and nothing else.
    #[must_use]
    pub fn environment(&self, token: &Token) -> Vec<String> {
        vec![format!("{TOKEN_VARIABLE}={}", token.reveal())]
    }
}
