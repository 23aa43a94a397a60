//! Puts snapshots into the reserved file: a temporary beside it, then a rename, only over the very file that was written
//! last (runner 7.1). Any trouble turns progress off for good, silently: it must never change a lane.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use time::OffsetDateTime;

use super::file::FileRef;
use super::state::{Change, State};

/// Longest snapshot, in characters.
pub const SNAPSHOT_CAP: usize = 4_096;
/// Bytes alone are written at most this often.
pub const ACTIVITY_INTERVAL: Duration = Duration::from_millis(5_000);

/// The owner of one progress file. Takes the time as an argument and never waits.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    state: State,
    /// The file as last written; `None` turns progress off.
    owned: Option<FileRef>,
    seq: u64,
    last_write: OffsetDateTime,
    pending: bool,
}

impl Writer {
    /// Takes over the reserved file and writes the first snapshot.
    #[must_use]
    pub fn open(path: &Path, state: State, now: OffsetDateTime) -> Self {
        let owned = FileRef::at(path);
        let mut writer = Self { path: path.to_owned(), state, owned, seq: 0, last_write: now, pending: false };
        writer.flush(now);
        writer
    }

    /// What was observed so far.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// True until something went wrong.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.owned.is_some()
    }

    /// Takes a change in. Everything but bytes is written at once; bytes when [`Writer::due_in`] says so.
    pub fn record(&mut self, change: &Change, now: OffsetDateTime) {
        if !self.is_on() || !self.state.apply(change, now) {
            return;
        }
        match change {
            Change::Bytes { .. } => {
                self.pending = true;
                self.flush_if_due(now);
            }
            _ => self.flush(now),
        }
    }

    /// Time until pending bytes want to be written; `None` if there are none.
    #[must_use]
    pub fn due_in(&self, now: OffsetDateTime) -> Option<Duration> {
        if !self.pending || !self.is_on() {
            return None;
        }
        let passed = Duration::try_from(now - self.last_write).unwrap_or_default();
        Some(ACTIVITY_INTERVAL.saturating_sub(passed))
    }

    /// Writes pending bytes if their time has come.
    pub fn flush_if_due(&mut self, now: OffsetDateTime) {
        if self.due_in(now).is_some_and(|wait| wait.is_zero()) {
            self.flush(now);
        }
    }

    /// Writes what is pending, whatever the time: the last act.
    pub fn close(&mut self, now: OffsetDateTime) {
        if self.pending {
            self.flush(now);
        }
        self.owned = None;
    }

    fn flush(&mut self, now: OffsetDateTime) {
        let Some(owned) = self.owned else { return };
        self.seq += 1;
        let text = self.state.encode(self.seq, now);
        self.owned =
            if text.encode_utf16().count() > SNAPSHOT_CAP { None } else { replace(&self.path, owned, &text).ok() };
        self.last_write = now;
        self.pending = false;
    }
}

fn replace(path: &Path, owned: FileRef, text: &str) -> std::io::Result<FileRef> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("progress");
    let unique = format!(".{name}.{}.{}.tmp", std::process::id(), uuid::Uuid::new_v4());
    let temporary = path.with_file_name(unique);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| FileRef::of(&file));
    let renamed = written.and_then(|identity| {
        if FileRef::at(path) != Some(owned) {
            return Err(std::io::Error::other("progress file was replaced"));
        }
        std::fs::rename(&temporary, path).map(|()| identity)
    });
    if renamed.is_err() {
        // Ours, and never seen by a reader.
        let _ = std::fs::remove_file(&temporary);
    }
    renamed
}
