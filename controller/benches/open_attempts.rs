//! Many open attempts on simulated workers in one controller (design section 12): latency of a submission and of its
//! dispatch, and memory of an open attempt, and how each grows from step to step. Goals: submit p99 under 50 ms, memory of an open
//! attempt under 20 KB, growth linear.
//!
//! `cargo bench -p controller --bench open_attempts [-- STEP…]`; steps are numbers of open attempts, 100 1000 10000 by default.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a benchmark prints, or stops")]

mod lane;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent::event::{Event, EventBody, Phase};
use agent::ids::{AttemptId, WorkerId};
use agent::transport::{Call, Transport};
use agent::wire::attempt::Submit;
use agent::wire::paths;
use agent::wire::worker::{
    Acknowledged, Command, CommandBody, Granted, LeaseRef, Register, Registered, Report, WorkerFacts,
};
use controller::client::Client;
use controller::http::auth::Auth;
use controller::http::{App, local_service, router};
use controller::hub::Hub;
use controller::identity::{Lives, Registry};
use controller::reactor::Timing;
use controller::retention::Retention;
use controller::store::Store;
use controller::supervisor;
use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use lane::{assignment, percentile};

const WORKERS: u32 = 100;
/// Submissions under way at the same time.
const SUBMITTERS: usize = 8;

type Offered = Arc<Mutex<HashMap<AttemptId, Instant>>>;

/// A worker that claims what it is offered, says that it started, and says no more.
async fn worker(transport: Transport, name: WorkerId, capacity: u32, offered: Offered) {
    let session = Uuid::new_v4();
    let facts = WorkerFacts { store: Uuid::new_v4(), capacity, ..WorkerFacts::default() };
    let register = Register { worker: name.clone(), session, number: 0, facts, held: Vec::new(), damaged: Vec::new() };
    let _: Registered = transport.json(Call::post(paths::WORKERS, &register).unwrap()).await.unwrap();
    let path = format!("{}?session={session}", paths::worker_part(&name, "commands"));
    let mut commands = transport.records(&path, 0).await.unwrap();
    while let Some(Ok(record)) = commands.next().await {
        let command: Command = serde_json::from_str(&record.data).unwrap();
        let CommandBody::Offer { assignment, generation, .. } = command.body else { continue };
        let attempt = assignment.attempt;
        offered.lock().unwrap().insert(attempt, Instant::now());
        let lease = LeaseRef { session, attempt, generation };
        let claim = Call::post(&paths::worker_part(&name, "claim"), &lease).unwrap();
        // The controller leaves at the end of the measurement.
        let Ok(Granted { .. }) = transport.json(claim).await else { return };
        let body = EventBody::Status { phase: Phase::Running, step: None, settled: None, note: None };
        let events = vec![Event { seq: 1, at: time::OffsetDateTime::now_utc(), body }];
        let report = Report { session, attempt, generation, first_seq: 1, events };
        let report = Call::post(&paths::worker_part(&name, "events"), &report).unwrap();
        let Ok(Acknowledged { .. }) = transport.json(report).await else { return };
    }
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::main]
async fn main() {
    let mut steps: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    if steps.is_empty() {
        steps = vec![100, 1_000, 10_000];
    }
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), 0).await.unwrap();
    let hub = Arc::new(Hub::default());
    // Simulated workers do not beat; nobody is lost meanwhile.
    let timing = Timing { lease: Duration::from_secs(3600), ..Timing::default() };
    let (supervisor, task) = supervisor::restore(store.clone(), Arc::clone(&hub), timing).await.unwrap();
    let shutdown = CancellationToken::new();
    let owner = tokio::spawn(task.run(shutdown.clone()));
    let registry = Arc::new(Registry::open(store.clone(), None, Lives::default()).await.unwrap());
    let retention = Arc::new(Retention::new(agent::retention::Rules::default()));
    let app = App { supervisor, store, hub, registry, depot: None, shutdown: shutdown.clone(), retention };
    let transport = Transport::in_process(local_service(router(app, Auth::local())));
    let offered = Offered::default();
    let capacity = u32::try_from(steps.iter().max().unwrap().div_ceil(WORKERS as usize)).unwrap();
    for index in 0..WORKERS {
        let name = format!("w{index}").parse().unwrap();
        tokio::spawn(worker(transport.clone(), name, capacity, Arc::clone(&offered)));
    }
    let client = Client::new(transport);
    let (mut open, mut before): (usize, Option<(Duration, Duration)>) = (0, None);
    println!(
        "{:>8} {:>12} {:>12} {:>14} {:>14} {:>10}",
        "open", "submit p50", "submit p99", "dispatch p50", "dispatch p99", "KB each"
    );
    for step in steps {
        let (memory, count) = (resident(), step - open);
        let mut submitted: Vec<(AttemptId, Instant, Duration)> = futures_util::stream::iter(0..count)
            .map(|_| async {
                let submit = Submit::new(assignment());
                let asked = Instant::now();
                client.submit(&submit).await.unwrap();
                (submit.assignment.attempt, asked, asked.elapsed())
            })
            .buffer_unordered(SUBMITTERS)
            .collect()
            .await;
        while offered.lock().unwrap().len() < step {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        open = step;
        let offered = offered.lock().unwrap();
        let mut dispatched: Vec<Duration> = submitted.iter().map(|(id, asked, _)| offered[id] - *asked).collect();
        submitted.sort_by_key(|(_, _, took)| *took);
        dispatched.sort();
        let took: Vec<Duration> = submitted.iter().map(|(_, _, took)| *took).collect();
        let now = (percentile(&took, 0.99), percentile(&dispatched, 0.99));
        println!(
            "{open:>8} {:>12.2?} {:>12.2?} {:>14.2?} {:>14.2?} {:>10.1}",
            percentile(&took, 0.5),
            now.0,
            percentile(&dispatched, 0.5),
            now.1,
            resident().saturating_sub(memory) as f64 / 1024.0 / count as f64,
        );
        if let Some(before) = before {
            let ratio = |now: Duration, before: Duration| now.as_secs_f64() / before.as_secs_f64();
            println!(
                "{:>8} submit p99 {:.2}x, dispatch p99 {:.2}x of the former step",
                "",
                ratio(now.0, before.0),
                ratio(now.1, before.1)
            );
        }
        before = Some(now);
    }
    shutdown.cancel();
    owner.await.unwrap();
}
