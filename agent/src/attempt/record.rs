//! What the attempt writes while it goes on: its journal, and the status events that people follow.

use std::collections::HashSet;
use std::io;

use super::directory::AttemptDir;
use super::durable::Durable;
use super::journal::{Entry, Journal, Standing};
use crate::event::{EventBody, Phase, Settled, StepStatus};
use crate::eventlog::EventLog;

/// Journal and event log of the attempt that this process drives.
#[derive(Debug)]
pub(super) struct Record {
    dir: AttemptDir,
    journal: Journal,
    log: EventLog,
    /// Status events that the log has, so that an adopter does not tell them again.
    told: HashSet<String>,
    durable: Durable,
}

impl Record {
    /// Opens both; the log is shared with whoever follows it.
    ///
    /// # Errors
    /// One of them cannot be read or is damaged.
    pub(super) fn open(dir: AttemptDir, log: EventLog, durable: Durable) -> io::Result<Self> {
        let journal = Journal::open(&dir.file("journal.jsonl"))?;
        let mut told = HashSet::new();
        let mut after = 0;
        loop {
            let events = log.read_from(after, 512)?;
            let Some(last) = events.last() else { break };
            after = last.seq;
            let statuses = events.iter().filter(|event| matches!(event.body, EventBody::Status { .. }));
            for event in statuses {
                told.insert(serde_json::to_string(&event.body).map_err(io::Error::other)?);
            }
        }
        Ok(Self { dir, journal, log, told, durable })
    }

    /// The attempt's directory.
    #[must_use]
    pub(super) fn dir(&self) -> &AttemptDir {
        &self.dir
    }

    /// The acceptance, on its way to the disk.
    #[must_use]
    pub(super) fn durable(&self) -> &Durable {
        &self.durable
    }

    /// The event log.
    #[must_use]
    pub(super) fn log(&self) -> &EventLog {
        &self.log
    }

    /// What the journal says so far.
    #[must_use]
    pub(super) fn standing(&self) -> &Standing {
        self.journal.standing()
    }

    /// Writes down what is about to be done; nothing that ends this process makes it unwritten.
    ///
    /// # Errors
    /// The device refuses: the step must not be taken.
    pub(super) fn enter(&mut self, entry: Entry) -> io::Result<()> {
        tracing::debug!(attempt = %self.dir.attempt(), entry = entry.name(), "journal");
        self.journal.append(entry)
    }

    /// Tells followers that the attempt is in `phase`.
    pub(super) fn phase(&mut self, phase: Phase) {
        self.tell(EventBody::Status { phase, step: None, settled: None, note: None });
    }

    /// Tells followers something about the surroundings.
    pub(super) fn note(&mut self, phase: Phase, note: String) {
        self.tell(EventBody::Status { phase, step: None, settled: None, note: Some(note) });
    }

    /// Tells followers about a step's child.
    pub(super) fn step(&mut self, phase: Phase, step: StepStatus) {
        self.tell(EventBody::Status { phase, step: Some(step), settled: None, note: None });
    }

    /// Tells followers how a child ended that was told to.
    pub(super) fn settled(&mut self, phase: Phase, settled: Settled) {
        self.tell(EventBody::Status { phase, step: None, settled: Some(settled), note: None });
    }

    /// Status is telemetry: a full disk must not end an attempt because of it.
    fn tell(&mut self, body: EventBody) {
        let Ok(text) = serde_json::to_string(&body) else { return };
        if !self.told.insert(text) {
            return;
        }
        if let Err(error) = self.log.append(body) {
            tracing::warn!(attempt = %self.dir.attempt(), %error, "a status event could not be kept");
        }
    }
}
