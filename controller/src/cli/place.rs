//! Flags that say where attempts are: shared by the commands that look at them.

use std::path::PathBuf;

use agent::config::{Config, ConfigError, ControllerAddress, Environment, Proof};
use agent::container::discover::EngineChoice;
use agent::ids::AttemptId;
use agent::transport::Endpoint;

use super::record::{Record, Records};
use super::run::options::UsageError;

/// Where to look.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Place {
    /// The controller to talk to, instead of this machine's own.
    #[arg(long, value_name = "URL", global = true)]
    pub controller: Option<String>,
    /// The authority that the controller's certificate must be of.
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// Proves who we are to the controller: a token.
    #[arg(long, value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// Proves who we are to the controller: a certificate.
    #[arg(long, value_name = "FILE", global = true)]
    pub client_cert: Option<PathBuf>,
    /// The certificate's key, if it is not in the same file.
    #[arg(long, value_name = "FILE", global = true)]
    pub client_key: Option<PathBuf>,
    /// Where attempts are kept on this machine.
    #[arg(long, value_name = "DIR", global = true)]
    pub state_dir: Option<PathBuf>,
    /// docker, podman, or the address of an engine's socket.
    #[arg(long, value_name = "NAME|ADDRESS", global = true)]
    pub engine: Option<EngineChoice>,
}

/// These flags cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Usage(#[from] UsageError),
}

impl Place {
    /// The credential that the flags alone name.
    #[must_use]
    pub fn proof(&self) -> Proof {
        let absolute =
            |path: &Option<PathBuf>| path.as_ref().map(|path| std::path::absolute(path).unwrap_or(path.clone()));
        Proof {
            ca: absolute(&self.ca),
            token_file: absolute(&self.token_file),
            client_cert: absolute(&self.client_cert),
            client_key: absolute(&self.client_key),
        }
    }

    /// The configuration with these flags over it.
    ///
    /// # Errors
    /// The configuration cannot be used, or a credential is given for no controller.
    pub fn config(self, environment: &Environment) -> Result<Config, PlaceError> {
        let proof = self.proof();
        let mut config = Config::load(environment)?;
        config.engine = self.engine.or(config.engine);
        if let Some(directory) = self.state_dir {
            config.state_dir = std::path::absolute(&directory).unwrap_or(directory);
        }
        config.controller = controller(config.controller, self.controller, proof)?;
        Ok(config)
    }
}

impl Place {
    /// The same, for a command about one attempt: where no controller is named, credentials are for the one of its client.
    ///
    /// # Errors
    /// As [`Place::config`].
    pub fn config_for(self, environment: &Environment, attempt: AttemptId) -> Result<Config, PlaceError> {
        let plain = Config::load(environment)?;
        if plain.controller.is_none() && self.controller.is_none() {
            let state_dir = self.state_dir.as_ref().unwrap_or(&plain.state_dir);
            if let Ok(Record { controller: Some(url), .. }) = Records::of(state_dir).look(attempt) {
                let mut environment = environment.clone();
                environment.insert("LANEYARD_CONTROLLER".to_owned(), url);
                return self.config(&environment);
            }
        }
        self.config(environment)
    }
}

/// The controller that flags name over the configured one. A credential of one is never shown to another.
///
/// # Errors
/// The address is none, or a credential is given and no controller is named anywhere: it would be ignored.
pub fn controller(
    configured: Option<ControllerAddress>,
    url: Option<String>,
    proof: Proof,
) -> Result<Option<ControllerAddress>, UsageError> {
    if let Some(Err(error)) = url.as_deref().map(str::parse::<Endpoint>) {
        return Err(UsageError(format!("--controller cannot be used: {error}")));
    }
    match (url, configured) {
        (Some(url), Some(configured)) if configured.url == url.trim_end_matches('/') => {
            Ok(Some(ControllerAddress { proof: proof.or(configured.proof), url: configured.url }))
        }
        (Some(url), _) => Ok(Some(ControllerAddress::new(&url, proof))),
        (None, Some(configured)) => {
            Ok(Some(ControllerAddress { proof: proof.or(configured.proof), url: configured.url }))
        }
        (None, None) => match proof.any() {
            Some(flag) => Err(UsageError(format!(
                "{flag} is given and no controller: name it with --controller, or leave {flag} out"
            ))),
            None => Ok(None),
        },
    }
}
