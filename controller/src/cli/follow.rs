//! Events of an attempt, wherever it is: from its log on this machine, or from its controller.

use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::config::Config;
use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::transport::CallError;
use futures_util::stream::{BoxStream, StreamExt as _};

use super::connect::{self, ConnectError};
use super::run::lane::{Lane, News};
use crate::client::Client;

/// How often a log is looked at for news.
const LOOK: Duration = Duration::from_millis(100);

/// Events cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("no attempt {attempt} on this machine; for another one name its controller with --controller")]
    Unknown { attempt: AttemptId },
    #[error("the event log `{}` cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] agent::transport::CallError),
}

/// The log of a local attempt.
#[must_use]
pub fn log_path(config: &Config, attempt: AttemptId) -> PathBuf {
    config.state_dir.join("attempts").join(attempt.to_string()).join("events.jsonl")
}

/// All events of an attempt, in order; with `on`, also those to come, up to the last one.
///
/// # Errors
/// The attempt is unknown, or its controller cannot be reached.
pub fn events(
    config: &Config,
    attempt: AttemptId,
    on: bool,
) -> Result<BoxStream<'static, Result<Event, FollowError>>, FollowError> {
    let path = log_path(config, attempt);
    if path.is_file() {
        return Ok(local(path, on));
    }
    if config.controller.is_none() {
        return Err(FollowError::Unknown { attempt });
    }
    let client = connect::remote(config)?;
    let first = async move {
        let view = client.attempt(attempt).await?;
        Ok::<_, CallError>((client, view.last_seq))
    };
    let kept = futures_util::stream::once(first).flat_map(move |answer| match answer {
        Err(error) => futures_util::stream::once(async { Err(FollowError::Call(error)) }).boxed(),
        Ok((_, 0)) if !on => futures_util::stream::empty().boxed(),
        Ok((client, last)) => kept_events(&client, attempt, if on { u64::MAX } else { last }),
    });
    Ok(kept.boxed())
}

/// All news of an attempt up to its end: from its log on this machine, or from its controller.
///
/// # Errors
/// As [`events`].
pub fn news(config: &Config, attempt: AttemptId) -> Result<BoxStream<'static, Result<News, FollowError>>, FollowError> {
    if log_path(config, attempt).is_file() || config.controller.is_none() {
        return Ok(events(config, attempt, true)?.map(|event| event.map(News::Event)).boxed());
    }
    let client = connect::remote(config)?;
    Ok(Lane::follow(&client, attempt, 0).map(|news| news.map_err(FollowError::Call)).boxed())
}

/// Kept events up to number `last`.
fn kept_events(client: &Client, attempt: AttemptId, last: u64) -> BoxStream<'static, Result<Event, FollowError>> {
    let events = Lane::follow(client, attempt, 0).filter_map(async |news| match news {
        Ok(News::Event(event)) => Some(Ok(event)),
        Ok(News::Live(_) | News::State(_) | News::Word(_)) => None,
        Err(error) => Some(Err(FollowError::Call(error))),
    });
    // Ends with the last one itself: waiting for another would be following.
    futures_util::stream::unfold((events.boxed(), false), move |(mut events, done)| async move {
        if done {
            return None;
        }
        let event = events.next().await?;
        let done = event.as_ref().map_or(true, |event: &Event| event.seq >= last);
        Some((event, (events, done)))
    })
    .boxed()
}

fn local(path: PathBuf, on: bool) -> BoxStream<'static, Result<Event, FollowError>> {
    let state = (path, 0_u64, Vec::<Event>::new().into_iter(), false);
    futures_util::stream::unfold(state, move |(path, mut offset, mut batch, mut ended)| async move {
        loop {
            if let Some(event) = batch.next() {
                ended |= matches!(event.body, EventBody::Terminal { .. });
                return Some((Ok(event), (path, offset, batch, ended)));
            }
            if ended {
                return None;
            }
            match read_from(&path, &mut offset) {
                Ok(events) if events.is_empty() && on => tokio::time::sleep(LOOK).await,
                Ok(events) if events.is_empty() => return None,
                Ok(events) => batch = events.into_iter(),
                Err(source) => {
                    let error = FollowError::Read { path: path.clone(), source };
                    return Some((Err(error), (path, offset, batch, true)));
                }
            }
        }
    })
    .boxed()
}

/// Whole lines from `offset` on; a line that is still being written waits for the next look.
fn read_from(path: &Path, offset: &mut u64) -> std::io::Result<Vec<Event>> {
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(*offset))?;
    let mut reader = BufReader::new(file);
    let mut events = Vec::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        events.push(serde_json::from_slice(&line).map_err(std::io::Error::other)?);
        *offset += line.len() as u64;
        line.clear();
    }
    Ok(events)
}
