//! What is open ends with its credential: a body that is still going breaks off when the credential is revoked or its
//! time is over.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

use crate::identity::Grant;

/// Bodies up to so many bytes are over before anybody could be told.
const SMALL: u64 = 64 << 10;

/// Guards a body, unless it is small and complete.
pub(super) fn guard(body: Body, grant: &Grant) -> Body {
    use http_body::Body as _;
    if body.size_hint().upper().is_some_and(|bytes| bytes <= SMALL) {
        return body;
    }
    Body::new(Guarded { body, ended: Box::pin(grant.clone().ended()) })
}

struct Guarded {
    body: Body,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl http_body::Body for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new("the credential counts no more"))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
