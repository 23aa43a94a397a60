//! Who may talk to this controller, and how it proves itself: an authority of its own, and a register of credentials.

pub mod authority; // signs certificates
mod changes; // made, joined, renewed, revoked
pub mod credential; // one credential, and its secret
pub mod place; // the files
pub mod registry; // which credentials count right now

use std::time::Duration;

pub use self::authority::{Authority, AuthorityError};
pub use self::credential::Credential;
pub use self::place::{IdentityDir, PlaceError};
pub use self::registry::{Bearer, Denied, Grant, Registry, RegistryError};

/// How long certificates and tokens live.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    /// The controller's own certificate.
    pub server: Duration,
    /// Certificates of workers, people and CI.
    pub client: Duration,
    /// Join tokens, where nothing else is asked for.
    pub join: Duration,
}

impl Default for Lives {
    fn default() -> Self {
        const DAY: u64 = 86_400;
        Self {
            server: Duration::from_secs(90 * DAY),
            client: Duration::from_secs(30 * DAY),
            join: Duration::from_secs(3600),
        }
    }
}
