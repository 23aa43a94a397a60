//! With which credential a command goes on with an attempt whose client left a record.

use agent::config::{Config, ControllerAddress, Proof};
use sha2::{Digest as _, Sha256};

use super::connect;
use super::record::Record;
use crate::store::answers::hex;

/// Tells one credential from another without saying anything about it. `None`: it cannot be read, or there is none.
#[must_use]
pub fn digest(proof: &Proof) -> Option<String> {
    let bytes = std::fs::read(proof.token_file.as_ref().or(proof.client_cert.as_ref())?).ok()?;
    Some(hex(&Sha256::digest(bytes)))
}

/// True if this is the very credential with which the record's client submitted: a controller that takes it is that
/// client's, and takes us for the same submitter.
#[must_use]
pub fn is_the_clients(address: &ControllerAddress, record: &Record) -> bool {
    let now = digest(&address.proof);
    now.is_some() && now == record.credential && record.controller.as_ref() == Some(&address.url)
}

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
