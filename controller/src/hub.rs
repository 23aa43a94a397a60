//! Who looks at what just now. Nothing here is kept: a watcher that missed something reads it from the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::event::{Event, EventBody};
use agent::ids::{AttemptId, WorkerId};
use agent::wire::attempt::AttemptView;
use tokio::sync::{broadcast, watch};

/// A watcher that is more than this many live events behind loses the oldest ones.
const LIVE_BACKLOG: usize = 64;

/// The newest that is to be seen of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Notice {
    pub view: Option<Arc<AttemptView>>,
    /// The events that came with it, so that many watchers need not all read the store.
    pub tail: Arc<Vec<Event>>,
}

/// One watcher's ends.
#[derive(Debug)]
pub struct Watch {
    pub notices: watch::Receiver<Notice>,
    pub live: broadcast::Receiver<Arc<EventBody>>,
}

#[derive(Debug)]
struct Topic {
    notices: watch::Sender<Notice>,
    live: broadcast::Sender<Arc<EventBody>>,
}

impl Topic {
    fn is_watched(&self) -> bool {
        self.notices.receiver_count() > 0 || self.live.receiver_count() > 0
    }
}

/// All topics.
#[derive(Debug, Default)]
pub struct Hub {
    attempts: Mutex<HashMap<AttemptId, Topic>>,
    workers: Mutex<HashMap<WorkerId, watch::Sender<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Watches an attempt from now on.
    #[must_use]
    pub fn watch(&self, id: AttemptId) -> Watch {
        let mut attempts = lock(&self.attempts);
        attempts.retain(|_, topic| topic.is_watched());
        let topic = attempts.entry(id).or_insert_with(|| Topic {
            notices: watch::Sender::new(Notice::default()),
            live: broadcast::Sender::new(LIVE_BACKLOG),
        });
        Watch { notices: topic.notices.subscribe(), live: topic.live.subscribe() }
    }

    /// True if anybody would see a notice about the attempt.
    #[must_use]
    pub fn is_watched(&self, id: AttemptId) -> bool {
        lock(&self.attempts).get(&id).is_some_and(Topic::is_watched)
    }

    /// Shows watchers what is new and durable.
    pub fn tell(&self, id: AttemptId, notice: Notice) {
        if let Some(topic) = lock(&self.attempts).get(&id) {
            topic.notices.send_replace(notice);
        }
    }

    /// Shows watchers live events.
    pub fn tell_live(&self, id: AttemptId, events: Vec<EventBody>) {
        if let Some(topic) = lock(&self.attempts).get(&id) {
            for event in events {
                // No watcher is no fault.
                let _ = topic.live.send(Arc::new(event));
            }
        }
    }

    /// Wakes up when the worker should be told something.
    #[must_use]
    pub fn watch_worker(&self, id: &WorkerId) -> watch::Receiver<()> {
        lock(&self.workers).entry(id.clone()).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Wakes the worker's command stream.
    pub fn wake_worker(&self, id: &WorkerId) {
        if let Some(topic) = lock(&self.workers).get(id) {
            topic.send_replace(());
        }
    }
}
