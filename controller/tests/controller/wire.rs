//! What an agent says, said by hand: late, twice, out of order, under an old lease.

use agent::event::{Event, EventBody};
use agent::ids::{AttemptId, Generation};
use agent::transport::{Call, CallError, Transport, whole};
use agent::wire::error::code;
use agent::wire::paths;
use agent::wire::worker::{
    Acknowledged, Command, CommandBody, Granted, Held, LeaseRef, Refuse, Register, Registered, Report, WorkerFacts,
};
use futures_util::StreamExt as _;
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::support::{Served, drain, numbers, quick, soon, submission};

struct Hand {
    transport: Transport,
    worker: agent::ids::WorkerId,
    session: Uuid,
    store: Uuid,
    /// Of its newest registration.
    number: u64,
}

impl Hand {
    fn new(served: &Served, worker: &str) -> Self {
        let worker = worker.parse().unwrap();
        Self { transport: served.transport(), worker, session: Uuid::new_v4(), store: Uuid::new_v4(), number: 0 }
    }

    async fn register(&mut self, held: Vec<Held>) -> Result<Registered, CallError> {
        self.register_with(held, Vec::new()).await
    }

    async fn register_with(&mut self, held: Vec<Held>, damaged: Vec<AttemptId>) -> Result<Registered, CallError> {
        self.session = Uuid::new_v4();
        self.number += 1;
        self.send(&Register { held, damaged, ..self.registration(self.number) }).await
    }

    /// Of the present session, with nothing in its hands.
    fn registration(&self, number: u64) -> Register {
        let facts = WorkerFacts { store: self.store, capacity: 8, ..WorkerFacts::default() };
        let (held, damaged) = (Vec::new(), Vec::new());
        Register { worker: self.worker.clone(), session: self.session, number, facts, held, damaged }
    }

    async fn send(&self, register: &Register) -> Result<Registered, CallError> {
        self.transport.json(Call::post(paths::WORKERS, register).unwrap()).await
    }

    async fn offer(&self) -> (AttemptId, Generation) {
        let (attempt, generation, _) = self.offer_until().await;
        (attempt, generation)
    }

    /// The same, with the milliseconds until its deadline.
    async fn offer_until(&self) -> (AttemptId, Generation, Option<u64>) {
        let path = format!("{}?session={}", paths::worker_part(&self.worker, "commands"), self.session);
        let mut records = self.transport.records(&path, 0).await.unwrap();
        loop {
            let record = soon(records.next()).await.unwrap().unwrap();
            let command: Command = serde_json::from_str(&record.data).unwrap();
            assert_eq!(record.id, Some(command.seq));
            if let CommandBody::Offer { assignment, generation, deadline_in_ms } = command.body {
                assert_eq!(assignment.prompt, [0, 255, b'x']);
                return (assignment.attempt, generation, deadline_in_ms);
            }
        }
    }

    fn lease(&self, attempt: AttemptId, generation: Generation) -> LeaseRef {
        LeaseRef { session: self.session, attempt, generation }
    }

    async fn claim(&self, attempt: AttemptId, generation: Generation) -> Result<Granted, CallError> {
        let call = Call::post(&paths::worker_part(&self.worker, "claim"), &self.lease(attempt, generation)).unwrap();
        self.transport.json(call).await
    }

    async fn report(&self, attempt: AttemptId, generation: Generation, events: Vec<Event>) -> Result<u64, CallError> {
        let first_seq = events.first().map_or(1, |event| event.seq);
        let report = Report { session: self.session, attempt, generation, first_seq, events };
        let call = Call::post(&paths::worker_part(&self.worker, "events"), &report).unwrap();
        self.transport.json::<Acknowledged>(call).await.map(|answer| answer.last_seq)
    }

