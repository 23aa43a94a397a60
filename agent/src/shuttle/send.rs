//! Up: offer, announce, bytes from where the other side has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::TryStreamExt as _;
use http::Method;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde::de::DeserializeOwned;
use tokio_util::io::ReaderStream;

use super::retry::Retry;
use super::{BYTES_LIMIT, DAMAGED_TRIES, Far, PREPARE_LIMIT, Shuttle, ShuttleError, Tell};
use crate::snapshot::transfer::{self, Have, Packed, Parcel};
use crate::snapshot::{History, Lease};
use crate::transport::{BoxError, Call, CallError};
use crate::wire::error::code;
use crate::wire::snapshot::{Announce, Arrived};

/// Bytes of one read from the pack.
const PIECE: usize = 64 << 10;

impl Shuttle {
    /// Sends what the other side lacks of a parcel. Gives the bytes of its pack, 0 when nothing was lacking.
    ///
    /// # Errors
    /// See [`ShuttleError`]; what has arrived stays there for a later try.
    pub async fn send(&self, lease: &Lease, parcel: &Parcel, depth: History, tell: &Tell) -> Result<u64, ShuttleError> {
        let offer = transfer::offer(lease, parcel).await?;
        let mut damaged = 0;
        loop {
            let have: Have = self.insist(|| Call::post(&self.route.at("offer", ""), &offer)).await?;
            if have.covers(&offer) {
                return Ok(0);
            }
            let making = |packing| tell(Far::Packing(packing));
            let packed = transfer::pack_and_tell(lease, parcel, &have, depth, &making).await?;
            let announce =
                Announce { project: offer.project.clone(), format: offer.format, ticket: packed.ticket.clone() };
            let bytes = packed.ticket.bytes;
            match self.push(&packed, &announce, tell).await {
                Ok(()) => {
                    packed.delivered(lease)?;
                    return Ok(bytes);
                }
                // What was there may be gone by now, or some byte was lost on the way: from the beginning.
                Err(error) if restarts(&error) && damaged < DAMAGED_TRIES => damaged += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn push(&self, packed: &Packed, announce: &Announce, tell: &Tell) -> Result<(), ShuttleError> {
        let total = packed.ticket.bytes;
        let mut retry = Retry::of(self);
        loop {
            let arrived: Arrived = self.insist(|| Call::post(&self.route.at("upload", ""), announce)).await?;
            if arrived.complete {
                tell(Far::Bytes { done: total, total });
                return Ok(());
            }
            retry.reached(arrived.bytes);
            match self.put(packed, announce, arrived.bytes, tell).await {
                Ok(arrived) if arrived.complete => {
                    tell(Far::Bytes { done: total, total });
                    return Ok(());
                }
                Ok(arrived) => retry.reached(arrived.bytes),
                Err(error) if error.code() == Some(code::WRONG_OFFSET) => {
                    let lost = CallError::Lost { source: "another connection went on with the upload".into() };
                    retry.after(lost.into()).await?;
                }
                Err(error) => retry.after(error).await?,
            }
        }
    }

    async fn put(
        &self,
        packed: &Packed,
        announce: &Announce,
        offset: u64,
        tell: &Tell,
    ) -> Result<Arrived, ShuttleError> {
        let (sent, total, tell) = (Arc::new(AtomicU64::new(offset)), packed.ticket.bytes, Arc::clone(tell));
        let file = packed.reader(offset).await?;
        let pieces = ReaderStream::with_capacity(file, PIECE).inspect_ok(move |piece| {
            let sent = sent.fetch_add(piece.len() as u64, Ordering::Relaxed) + piece.len() as u64;
            tell(Far::Bytes { done: sent.min(total), total });
        });
        let body = StreamBody::new(pieces.map_ok(Frame::data).map_err(BoxError::from));
        let format = serde_json::to_value(announce.format).unwrap_or_default();
        let query = format!(
            "project={}&format={}&sha256={}&offset={offset}",
            announce.project,
            format.as_str().unwrap_or_default(),
            packed.ticket.sha256
        );
        let call = Call::new(Method::PUT, &self.route.at("upload", &query)).body(body.boxed()).within(BYTES_LIMIT);
        Ok(self.transport.json(call).await?)
    }

    /// Asks until there is an answer.
    ///
    /// # Errors
    /// See [`ShuttleError`].
    pub async fn insist<T: DeserializeOwned + Send>(
        &self,
        call: impl Fn() -> Result<Call, CallError>,
    ) -> Result<T, ShuttleError> {
        let mut retry = Retry::of(self);
        loop {
            match self.transport.json(call()?.within(PREPARE_LIMIT)).await {
                Ok(answer) => return Ok(answer),
                Err(error) => retry.after(error.into()).await?,
            }
        }
    }
}

fn restarts(error: &ShuttleError) -> bool {
    // Another command that sent the very same pack has removed it by now.
    matches!(error.code(), Some(code::NO_SUCH_PACK | code::DIGEST_MISMATCH)) || error.is_gone()
}
