//! `laneyard init`: gives a controller its identity.

use std::path::PathBuf;
use std::process::ExitCode;

use agent::config::Config;
use agent::wire::identity::{Kind, Role};
use serde_json::json;

use super::output;
use crate::identity::place::check_names;
use crate::identity::{IdentityDir, Lives, PlaceError, Registry};
use crate::serve::{ServeConfig, claim_directory};
use crate::store::Store;

/// Give this machine's controller an identity: a private authority, its certificate, and an administrator's token.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// The controller's state directory; by default `controller` under the state directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A name or address that clients and workers reach the controller by; may be repeated.
    #[arg(long = "name", value_name = "HOST|IP")]
    names: Vec<String>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Init {
    /// Makes the identity, or nothing.
    ///
    /// # Errors
    /// There is one already, the controller runs, or a file cannot be written.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let dir = self.dir.unwrap_or_else(|| ServeConfig::dir_of(&config.state_dir));
        let place = IdentityDir::of(&dir);
        if place.exists() {
            return Err(PlaceError::Exists { path: place.path().to_owned() }.into());
        }
        check_names(&self.names)?;
        // A controller that runs would go on without the identity.
        let _lock = claim_directory(&dir)?;
        let lives = Lives::default();
        let registry = Registry::open(Store::open(&dir, 0).await?, None, lives).await?;
        let (admin, secret) = registry.make_token(Kind::Token, Role::Admin, "admin", None).await?;
        let made = place.make(&self.names, &secret, lives.server);
        if made.is_err() {
            registry.revoke(&admin.id).await?; // nobody has its secret
        }
        let authority = made?;
        if self.json {
            let made = json!({
                "authority": authority.fingerprint().to_string(),
                "ca": place.ca(),
                "adminTokenFile": place.admin_token(),
                "names": place.names()?,
            });
            output::data(&made.to_string());
            return Ok(ExitCode::SUCCESS);
        }
        let listen = if self.names.is_empty() { "127.0.0.1:7410" } else { "0.0.0.0:7410" };
        let host = self.names.first().map_or("localhost", String::as_str);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        output::data(&format!("authority {} in {}", authority.fingerprint(), place.ca().display()));
        output::data(&format!("administrator's token in {}", place.admin_token().display()));
        output::line(&format!(
            "Next:\n  laneyard serve --listen {listen}\n  laneyard worker token          # here; prints what a worker \
             runs to join\n  laneyard token create --role submit --name NAME   # here; a token for a person or CI\n\
             Clients need the authority's file and their token:\n  laneyard run --controller https://{host}:7410 --ca \
             ca.pem --token-file TOKEN …"
        ));
        Ok(ExitCode::SUCCESS)
    }
}
