//! Server-sent events, read with a limit on silence.

use std::time::Duration;

use eventsource_stream::{EventStreamError, Eventsource as _};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt as _};
use http::header::ACCEPT;
use http_body_util::{BodyDataStream, BodyExt as _};

use super::call::{Call, CallError};
use super::{BoxError, ResponseBody, Transport};
use crate::wire::paths::LAST_EVENT_ID_HEADER;

/// The server sends a comment this often when it has nothing to say.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// A stream that is silent for so long is dead: the server's comments would have come.
const SILENCE_LIMIT: Duration = Duration::from_secs(35);

/// Records as they come.
pub type Records = BoxStream<'static, Result<Record, CallError>>;

/// One record. `id` is empty for records that have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub id: Option<u64>,
    pub name: String,
    pub data: String,
}

impl Transport {
    /// Opens a stream of records after number `after`. It ends with an error, or when the server ends it.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn records(&self, path: &str, after: u64) -> BoxFuture<'static, Result<Records, CallError>> {
        let call = Call::get(path)
            .header(ACCEPT.as_str(), "text/event-stream")
            .header(LAST_EVENT_ID_HEADER, &after.to_string());
        let opening = self.open(call);
        Box::pin(async move { Ok(read(opening.await?.into_body())) })
    }
}

fn read(body: ResponseBody) -> Records {
    let body = body.into_data_stream();
    let watched = futures_util::stream::unfold(Some(body), |state: Option<_>| async move {
        let mut body: BodyDataStream<ResponseBody> = state?;
        match tokio::time::timeout(SILENCE_LIMIT, body.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(body))),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Err(_) => Some((Err(BoxError::from("the stream fell silent")), None)),
        }
    });
    // Ids belong to the record that carries them; the reader's "last id" would also label records without one.
    let mut last = None;
    let records = watched.boxed().eventsource().map(move |item| match item {
        Ok(event) => {
            let id = event.id.parse().ok().filter(|id| Some(*id) != last);
            last = id.or(last);
            Ok(Record { id, name: event.event, data: event.data })
        }
        Err(EventStreamError::Transport(source)) => Err(CallError::Lost { source }),
        Err(error) => Err(CallError::Lost { source: error.to_string().into() }),
    });
    records.boxed()
}
