//! Step starts and ends in a file of the agent's, readable when the container is gone.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;

use laneyard_supervisor::frame;
use laneyard_supervisor::protocol::JournalLine;

/// Where lines go, and those that have not gone yet.
#[derive(Debug, Default)]
pub(super) struct Journal {
    file: Option<File>,
    /// Wakes the thread that brings lines to the disk: a page cache outlives the container, but not the host.
    sync: Option<mpsc::Sender<()>>,
    waiting: VecDeque<Vec<u8>>,
}

impl Journal {
    pub(super) fn is_attached(&self) -> bool {
        self.file.is_some()
    }

    /// Writes to this descriptor from now on, beginning with what waits.
    pub(super) fn attach(&mut self, descriptor: OwnedFd) {
        let file = File::from(descriptor);
        self.sync = file.try_clone().ok().and_then(syncer);
        self.file = Some(file);
        self.flush();
    }

    pub(super) fn write(&mut self, line: &JournalLine) {
        if let Ok(line) = frame::encode(line) {
            self.waiting.push_back(line);
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        let mut written = false;
        while let Some(line) = self.waiting.front() {
            // A line is one short write; a torn one is told by its missing newline, and written again.
            if file.write_all(line).is_err() {
                break;
            }
            written = true;
            self.waiting.pop_front();
        }
        if let (true, Some(sync)) = (written, &self.sync) {
            let _ = sync.send(());
        }
    }
}

fn syncer(file: File) -> Option<mpsc::Sender<()>> {
    let (wake, woken) = mpsc::channel();
    let run = move || {
        while woken.recv().is_ok() {
            while woken.try_recv().is_ok() {}
            let _ = file.sync_data();
        }
    };
    thread::Builder::new().name("journal".to_owned()).stack_size(64 << 10).spawn(run).ok().map(|_| wake)
}