    async fn upload(&self, attempt: AttemptId, digest: &str, bytes: &'static str) -> Result<(), CallError> {
        let part = format!("answer?session={}&attempt={attempt}&generation=1", self.session);
        let call = Call::new(Method::PUT, &paths::worker_part(&self.worker, &part))
            .header(paths::DIGEST_HEADER, digest)
            .body(whole(bytes));
        self.transport.open(call).await.map(drop)
    }
}

fn event(seq: u64, body: EventBody) -> Event {
    Event { seq, at: time::OffsetDateTime::UNIX_EPOCH, body }
}

fn texts(numbers: impl IntoIterator<Item = u64>) -> Vec<Event> {
    numbers.into_iter().map(|seq| event(seq, EventBody::Text { text: format!("event {seq}") })).collect()
}

fn terminal(seq: u64, answer_bytes: Option<u64>) -> Event {
    event(seq, EventBody::Terminal { receipt: json!({"status": "complete"}), answer_bytes })
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, CallError>, code: &str) {
    match &answer {
        Err(error) if error.is(code) => {}
        other => panic!("expected {code}, got {other:?}"),
    }
}

async fn started() -> (tempfile::TempDir, Served, Hand, AttemptId) {
    let dir = tempfile::tempdir().unwrap();
    let mut timing = quick();
    // These tests are slow talkers: nobody is to be lost meanwhile.
    timing.lease = std::time::Duration::from_secs(60);
    let served = Served::start(dir.path(), "127.0.0.1:0", timing);
    let mut hand = Hand::new(&served, "w1");
    hand.register(Vec::new()).await.unwrap();
    let (id, submit) = submission();
    served.client().submit(&submit).await.unwrap();
    assert_eq!(hand.offer().await, (id, Generation(1)));
    (dir, served, hand, id)
}

#[tokio::test]
async fn a_deadline_is_what_is_left_of_it_however_far_the_clients_clock_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    for minutes in [-4_i64, 0, 4] {
        let clients = time::OffsetDateTime::now_utc() + time::Duration::minutes(minutes);
        let (id, mut submit) = submission();
        submit.assignment.started_at = clients - time::Duration::seconds(20);
        submit.assignment.timeout_ms = Some(120_000.0);
        let sent = (clients.unix_timestamp_nanos() / 1_000_000).to_string();
        let call = Call::post(paths::ATTEMPTS, &submit).unwrap().header(paths::CLIENT_TIME_HEADER, &sent);
        served.transport().json::<Value>(call).await.unwrap();
        let mut hand = Hand::new(&served, &format!("w{}", minutes + 10));
        hand.register(Vec::new()).await.unwrap();
        let (offered, generation, left) = hand.offer_until().await;
        assert_eq!(offered, id, "{minutes} min: it is not overdue");
        assert!((80_000..=100_000).contains(&left.unwrap()), "{minutes} min: {left:?} ms are left");
        hand.claim(id, generation).await.unwrap();
        hand.report(id, generation, vec![terminal(1, None)]).await.unwrap();
        let remove = Call::post(&paths::worker_part(&hand.worker, "remove"), &json!({"abandon": true})).unwrap();
        served.transport().json::<Value>(remove).await.unwrap();
    }
}

