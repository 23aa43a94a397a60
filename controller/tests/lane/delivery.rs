//! A lane against a scripted controller: events, cancels, answers that cannot be kept.

use std::sync::{Arc, Mutex};

use agent::event::{Event, EventBody, Phase};
use agent::ids::AttemptId;
use agent::progress::Reporter;
use agent::transport::CallError;
use agent::wire::attempt::{CancelSignal, Submit};
use bytes::Bytes;
use controller::cli::output::Talk;
use controller::cli::run::deliver::deliver;
use controller::cli::run::drive::{Ended, OnLost, drive};
use controller::cli::run::lane::{Lane, News};
use controller::cli::run::options;
use controller::cli::run::reserve::Reservation;
use controller::cli::run::signals::Latch;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};

use crate::desk::{Desk, LANE};

/// A controller whose attempt ends when it is cancelled.
struct Scripted {
    receipt: Value,
    answer: Vec<&'static [u8]>,
    cancels: Arc<Mutex<Vec<CancelSignal>>>,
    cancelled: Arc<Notify>,
    waits_for_cancel: bool,
}

impl Scripted {
    fn new(receipt: Value, answer: Vec<&'static [u8]>) -> Self {
        Self { receipt, answer, cancels: Arc::default(), cancelled: Arc::default(), waits_for_cancel: false }
    }
}

impl Lane for Scripted {
    fn submit<'a>(&'a self, _: &'a Submit) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async { Ok(()) })
    }
    fn follow(&self, _: AttemptId, _: u64) -> BoxStream<'static, Result<News, CallError>> {
        let event = |seq, body| Ok(News::Event(Event { seq, at: OffsetDateTime::UNIX_EPOCH, body }));
        let running = EventBody::Status { phase: Phase::Running, step: None, settled: None, note: None };
        let end = EventBody::Terminal { receipt: self.receipt.clone(), answer_bytes: None };
        let gate = self.waits_for_cancel.then(|| self.cancelled.clone());
        let last = stream::once(async move {
            if let Some(gate) = gate {
                gate.notified().await;
            }
            event(2, end)
        });
        stream::iter([event(1, running)]).chain(last).boxed()
    }
    fn cancel(&self, _: AttemptId, signal: CancelSignal) -> BoxFuture<'_, Result<(), CallError>> {
        self.cancels.lock().unwrap().push(signal);
        self.cancelled.notify_one();
        Box::pin(async { Ok(()) })
    }
    fn answer(&self, _: AttemptId) -> BoxFuture<'_, Result<BoxStream<'static, Result<Bytes, CallError>>, CallError>> {
        let pieces: Vec<Result<Bytes, CallError>> =
            self.answer.iter().map(|piece| Ok(Bytes::from_static(piece))).collect();
        Box::pin(async move { Ok(stream::iter(pieces).boxed()) })
    }
}

fn complete() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/fixtures/receipts/v2-complete.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn reserve(desk: &Desk) -> Reservation {
    let words: Vec<String> = LANE.split_whitespace().map(str::to_owned).collect();
    Reservation::take(&options::read(&words, true, &desk.path("")).unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn the_first_signal_cancels_once_and_the_receipt_is_waited_for() {
    let lane = Scripted { waits_for_cancel: true, ..Scripted::new(json!({"status": "cancelled"}), Vec::new()) };
    let (signal, seen) = watch::channel(None);
    signal.send(Some(CancelSignal::Terminate)).unwrap();
    let mut latch = Latch::of(seen);
    let ended =
        drive(&lane, AttemptId::generate(), &mut latch, &Reporter::off(), (Talk::SILENT, OnLost::Wait)).await.unwrap();
    assert_eq!(ended, Ended { receipt: json!({"status": "cancelled"}), answer_bytes: None });
    assert_eq!(*lane.cancels.lock().unwrap(), [CancelSignal::Terminate]);
}

#[tokio::test]
async fn an_answer_is_written_byte_for_byte_before_its_receipt() {
    let desk = Desk::new();
    let mut reservation = reserve(&desk);
    let lane = Scripted::new(complete(), vec![b"no newline ", b"\xff\x00 and no change"]);
    let ended = Ended { receipt: complete(), answer_bytes: Some(27) };
    let files = (&mut reservation.output, &mut reservation.receipt);
    let settled = deliver(&lane, AttemptId::generate(), ended, files).await.unwrap();
    assert_eq!(settled.exit_code(), 0);
    assert_eq!(std::fs::read(desk.path("out.md")).unwrap(), b"no newline \xff\x00 and no change");
    assert_eq!(desk.json("receipt.json"), complete());
    assert!(desk.text("receipt.json").ends_with("}\n"));
}

#[tokio::test]
async fn an_answer_that_does_not_exist_makes_a_launcher_failure_and_no_output() {
    struct Lost(Scripted);
    impl Lane for Lost {
        fn submit<'a>(&'a self, submit: &'a Submit) -> BoxFuture<'a, Result<(), CallError>> {
            self.0.submit(submit)
        }
        fn follow(&self, attempt: AttemptId, after: u64) -> BoxStream<'static, Result<News, CallError>> {
            self.0.follow(attempt, after)
        }
        fn cancel(&self, attempt: AttemptId, signal: CancelSignal) -> BoxFuture<'_, Result<(), CallError>> {
            self.0.cancel(attempt, signal)
        }
        fn answer(
            &self,
            _: AttemptId,
        ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Bytes, CallError>>, CallError>> {
            let body = agent::wire::error::ErrorBody {
                code: "no-answer".to_owned(),
                message: "no answer".to_owned(),
                hint: None,
                request_id: String::new(),
            };
            Box::pin(async move { Err(CallError::Refused { status: http::StatusCode::NOT_FOUND, body }) })
        }
    }
    let desk = Desk::new();
    let mut reservation = reserve(&desk);
    let lane = Lost(Scripted::new(complete(), Vec::new()));
    let ended = Ended { receipt: complete(), answer_bytes: Some(5) };
    let files = (&mut reservation.output, &mut reservation.receipt);
    let settled = deliver(&lane, AttemptId::generate(), ended, files).await.unwrap();
    assert_eq!(settled.exit_code(), 70);
    let receipt = desk.json("receipt.json");
    assert_eq!(receipt["error"]["message"], "launcher failed after reserving output paths");
    assert!(receipt["failureDetail"].as_str().unwrap().starts_with("the answer could not be written: "), "{receipt}");
    assert_eq!((&receipt["failurePhase"], &receipt["processStarted"]), (&json!("invocation"), &json!(true)));
    assert_eq!(
        (&receipt["reportedModel"], &receipt["sessionId"], &receipt["usage"]),
        (&json!(null), &json!(null), &json!(null))
    );
    assert!(!desk.path("out.md").exists());
}

#[tokio::test]
async fn a_file_that_took_the_outputs_place_is_not_removed() {
    let desk = Desk::new();
    let mut reservation = reserve(&desk);
    std::fs::write(desk.path("theirs"), "theirs").unwrap();
    std::fs::rename(desk.path("theirs"), desk.path("out.md")).unwrap();
    let ended = Ended { receipt: json!({"schemaVersion": 2, "status": "cancelled"}), answer_bytes: None };
    let lane = Scripted::new(json!({}), Vec::new());
    let files = (&mut reservation.output, &mut reservation.receipt);
    let settled = deliver(&lane, AttemptId::generate(), ended, files).await.unwrap();
    assert_eq!((settled.exit_code(), desk.text("out.md").as_str()), (130, "theirs"));
}
