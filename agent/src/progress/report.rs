//! The task that owns a [`Writer`]: it writes beside the lane, looks up start tokens, and holds the trailing write of
//! bytes. Callers never wait for it but at the very end.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::probe::{is_contained, start_token};
use super::state::{Change, State};
use super::writer::Writer;

/// Looks up the start token of a process; `None` if it stays unknown.
pub type TokenSource = Arc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> + Send + Sync>;

/// Tokens by `ps`. A container's process is believed only if its number is one of this host's process table.
#[must_use]
pub fn system_tokens() -> TokenSource {
    Arc::new(|pid| {
        Box::pin(async move {
            let ours = pid == u64::from(std::process::id());
            if ours || is_contained(pid) { start_token(pid).await } else { None }
        })
    })
}

/// Handle to a lane's progress; [`Reporter::off`] takes everything and does nothing.
#[derive(Debug)]
pub struct Reporter {
    changes: Option<mpsc::UnboundedSender<Change>>,
    task: Option<JoinHandle<()>>,
}

impl Reporter {
    /// No progress file was asked for: nothing is written and no process is probed.
    #[must_use]
    pub const fn off() -> Self {
        Self { changes: None, task: None }
    }

    /// Writes the first snapshot before it returns, then goes on beside the caller. Needs a Tokio runtime.
    #[must_use]
    pub fn open(path: &Path, state: State, tokens: TokenSource) -> Self {
        let writer = Writer::open(path, state, OffsetDateTime::now_utc());
        if !writer.is_on() {
            return Self::off();
        }
        let (changes, inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(writer, inbox, tokens));
        Self { changes: Some(changes), task: Some(task) }
    }

    /// Hands a change over.
    pub fn record(&self, change: Change) {
        if let Some(changes) = &self.changes {
            let _ = changes.send(change); // the task ends early only when progress is off for good
        }
    }

    /// Records the end and waits until it is in the file.
    pub async fn finish(mut self, receipt_written: bool) {
        self.record(Change::Terminal { receipt_written });
        self.changes = None;
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

async fn run(mut writer: Writer, mut inbox: mpsc::UnboundedReceiver<Change>, tokens: TokenSource) {
    let (found, mut answers) = mpsc::channel::<Change>(4);
    let mut probes = tokio::task::JoinSet::new();
    let runner = writer.state().runner_pid;
    let (tell, lookup) = (found.clone(), tokens(runner));
    probes.spawn(async move {
        if let Some(token) = lookup.await {
            let _ = tell.send(Change::RunnerToken(token)).await;
        }
    });
    while writer.is_on() {
        let wait = writer.due_in(OffsetDateTime::now_utc()).unwrap_or(Duration::MAX);
        let change = tokio::select! {
            change = inbox.recv() => match change {
                Some(change) => change,
                None => break,
            },
            Some(change) = answers.recv() => change,
            () = tokio::time::sleep(wait) => {
                writer.flush_if_due(OffsetDateTime::now_utc());
                continue;
            }
        };
        if let Change::Spawned { pid, .. } = change {
            let (tell, lookup) = (found.clone(), tokens(pid));
            probes.spawn(async move {
                if let Some(token) = lookup.await {
                    let _ = tell.send(Change::ChildToken { pid, token }).await;
                }
            });
        }
        writer.record(&change, OffsetDateTime::now_utc());
    }
    writer.close(OffsetDateTime::now_utc()); // dropping the set ends probes that still run
}
