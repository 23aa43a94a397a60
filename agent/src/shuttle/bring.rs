//! Down: what is offered there, what is lacking here, bytes from where this side has them.

use std::path::Path;

use futures_util::stream::{BoxStream, StreamExt as _};
use http_body_util::{BodyDataStream, BodyExt as _};
use tokio_util::io::StreamReader;

use super::retry::Retry;
use super::{BYTES_LIMIT, DAMAGED_TRIES, Far, LOOK, SILENCE, Shuttle, ShuttleError, Tell};
use crate::snapshot::transfer::{self, Have, Offer, Packing, Ticket};
use crate::snapshot::{Lease, SnapshotError};
use crate::transport::{Call, ResponseBody};
use crate::wire::error::code;

impl Shuttle {
    /// What the other side has for us.
    ///
    /// # Errors
    /// See [`ShuttleError`].
    pub async fn offered(&self) -> Result<Offer, ShuttleError> {
        self.insist(|| Ok(Call::get(&self.route.at("offer", "")))).await
    }

    /// Brings what this side lacks of an offer. Gives the bytes of its pack, 0 when nothing was lacking. The ticket is kept
    /// at `saved`, so that a later process goes on with the same pack.
    ///
    /// # Errors
    /// See [`ShuttleError`]; what has arrived stays for a later try.
    pub async fn bring(
        &self,
        lease: &Lease,
        offer: &Offer,
        saved: Option<&Path>,
        tell: &Tell,
    ) -> Result<u64, ShuttleError> {
        let (mut bytes, mut tries) = (0, 0);
        let mut busy = Retry::of(self);
        while tries <= DAMAGED_TRIES {
            let have = transfer::answer(lease, offer).await?;
            if have.covers(offer) {
                forget(saved);
                return Ok(bytes);
            }
            let ticket = match recall(saved) {
                Some(ticket) => ticket,
                None => {
                    let ticket = self.packed(&have, tell).await?;
                    keep(saved, &ticket);
                    ticket
                }
            };
            match self.pull(lease, &ticket, tell).await {
                Ok(()) => (bytes, tries) = (ticket.bytes, tries + 1),
                // The pack is not kept there any more, or some byte was lost on the way: from the beginning.
                Err(error) if error.code() == Some(code::NO_SUCH_PACK) || damaged(&error) => {
                    forget(saved);
                    tries += 1;
                }
                // Another attempt brings the very same: what is lacking is asked again when it has ended.
                Err(error) if error.is_busy() => {
                    busy.reached(transfer::arrived(lease, &ticket));
                    busy.after(error).await?;
                }
                Err(error) => return Err(error),
            }
        }
        let lacking = SnapshotError::Damaged { what: "the transfer", detail: "objects are missing".to_owned() };
        Err(lacking.into())
    }

    /// Has the pack made, and tells meanwhile how far the other side is.
    async fn packed(&self, have: &Have, tell: &Tell) -> Result<Ticket, ShuttleError> {
        tokio::select! {
            biased;
            ticket = self.insist(|| Call::post(&self.route.at("pack", ""), have)) => ticket,
            never = self.watch(tell) => match never {},
        }
    }

    async fn watch(&self, tell: &Tell) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            let call = Call::get(&self.route.at("packing", ""));
            match self.transport.json::<Option<Packing>>(call).await {
                Ok(Some(packing)) => tell(Far::Packing(packing)),
                Ok(None) => {}
                Err(error) if error.is_passing() => {}
                // An older controller, which does not tell.
                Err(_) => std::future::pending().await,
            }
        }
    }

    async fn pull(&self, lease: &Lease, ticket: &Ticket, tell: &Tell) -> Result<(), ShuttleError> {
        let mut retry = Retry::of(self);
        loop {
            let offset = transfer::arrived(lease, ticket);
            retry.reached(offset);
            let query = format!("sha256={}&offset={offset}", ticket.sha256);
            let call = Call::get(&self.route.at("pack", &query)).within(BYTES_LIMIT);
            let received = match self.transport.open(call).await {
                Ok(response) => {
                    let pieces = pieces(response.into_body(), offset, ticket.bytes, tell);
                    let reader = StreamReader::new(pieces.map(Ok::<_, std::io::Error>));
                    transfer::receive(lease, ticket, reader).await.map_err(ShuttleError::from)
                }
                Err(error) => Err(error.into()),
            };
            match received {
                Ok(()) => return Ok(()),
                Err(error) if error.is_busy() => return Err(error),
                Err(error) => {
                    retry.reached(transfer::arrived(lease, ticket));
                    retry.after(error).await?;
                }
            }
        }
    }
}

/// The body's bytes; a lost or silent connection is their end.
fn pieces(body: ResponseBody, offset: u64, total: u64, tell: &Tell) -> BoxStream<'static, bytes::Bytes> {
    let state = (body.into_data_stream(), offset, tell.clone());
    futures_util::stream::unfold(
        state,
        move |(mut body, at, tell): (BodyDataStream<ResponseBody>, _, Tell)| async move {
            match tokio::time::timeout(SILENCE, body.next()).await {
                Ok(Some(Ok(piece))) => {
                    let at = at + piece.len() as u64;
                    tell(Far::Bytes { done: at.min(total), total });
                    Some((piece, (body, at, tell)))
                }
                Ok(Some(Err(_)) | None) | Err(_) => None,
            }
        },
    )
    .boxed()
}

fn damaged(error: &ShuttleError) -> bool {
    matches!(error, ShuttleError::Snapshot(SnapshotError::Digest { .. }))
}

fn recall(saved: Option<&Path>) -> Option<Ticket> {
    serde_json::from_slice(&std::fs::read(saved?).ok()?).ok()
}

/// Only a short cut: without it the next process asks again.
fn keep(saved: Option<&Path>, ticket: &Ticket) {
    if let (Some(path), Ok(text)) = (saved, serde_json::to_vec(ticket)) {
        let beside = path.with_extension("new");
        let _ = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    }
}

fn forget(saved: Option<&Path>) {
    if let Some(path) = saved {
        let _ = std::fs::remove_file(path);
    }
}
