//! Words for a controller that were not heard: what a caller was given, see [`report`](super::run::report). They are kept
//! beside the records of clients, and a later command's process in the background sends them.

use agent::config::{Config, ControllerAddress, Proof};
use agent::ids::AttemptId;
use agent::receipt::Status;
use agent::transport::CallError;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::later::Later;
use super::output::chain;
use super::record::Records;
use crate::client::Client;

/// Ending of such a word's name.
const NAME: &str = "given";
/// So many tries, with their pauses two days and more of commands, and nobody cares any more.
const TRIES: u32 = 60;

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unsent {
    controller: String,
    /// Names of files, never their content.
    #[serde(flatten)]
    proof: Proof,
    given: Status,
    /// `None`: the next command tries it.
    #[serde(default)]
    later: Option<Later>,
}

/// True if the same word may be taken later, by the same controller or with another credential.
#[must_use]
pub fn may_be_heard(error: &CallError) -> bool {
    error.is_passing() || error.is_of_credential()
}

/// Keeps a word for later. Nothing is lost but a line in a list if that fails too.
pub fn keep(config: &Config, attempt: AttemptId, given: Status) {
    let Some(ControllerAddress { url, proof }) = config.controller.clone() else { return };
    let unsent = Unsent { controller: url, proof, given, later: None };
    if let Err(error) = Records::of(&config.state_dir).write_beside(attempt, NAME, &unsent) {
        tracing::warn!(%attempt, %error, "the controller will not know what was delivered");
    }
}

/// True if a word's time has come.
#[must_use]
pub fn any_due(records: &Records) -> bool {
    let now = OffsetDateTime::now_utc();
    records.named(NAME).into_iter().any(|attempt| read(records, attempt).is_none_or(|unsent| unsent.is_due(now)))
}

/// Sends those whose time has come, each once.
pub async fn send_due(config: &Config) {
    let (records, now) = (Records::of(&config.state_dir), OffsetDateTime::now_utc());
    let sending = records.named(NAME).into_iter().filter_map(|attempt| match read(&records, attempt) {
        Some(unsent) => unsent.is_due(now).then(|| send(config, attempt, unsent)),
        None => {
            records.remove_beside(attempt, NAME); // nothing in it can be used
            None
        }
    });
    join_all(sending).await;
}

fn read(records: &Records, attempt: AttemptId) -> Option<Unsent> {
    serde_json::from_slice(&std::fs::read(records.beside(attempt, NAME)).ok()?).ok()
}

impl Unsent {
    fn is_due(&self, now: OffsetDateTime) -> bool {
        self.later.as_ref().is_none_or(|later| later.is_due(now))
    }

    /// The controller, with the credential that counts now.
    fn address(&self, config: &Config) -> ControllerAddress {
        let configured = config.controller.as_ref().filter(|configured| configured.url == self.controller);
        let proof = configured.map_or_else(|| self.proof.clone(), |now| now.proof.clone().or(self.proof.clone()));
        ControllerAddress { url: self.controller.clone(), proof }
    }
}

async fn send(config: &Config, attempt: AttemptId, mut unsent: Unsent) {
    let records = Records::of(&config.state_dir);
    let former = unsent.later.take();
    if former.as_ref().is_some_and(|former| former.tries >= TRIES) {
        return records.remove_beside(attempt, NAME);
    }
    // Before the try: the next command starts no second one, and one that is killed is not repeated at once.
    let put_off = |reason: &str| {
        let later = Some(Later::after(former.as_ref(), reason, OffsetDateTime::now_utc()));
        records.write_beside(attempt, NAME, &Unsent { later, ..unsent.clone() })
    };
    if put_off("it is being tried").is_err() {
        return;
    }
    let told = match unsent.address(config).transport() {
        Ok(transport) => Client::new(transport).delivered(attempt, unsent.given).await.map(drop),
        Err(error) => {
            let _ = put_off(&chain(&error)); // the note before it says the same about the time
            return;
        }
    };
    match told {
        Ok(()) => records.remove_beside(attempt, NAME),
        Err(error) if may_be_heard(&error) => {
            let _ = put_off(&chain(&error));
        }
        Err(error) => {
            tracing::info!(%attempt, %error, "the controller does not take what was delivered");
            records.remove_beside(attempt, NAME);
        }
    }
}
