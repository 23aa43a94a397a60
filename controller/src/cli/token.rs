//! `laneyard token`: credentials of people and CI.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use agent::config::Config;
use agent::identity::signing_request;
use agent::moment::moment;
use agent::secret_file;
use agent::wire::attempt::Page;
use agent::wire::identity::{CreateCredential, CredentialView, Kind, Role, Standing};
use agent::wire::paths;
use anyhow::Context as _;

use super::administer::{self, Administration};
use super::run::options::UsageError;
use super::table::table;
use super::{life, output};

/// Make, list and revoke the credentials of people, CI and workers.
#[derive(Debug, clap::Args)]
pub struct Token {
    /// The state directory of this machine's controller, instead of the configured controller.
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a token, and print it this once.
    Create(Create),
    /// List credentials: those that count, or all.
    List {
        /// Also expired, revoked and used ones.
        #[arg(long)]
        all: bool,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// End a credential at once, also on open connections.
    Revoke {
        /// Its public id.
        id: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// submit, approve or admin; each includes those before it.
    #[arg(long)]
    role: Role,
    /// Whose it is: shown as the submitter.
    #[arg(long)]
    name: String,
    /// When it ends, such as 30d; without: never.
    #[arg(long, value_name = "DURATION", value_parser = life::of_credential)]
    expires: Option<Duration>,
    /// Write the token into this new file (mode 0600) instead of printing it.
    #[arg(long, value_name = "FILE", conflicts_with = "certificate")]
    out: Option<PathBuf>,
    /// Make a client certificate instead, and write it with its key into this file (mode 0600).
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Token {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The controller cannot be asked, or refuses.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let there = administer::open(config, self.dir).await?;
        let done = match self.command {
            Command::Create(create) => create.run(&there).await,
            Command::List { all, json } => list(&there, all, json).await,
            Command::Revoke { id, json } => revoke(&there, &id, json).await,
        };
        there.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }
}

impl Create {
    async fn run(self, there: &Administration) -> anyhow::Result<()> {
        let kind = if self.certificate.is_some() { Kind::Certificate } else { Kind::Token };
        let key = rcgen::KeyPair::generate()?;
        let csr = self.certificate.as_ref().map(|_| signing_request(&self.name, &key)).transpose()?;
        for path in self.out.iter().chain(&self.certificate) {
            if path.exists() {
                return Err(UsageError(format!("`{}` exists: name a new file", path.display())).into());
            }
        }
        let expires_in_s = self.expires.map(|life| life.as_secs());
        let wanted = CreateCredential { kind, name: self.name, role: self.role, expires_in_s, csr };
        let created = there.make(&wanted).await?;
        let view = &created.credential;
        let kept = match (&self.out, &self.certificate, &created.secret, &created.certificate) {
            (Some(path), _, Some(secret), _) => keep(path, &format!("{secret}\n")),
            (_, Some(path), _, Some(chain)) => keep(path, &format!("{chain}{}", key.serialize_pem())),
            _ => Ok(()),
        };
        if let Err(error) = kept {
            // Nobody has its secret: it must not count.
            let revoked: Result<CredentialView, _> =
                there.post(&format!("{}/{}/revoke", paths::CREDENTIALS, view.id), &serde_json::json!({})).await;
            return Err(match revoked {
                Ok(_) => error.context(format!("credential {} was revoked again", view.id)),
                Err(_) => error.context(format!("revoke it: `laneyard token revoke {}`", view.id)),
            });
        }
        match (&self.out, &self.certificate, created.secret, created.certificate) {
            (Some(_), _, Some(_), _) | (_, Some(_), _, Some(_)) => {}
            (None, None, Some(secret), _) if self.json => {
                let mut value = serde_json::to_value(view)?;
                value["secret"] = secret.into();
                output::data(&value.to_string());
                return Ok(());
            }
            (None, None, Some(secret), _) => output::data(&secret),
            _ => anyhow::bail!("the controller's answer has no credential: are both of the same version?"),
        }
        if self.json {
            output::data(&serde_json::to_string(view)?);
        } else {
            output::line(&format!(
                "{} {} for `{}`, role {}{}",
                view.kind.as_str(),
                view.id,
                view.name,
                view.role,
                end(view)
            ));
        }
        Ok(())
    }
}

fn keep(path: &Path, content: &str) -> anyhow::Result<()> {
    secret_file::write(path, content).with_context(|| format!("cannot write `{}`", path.display()))
}

fn end(view: &CredentialView) -> String {
    view.expires_at.map_or_else(String::new, |end| format!(", until {}", moment(end)))
}

async fn list(there: &Administration, all: bool, json: bool) -> anyhow::Result<()> {
    let mut rows = vec![["id", "kind", "role", "name", "standing", "until"].map(str::to_owned).to_vec()];
    let mut after = String::new();
    loop {
        let page: Page<CredentialView> = there.get(&format!("{}?limit=200{after}", paths::CREDENTIALS)).await?;
        for view in page.items.iter().filter(|view| all || view.standing == Standing::Active) {
            if json {
                output::data(&serde_json::to_string(view)?);
            }
            let until = view.expires_at.map_or_else(|| "-".to_owned(), moment);
            let name = if view.name.is_empty() { "-" } else { &view.name };
            let cells = [&view.id, view.kind.as_str(), view.role.as_str(), name, view.standing.as_str(), &until];
            rows.push(cells.map(str::to_owned).to_vec());
        }
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    if !json {
        output::raw(&table(&rows));
    }
    Ok(())
}

async fn revoke(there: &Administration, id: &str, json: bool) -> anyhow::Result<()> {
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(UsageError(format!("`{id}` is no id: `laneyard token list` shows them")).into());
    }
    let empty = serde_json::json!({});
    let view: CredentialView = there.post(&format!("{}/{id}/revoke", paths::CREDENTIALS), &empty).await?;
    if json {
        output::data(&serde_json::to_string(&view)?);
    } else {
        output::line(&format!("{} {} of `{}` is {}", view.kind.as_str(), view.id, view.name, view.standing.as_str()));
    }
    Ok(())
}
