//! Transfers between requests: packs that were announced and have not all arrived, packs that are being fetched.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::cache::{Lease, write_beside};
use super::transfer::{Offer, Ticket, answer, arrived, part_path};
use super::{SnapshotError, io};

/// What nobody has touched for so long is given up.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// Remembers what is to arrive. Gives the bytes that are there already, and whether all of it was taken before.
///
/// # Errors
/// The ticket names no digest, or the disk refuses.
pub async fn announce(lease: &Lease, ticket: &Ticket) -> Result<(u64, bool), SnapshotError> {
    let path = ticket_path(lease, &ticket.sha256)?;
    let wanted = Offer {
        project: lease.project().clone(),
        format: lease.format(),
        want: ticket.want.clone(),
        known: Vec::new(),
    };
    if answer(lease, &wanted).await?.covers(&wanted) {
        return Ok((ticket.bytes, true));
    }
    let text = serde_json::to_vec(ticket)
        .map_err(|error| SnapshotError::Damaged { what: "the ticket", detail: error.to_string() })?;
    write_beside(&path, &text)?;
    Ok((arrived(lease, ticket), false))
}

/// The ticket of an announced pack; none when it was never announced or given up.
///
/// # Errors
/// The digest is none.
pub fn announced(lease: &Lease, sha256: &str) -> Result<Option<Ticket>, SnapshotError> {
    let path = ticket_path(lease, sha256)?;
    Ok(std::fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()))
}

/// All of an announced pack was taken.
pub fn settled(lease: &Lease, sha256: &str) {
    if let Ok(path) = ticket_path(lease, sha256) {
        let _ = std::fs::remove_file(path);
    }
}

/// A pack that was made here earlier, by its digest; none when it was given up.
///
/// # Errors
/// The digest is none.
pub fn made(lease: &Lease, sha256: &str) -> Result<Option<PathBuf>, SnapshotError> {
    // The same rule for the name, another place.
    ticket_path(lease, sha256)?;
    let path = lease.dir().join("outgoing").join(format!("{sha256}.pack"));
    Ok(path.is_file().then_some(path))
}

fn ticket_path(lease: &Lease, sha256: &str) -> Result<PathBuf, SnapshotError> {
    let named = Ticket { sha256: sha256.to_owned(), bytes: 0, want: Vec::new(), shallow: Vec::new() };
    Ok(part_path(lease, &named)?.with_extension("ticket"))
}

/// Removes what was abandoned below a project's directory.
pub(super) fn tidy(project: &Path) {
    for part in ["incoming", "outgoing", "tmp"] {
        for entry in std::fs::read_dir(project.join(part)).into_iter().flatten().flatten() {
            let changed = entry.metadata().and_then(|meta| meta.modified()).unwrap_or_else(|_| SystemTime::now());
            if changed.elapsed().is_ok_and(|age| age > ABANDONED) {
                let path = entry.path();
                let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
                if let Err(error) = removed.map_err(io(&path)) {
                    tracing::warn!(%error, "what an abandoned transfer left could not be removed");
                }
            }
        }
    }
}
