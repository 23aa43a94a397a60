//! What the caller was given, told to the controller, so that lists of attempts say the same as the caller's receipt.

use std::time::Duration;

use agent::config::Config;
use agent::ids::AttemptId;
use agent::receipt::{Status, status_of};

use super::deliver::Settled;
use crate::cli::connect::Connection;
use crate::cli::unsent;

/// Answer and receipt are in their places: the caller waits no longer than this for a word about it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells it, once everything is in its place. A worker of this very process knows its own word, and hears only of another.
/// Not heard is no harm to the lane: the list says that nothing was reported until a later command has said it.
pub async fn report(
    config: &Config,
    connection: &Connection,
    attempt: AttemptId,
    by_worker: Option<Status>,
    settled: &Settled,
) {
    let Some(given) = status_of(&settled.receipt).filter(|_| settled.written) else { return };
    if connection.remembers(attempt, by_worker, given) {
        return;
    }
    match tokio::time::timeout(PATIENCE, connection.client().delivered(attempt, given)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if !unsent::may_be_heard(&error) => {
            tracing::info!(%attempt, %error, "the controller does not take what was delivered");
        }
        Ok(Err(_)) | Err(_) => {
            tracing::warn!(%attempt, "the controller does not know yet what was delivered");
            later(config, connection, attempt, settled);
        }
    }
}

/// Leaves it to a later command: the controller cannot be asked now.
pub fn later(config: &Config, connection: &Connection, attempt: AttemptId, settled: &Settled) {
    let given = status_of(&settled.receipt).filter(|_| settled.written && connection.client().transport().is_remote());
    if let Some(given) = given {
        unsent::keep(config, attempt, given);
    }
}