#[tokio::test]
async fn repeated_overlapping_and_reordered_reports_append_each_event_once() {
    let (_dir, served, hand, id) = started().await;
    let one = Generation(1);
    hand.claim(id, one).await.unwrap();
    hand.claim(id, one).await.unwrap();
    assert_eq!(hand.report(id, one, texts(1..=3)).await.unwrap(), 3);
    assert_eq!(hand.report(id, one, texts(1..=3)).await.unwrap(), 3);
    assert_eq!(hand.report(id, one, texts(2..=5)).await.unwrap(), 5);
    assert_eq!(hand.report(id, one, texts(9..=10)).await.unwrap(), 5, "a hole is not taken");
    assert_eq!(hand.report(id, one, texts(1..=2)).await.unwrap(), 5);
    assert_eq!(hand.report(id, one, Vec::new()).await.unwrap(), 5);
    refused(hand.report(id, one, texts([6, 8])).await, "bad-report");
    let live = event(6, EventBody::Delta { text: String::new() });
    refused(hand.report(id, one, vec![live]).await, "bad-report");
    refused(hand.report(id, one, vec![terminal(6, None), texts([7]).remove(0)]).await, "bad-report");
    assert_eq!(hand.report(id, one, vec![terminal(6, None)]).await.unwrap(), 6);
    assert_eq!(hand.report(id, one, vec![terminal(6, None)]).await.unwrap(), 6);
    assert_eq!(hand.report(id, one, texts(7..=8)).await.unwrap(), 6, "nothing follows the end");
    assert_eq!(numbers(&drain(served.client().follow(id, 0)).await), [1, 2, 3, 4, 5, 6]);
    assert_eq!(numbers(&drain(served.client().follow(id, 4)).await), [5, 6]);
}

#[tokio::test]
async fn an_old_lease_an_old_session_and_an_unclaimed_offer_change_nothing() {
    let (_dir, served, mut hand, id) = started().await;
    refused(hand.report(id, Generation(1), texts(1..=2)).await, code::STALE_LEASE);
    refused(hand.claim(id, Generation(7)).await, code::STALE_LEASE);
    let refuse = Refuse { lease: hand.lease(id, Generation(1)), reason: "busy".to_owned(), elsewhere: true };
    let call = Call::post(&paths::worker_part(&hand.worker, "refuse"), &refuse).unwrap();
    hand.transport.open(call).await.unwrap();
    refused(hand.claim(id, Generation(1)).await, code::STALE_LEASE);
    let old = hand.session;
    hand.register(Vec::new()).await.unwrap();
    assert_eq!(hand.offer().await, (id, Generation(2)), "offered again, under a new generation");
    let new = std::mem::replace(&mut hand.session, old);
    refused(hand.claim(id, Generation(2)).await, code::STALE_SESSION);
    hand.session = new;
    hand.claim(id, Generation(2)).await.unwrap();
    refused(hand.report(id, Generation(1), texts(1..=2)).await, code::STALE_LEASE);
    assert_eq!(hand.report(id, Generation(2), texts(1..=2)).await.unwrap(), 2);
    let mut other = Hand::new(&served, "w1");
    refused(other.register(Vec::new()).await, code::NAME_TAKEN);
    refused(Hand::new(&served, "w2").claim(id, Generation(2)).await, code::NO_SUCH_WORKER);
}

#[tokio::test]
async fn a_claimed_attempt_is_offered_again_only_if_its_worker_proves_that_it_never_took_it() {
    let (_dir, served, mut hand, id) = started().await;
    hand.claim(id, Generation(1)).await.unwrap();
    hand.register(Vec::new()).await.unwrap();
    assert_eq!(hand.offer().await, (id, Generation(2)));
    hand.claim(id, Generation(2)).await.unwrap();
    hand.report(id, Generation(2), texts(1..=1)).await.unwrap();
    let held = Held { attempt: id, generation: Generation(2), last_seq: 1, terminal: false };
    let answer = hand.register(vec![held]).await.unwrap();
    assert_eq!(answer.acknowledged, [Acknowledged { attempt: id, last_seq: 1 }]);
    hand.register(Vec::new()).await.unwrap();
    let view = served.client().attempt(id).await.unwrap();
    let shown = serde_json::to_value(&view.state).unwrap();
    assert_eq!(shown["kind"], "interrupted", "it told something, so it may have started: never again");
    hand.register(vec![held]).await.unwrap();
    assert_eq!(hand.report(id, Generation(2), vec![terminal(2, None)]).await.unwrap(), 2);
    assert_eq!(served.client().receipt(id).await.unwrap()["status"], "complete", "the late receipt is the truth");
}

