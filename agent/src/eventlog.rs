//! The append-only event log of one attempt: a file of JSON lines with sequence numbers, and whoever follows it.
//!
//! Appends never wait for a reader. Kept events are on disk before a follower is told of them; live ones
//! ([`EventBody::is_live`]) only pass by. A torn last line (power loss) is cut when the log is opened again.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;
use tokio::sync::{broadcast, watch};

use crate::event::{Event, EventBody};

/// A follower that is more than this many live events behind loses the oldest ones.
const LIVE_BACKLOG: usize = 64;

/// Handle of an attempt's log; clones share it.
#[derive(Clone, Debug)]
pub struct EventLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    writer: Mutex<Writer>,
    last: watch::Sender<u64>,
    live: broadcast::Sender<EventBody>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    last: u64,
    /// `offsets[i]` is where event `i * STRIDE + 1` begins, so that a reader can start near its place.
    offsets: Vec<u64>,
    end: u64,
}

const STRIDE: u64 = 256;

impl EventLog {
    /// Opens the log at `path`, creating it (mode 0600) if it is absent, and cuts a torn last line.
    ///
    /// # Errors
    /// The file cannot be opened, read or cut; or a line before the last one is no event.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut writer = Writer { file: file.try_clone()?, last: 0, offsets: Vec::new(), end: 0 };
        let mut reader = BufReader::new(&mut file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)? as u64;
            if read == 0 || line.last() != Some(&b'\n') {
                break;
            }
            let event: Event = serde_json::from_slice(&line).map_err(|error| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("event log `{}` is damaged after event {}: {error}", path.display(), writer.last),
                )
            })?;
            writer.note(event.seq);
            writer.last = event.seq;
            writer.end += read;
        }
        file.set_len(writer.end)?;
        file.seek(SeekFrom::Start(writer.end))?;
        let last = watch::Sender::new(writer.last);
        Ok(Self {
            shared: Arc::new(Shared {
                path: path.to_owned(),
                writer: Mutex::new(writer),
                last,
                live: broadcast::Sender::new(LIVE_BACKLOG),
            }),
        })
    }

    /// Appends a kept event and tells followers; a live one is only passed on. Returns the last sequence number.
    ///
    /// # Errors
    /// The line cannot be written whole; nothing of it is kept then.
    pub fn append(&self, body: EventBody) -> io::Result<u64> {
        if body.is_live() {
            // No follower is no fault.
            let _ = self.shared.live.send(body);
            return Ok(self.last_seq());
        }
        let mut writer = self.writer();
        let seq = writer.last + 1;
        let event = Event { seq, at: OffsetDateTime::now_utc(), body };
        let mut line = serde_json::to_vec(&event).map_err(io::Error::other)?;
        line.push(b'\n');
        let end = writer.end;
        if let Err(error) = writer.file.write_all(&line) {
            // Cut what was written, so that the next append starts on a fresh line.
            writer.file.set_len(end)?;
            writer.file.seek(SeekFrom::Start(end))?;
            return Err(error);
        }
        writer.note(seq);
        writer.last = seq;
        writer.end += line.len() as u64;
        drop(writer);
        self.shared.last.send_replace(seq);
        Ok(seq)
    }

    /// Makes everything appended so far survive a power loss.
    ///
    /// # Errors
    /// The device refuses.
    pub fn sync(&self) -> io::Result<()> {
        let file = self.writer().file.try_clone()?;
        file.sync_data()
    }

    /// The number of the newest kept event, 0 when there is none.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.writer().last
    }

    /// At most `max` kept events after number `after`, in order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_from(&self, after: u64, max: usize) -> io::Result<Vec<Event>> {
        let (last, offset) = {
            let writer = self.writer();
            let slot = usize::try_from(after / STRIDE).unwrap_or(usize::MAX);
            (writer.last, writer.offsets.get(slot).copied())
        };
        let Some(offset) = offset.filter(|_| after < last) else { return Ok(Vec::new()) };
        let mut file = File::open(&self.shared.path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut events = Vec::new();
        for line in BufReader::new(file).split(b'\n') {
            let event: Event = serde_json::from_slice(&line?)?;
            if event.seq > after {
                events.push(event);
            }
            if events.len() >= max || events.last().is_some_and(|event| event.seq >= last) {
                break;
            }
        }
        Ok(events)
    }

    /// Follows the number of the newest kept event.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.last.subscribe()
    }

    /// Follows live events from now on.
    #[must_use]
    pub fn subscribe_live(&self) -> broadcast::Receiver<EventBody> {
        self.shared.live.subscribe()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Remembers where event `seq` begins if it opens a stride.
    fn note(&mut self, seq: u64) {
        if (seq - 1).is_multiple_of(STRIDE) {
            self.offsets.push(self.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: u64) -> EventBody {
        EventBody::Text { text: format!("event {n}") }
    }

    #[test]
    fn events_are_numbered_without_holes_and_read_back_from_any_place() {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::open(&dir.path().join("events.jsonl")).unwrap();
        for n in 1..=700 {
            assert_eq!(log.append(text(n)).unwrap(), n);
        }
        for after in [0, 1, 255, 256, 257, 511, 512, 699] {
            let events = log.read_from(after, 3).unwrap();
            assert_eq!(events[0].seq, after + 1);
            assert_eq!(events[0].body, text(after + 1));
            assert_eq!(events.len() as u64, 3.min(700 - after));
        }
        assert!(log.read_from(700, 3).unwrap().is_empty());
    }

    #[test]
    fn a_torn_last_line_is_cut_and_numbering_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let log = EventLog::open(&path).unwrap();
        log.append(text(1)).unwrap();
        log.append(text(2)).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"seq\":3,\"at\":\"20").unwrap();
        let log = EventLog::open(&path).unwrap();
        assert_eq!(log.append(text(3)).unwrap(), 3);
        let seqs: Vec<u64> = log.read_from(0, 10).unwrap().iter().map(|event| event.seq).collect();
        assert_eq!(seqs, [1, 2, 3]);
    }

    #[test]
    fn a_damaged_line_in_the_middle_is_an_error_and_not_a_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, b"garbage\n{\"seq\":2}\n").unwrap();
        assert_eq!(EventLog::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read(&path).unwrap().len(), 18);
    }

    #[test]
    fn live_events_reach_followers_but_not_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::open(&dir.path().join("events.jsonl")).unwrap();
        let mut live = log.subscribe_live();
        log.append(EventBody::Activity { stdout_bytes: 1, stderr_bytes: 2 }).unwrap();
        assert_eq!(live.try_recv().unwrap(), EventBody::Activity { stdout_bytes: 1, stderr_bytes: 2 });
        assert_eq!(log.last_seq(), 0);
    }
}
