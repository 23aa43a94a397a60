//! Two thousand readers of one attempt (design section 12): how late an event is for them, and what each costs the
//! controller in memory. The controller is a process of its own; each reader has a connection of its own.
//!
//! `cargo bench -p controller --bench readers [-- READERS…]`; 100 1000 2000 by default.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a benchmark prints, or stops")]

mod lane;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::event::{Event, EventBody, Phase};
use agent::ids::{AttemptId, WorkerId};
use agent::transport::{Call, Endpoint, Token, Transport};
use agent::wire::attempt::Submit;
use agent::wire::paths;
use agent::wire::worker::{Acknowledged, CommandBody, Granted, LeaseRef, Register, Registered, Report, WorkerFacts};
use controller::client::Client;
use futures_util::StreamExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Events of each measurement.
const EVENTS: u64 = 20;

/// The controller's process.
struct Controller {
    child: Child,
    url: String,
    token: String,
}

impl Controller {
    fn start(dir: &std::path::Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneyard"));
        command.args(["serve", "--listen", "http://127.0.0.1:0", "--dir"]).arg(dir);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split([' ', ',']).find(|word| word.starts_with("http://")).expect("an address").to_owned();
        let token = std::fs::read_to_string(dir.join("token")).unwrap().trim().to_owned();
        Self { child, url, token }
    }

    /// Resident memory in bytes.
    fn resident(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker with one attempt, whose events come when the benchmark says so.
struct Worker {
    transport: Transport,
    name: WorkerId,
    session: Uuid,
}

impl Worker {
    async fn register(transport: Transport) -> Self {
        let (name, session): (WorkerId, _) = ("bench".parse().unwrap(), Uuid::new_v4());
        let facts = WorkerFacts { store: Uuid::new_v4(), capacity: 1, ..WorkerFacts::default() };
        let register =
            Register { worker: name.clone(), session, number: 0, facts, held: Vec::new(), damaged: Vec::new() };
        let _: Registered = transport.json(Call::post(paths::WORKERS, &register).unwrap()).await.unwrap();
        Self { transport, name, session }
    }

    /// Claims the one attempt that there is.
    async fn claim(&self) -> LeaseRef {
        let path = format!("{}?session={}", paths::worker_part(&self.name, "commands"), self.session);
        let mut commands = self.transport.records(&path, 0).await.unwrap();
        loop {
            let record = commands.next().await.unwrap().unwrap();
            let command: agent::wire::worker::Command = serde_json::from_str(&record.data).unwrap();
            if let CommandBody::Offer { assignment, generation, .. } = command.body {
                let lease = LeaseRef { session: self.session, attempt: assignment.attempt, generation };
                let claim = Call::post(&paths::worker_part(&self.name, "claim"), &lease).unwrap();
                let _: Granted = self.transport.json(claim).await.unwrap();
                return lease;
            }
        }
    }

    async fn report(&self, lease: &LeaseRef, seq: u64) {
        let body = EventBody::Status { phase: Phase::Running, step: None, settled: None, note: Some(seq.to_string()) };
        let events = vec![Event { seq, at: time::OffsetDateTime::now_utc(), body }];
        let LeaseRef { session, attempt, generation } = *lease;
        let report = Report { session, attempt, generation, first_seq: seq, events };
        let call = Call::post(&paths::worker_part(&self.name, "events"), &report).unwrap();
        let _: Acknowledged = self.transport.json(call).await.unwrap();
    }
}

/// Reads the stream with as little of its own as possible, and says when each event came.
async fn read(
    address: String,
    token: Arc<str>,
    attempt: AttemptId,
    after: u64,
    seen: mpsc::UnboundedSender<(u64, Instant)>,
) {
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let path = paths::attempt_part(attempt, "events");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nLast-Event-ID: {after}\r\nAccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut lines = tokio::io::BufReader::with_capacity(4096, stream).lines();
    let status = lines.next_line().await.unwrap().unwrap();
    assert!(status.contains(" 200 "), "{status}");
    let _ = seen.send((0, Instant::now()));
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(id) = line.strip_prefix("id: ").or_else(|| line.strip_prefix("id:")) {
            let _ = seen.send((id.trim().parse().unwrap(), Instant::now()));
        }
    }
}

#[tokio::main]
async fn main() {
    let mut steps: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    if steps.is_empty() {
        steps = vec![100, 1_000, 2_000];
    }
    lane::many_files();
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path());
    let endpoint: Endpoint = controller.url.parse().unwrap();
    let transport = || Transport::http(&endpoint, Some(Token::parse(&controller.token).unwrap())).unwrap();
    let worker = Worker::register(transport()).await;
    let submit = Submit::new(lane::assignment());
    let attempt = submit.assignment.attempt;
    Client::new(transport()).submit(&submit).await.unwrap();
    let lease = worker.claim().await;
    worker.report(&lease, 1).await;
    let address = controller.url.trim_start_matches("http://").to_owned();
    let (seen, mut seeing) = mpsc::unbounded_channel();
    let (mut readers, mut seq) = (0, 1);
    println!("{:>8} {:>12} {:>12} {:>12}", "readers", "latency p50", "latency p99", "KB each");
    let mut former: Option<Duration> = None;
    for step in steps {
        let (memory, count) = (controller.resident(), step - readers);
        for _ in 0..count {
            tokio::spawn(read(address.clone(), controller.token.as_str().into(), attempt, seq, seen.clone()));
        }
        for _ in 0..count {
            assert_eq!(seeing.recv().await.unwrap().0, 0);
        }
        readers = step;
        let mut latencies = Vec::new();
        for _ in 0..EVENTS {
            seq += 1;
            let told = Instant::now();
            worker.report(&lease, seq).await;
            for _ in 0..readers {
                let (number, at) = seeing.recv().await.unwrap();
                assert_eq!(number, seq, "every reader sees every event, in order");
                latencies.push(at - told);
            }
        }
        latencies.sort();
        let p99 = lane::percentile(&latencies, 0.99);
        let each = controller.resident().saturating_sub(memory) as f64 / 1024.0 / count as f64;
        println!("{readers:>8} {:>12.2?} {p99:>12.2?} {each:>12.1}", lane::percentile(&latencies, 0.5));
        if let Some(former) = former {
            println!("{:>8} latency p99 {:.2}x of the former step", "", p99.as_secs_f64() / former.as_secs_f64());
        }
        former = Some(p99);
    }
}
