//! Flags that say where attempts are: shared by the commands that look at them.

use std::path::PathBuf;

use agent::config::{Config, ConfigError, ControllerAddress, Environment};
use agent::container::discover::EngineChoice;

/// Where to look.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Place {
    /// The controller to talk to, instead of this machine's own.
    #[arg(long, value_name = "URL", global = true)]
    pub controller: Option<String>,
    /// Proves who we are to the controller.
    #[arg(long, value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// Where attempts are kept on this machine.
    #[arg(long, value_name = "DIR", global = true)]
    pub state_dir: Option<PathBuf>,
    /// docker, podman, or the address of an engine's socket.
    #[arg(long, value_name = "NAME|ADDRESS", global = true)]
    pub engine: Option<EngineChoice>,
}

impl Place {
    /// The configuration with these flags over it.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn config(self, environment: &Environment) -> Result<Config, ConfigError> {
        let mut config = Config::load(environment)?;
        config.engine = self.engine.or(config.engine);
        if let Some(directory) = self.state_dir {
            config.state_dir = std::path::absolute(&directory).unwrap_or(directory);
        }
        if let Some(url) = self.controller {
            config.controller = Some(ControllerAddress { url, token_file: None });
        }
        if let (Some(address), Some(file)) = (config.controller.as_mut(), self.token_file) {
            address.token_file = Some(file);
        }
        Ok(config)
    }
}
