//! With which credential a command goes on with an attempt whose client left a record.

use agent::config::{Config, ControllerAddress, Proof};

use super::connect;
use super::record::Record;

/// The record's controller, and the credential that counts now: one that the flags name, alone; else the configured one
/// or, if the controller refuses that, the client's own. `None`: the attempt is of this machine.
pub async fn address(config: &Config, flags: &Proof, record: &Record) -> Option<ControllerAddress> {
    let url = record.controller.clone()?;
    let former = ControllerAddress { url, proof: record.proof.clone() };
    // Of another controller nothing is shown to this one.
    let Some(configured) = config.controller.as_ref().filter(|configured| configured.url == former.url) else {
        return Some(former);
    };
    let now = |proof: Proof| ControllerAddress { url: former.url.clone(), proof };
    if names_us(flags) {
        return Some(now(flags.clone().or(configured.proof.clone()).or(former.proof.clone())));
    }
    let named = now(configured.proof.clone().or(former.proof.clone()));
    let same = |key: fn(&Proof) -> &Option<std::path::PathBuf>| key(&named.proof) == key(&former.proof);
    let another = !(same(|proof| &proof.token_file) && same(|proof| &proof.client_cert));
    if another && names_us(&former.proof) && is_refused(config, &named, record).await {
        tracing::info!(attempt = %record.attempt, "the configured credential is refused; using the client's own");
        return Some(former);
    }
    Some(named)
}

const fn names_us(proof: &Proof) -> bool {
    proof.token_file.is_some() || proof.client_cert.is_some()
}

/// True if the controller does not show the attempt's end to this credential, and says so.
async fn is_refused(config: &Config, address: &ControllerAddress, record: &Record) -> bool {
    let there = Config { controller: Some(address.clone()), ..config.clone() };
    let Ok(client) = connect::remote(&there) else { return false };
    client.receipt(record.attempt).await.is_err_and(|error| error.is_of_credential())
}