#[tokio::test]
async fn a_registration_that_arrives_late_or_again_is_no_proof_that_a_claimed_attempt_never_started() {
    let (_dir, served, mut hand, id) = started().await;
    // Written before the one that counts, by the same agent, and delayed on its way.
    hand.session = Uuid::new_v4();
    let late = hand.registration(7);
    hand.session = Uuid::new_v4();
    let newest = hand.registration(8);
    hand.send(&newest).await.unwrap();
    let (_, generation) = hand.offer().await;
    hand.claim(id, generation).await.unwrap();
    let running = served.client().attempt(id).await.unwrap().state;
    refused(hand.send(&late).await, code::STALE_SESSION);
    hand.send(&newest).await.unwrap();
    assert_eq!(
        served.client().attempt(id).await.unwrap().state,
        running,
        "it may have started: it is not offered again"
    );
    assert_eq!(hand.report(id, generation, texts(1..=2)).await.unwrap(), 2, "its session goes on");
    hand.send(&newest).await.unwrap();
    assert!(!served.client().attempt(id).await.unwrap().state.is_ended());
    hand.session = Uuid::new_v4();
    hand.send(&hand.registration(9)).await.unwrap();
    let shown = serde_json::to_value(&served.client().attempt(id).await.unwrap().state).unwrap();
    assert_eq!(shown["kind"], "interrupted", "a newer one counts");
}

#[tokio::test]
async fn a_claimed_attempt_with_damaged_records_is_interrupted_and_not_offered_again() {
    let (_dir, served, mut hand, id) = started().await;
    hand.claim(id, Generation(1)).await.unwrap();
    hand.register_with(Vec::new(), vec![id]).await.unwrap();
    let view = served.client().attempt(id).await.unwrap();
    assert_eq!(serde_json::to_value(&view.state).unwrap()["kind"], "interrupted");
}

#[tokio::test]
async fn the_answer_is_durable_and_proven_before_the_end_is_taken() {
    let (_dir, served, hand, id) = started().await;
    let digest: String = Sha256::digest("words").iter().map(|byte| format!("{byte:02x}")).collect();
    refused(hand.upload(id, &digest, "words").await, code::STALE_LEASE);
    hand.claim(id, Generation(1)).await.unwrap();
    refused(hand.report(id, Generation(1), vec![terminal(1, Some(5))]).await, code::ANSWER_MISSING);
    refused(hand.upload(id, &digest, "other words").await, code::DIGEST_MISMATCH);
    refused(hand.upload(id, "../../x", "words").await, code::DIGEST_MISMATCH);
    hand.upload(id, &digest, "words").await.unwrap();
    hand.upload(id, &digest, "words").await.unwrap();
    assert_eq!(hand.report(id, Generation(1), vec![terminal(1, Some(5))]).await.unwrap(), 1);
    assert_eq!(crate::support::read(served.client().answer(id).await.unwrap()).await, b"words");
    let left: Vec<_> = std::fs::read_dir(served.dir.join("blobs")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, [std::ffi::OsString::from(digest)], "no half upload is left");
}

#[tokio::test]
async fn commands_resume_after_the_last_one_that_was_seen() {
    let (_dir, served, hand, id) = started().await;
    let (second, submit) = submission();
    served.client().submit(&submit).await.unwrap();
    let path = format!("{}?session={}", paths::worker_part(&hand.worker, "commands"), hand.session);
    let mut all = hand.transport.records(&path, 0).await.unwrap();
    let first: Value = serde_json::from_str(&soon(all.next()).await.unwrap().unwrap().data).unwrap();
    assert_eq!(first["assignment"]["attempt"], id.to_string());
    let mut rest = hand.transport.records(&path, first["seq"].as_u64().unwrap()).await.unwrap();
    let next: Value = serde_json::from_str(&soon(rest.next()).await.unwrap().unwrap().data).unwrap();
    assert_eq!(next["assignment"]["attempt"], second.to_string());
}
