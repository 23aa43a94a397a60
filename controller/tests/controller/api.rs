//! The API over loopback: credentials, bodies, idempotency, pages.

use agent::ids::{AttemptId, Generation};
use agent::transport::{Call, CallError, Endpoint, Token, Transport, whole};
use agent::wire::attempt::{AttemptState, CancelSignal, PanelSeat};
use agent::wire::error::code;
use agent::wire::paths;
use agent::wire::worker::WorkerState;
use controller::client::Client;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::scripted::{Heard, Scripted};
use crate::support::{Served, drain, quick, read, submission, until_state};

fn served() -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    (dir, served)
}

#[track_caller]
fn check(answer: Result<Value, CallError>, status: u16, code: &str) {
    match answer {
        Err(CallError::Refused { status: got, body }) => {
            assert_eq!((got.as_u16(), body.code.as_str()), (status, code), "{body:?}");
            assert!(!body.request_id.is_empty() && !body.message.is_empty());
        }
        other => panic!("expected {status} {code}, got {other:?}"),
    }
}

#[tokio::test]
async fn nothing_but_health_is_told_without_the_token() {
    let (_dir, served) = served();
    let endpoint: Endpoint = served.address.parse().unwrap();
    for token in [None, Token::parse("0123456789abcdef-wrong")] {
        let transport = Transport::http(&endpoint, token).unwrap();
        Client::new(transport.clone()).health().await.unwrap();
        let (id, submit) = submission();
        for call in [
            Call::get(paths::ATTEMPTS),
            Call::get(&paths::attempt_part(id, "events")),
            Call::post(paths::ATTEMPTS, &submit).unwrap(),
            Call::get(paths::WORKERS),
            Call::get("/v1/nothing"),
        ] {
            check(transport.json(call).await, 401, code::UNAUTHENTICATED);
        }
    }
    assert_eq!(served.client().attempts(None, 10).await.unwrap().items, []);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_with_a_stable_code() {
    let (_dir, served) = served();
    let transport = served.transport();
    let post = |path: &str, text: &'static str| Call::new(Method::POST, path).body(whole(text));
    let id = AttemptId::generate();
    check(transport.json(post(paths::ATTEMPTS, "{")).await, 400, "bad-body");
    check(transport.json(post(paths::ATTEMPTS, r#"{"assignment":{}}"#)).await, 400, "bad-body");
    check(transport.json(post(paths::ATTEMPTS, r#"{"typo":1}"#)).await, 400, "bad-body");
    check(transport.json(Call::get("/v1/attempts/not-an-id")).await, 400, "bad-id");
    check(transport.json(Call::get(&paths::attempt(id))).await, 404, code::NO_SUCH_ATTEMPT);
    check(transport.json(Call::get(&paths::attempt_part(id, "events"))).await, 404, code::NO_SUCH_ATTEMPT);
    check(transport.json(Call::get(&paths::attempt_part(id, "receipt"))).await, 404, code::NO_SUCH_ATTEMPT);
    check(transport.json(post(&paths::attempt_part(id, "cancel"), r#"{"signal":"SIGHUP"}"#)).await, 400, "bad-body");
    check(
        transport.json(post(&paths::attempt_part(id, "cancel"), r#"{"signal":"SIGINT"}"#)).await,
        404,
        code::NO_SUCH_ATTEMPT,
    );
    check(transport.json(Call::get("/v1/attempts?after=x")).await, 400, "bad-page");
    check(transport.json(Call::get("/v1/nothing")).await, 404, "no-such-route");
    check(transport.json(Call::new(Method::DELETE, paths::ATTEMPTS)).await, 405, "no-such-method");
    let events = Call::get(&paths::attempt_part(id, "events")).header(paths::LAST_EVENT_ID_HEADER, "x");
    check(transport.json(events).await, 400, "bad-event-id");
    check(transport.json(Call::get("/v1/workers/w1/commands")).await, 400, "bad-query");
    let (_, mut submit) = submission();
    submit.panel = Some(PanelSeat { id: "p".to_owned(), size: 0 });
    check(transport.json(Call::post(paths::ATTEMPTS, &submit).unwrap()).await, 400, "bad-panel");
    let long = vec![b' '; 5 << 20];
    let long = Call::new(Method::POST, &paths::attempt_part(id, "cancel")).body(whole(long));
    match transport.json(long).await {
        // The server hangs up on what it will not read; the answer may be lost in that.
        Err(CallError::Lost { .. }) => {}
        other => check(other, 413, "too-large"),
    }
}

#[tokio::test]
async fn the_same_submission_again_changes_nothing_and_another_one_is_refused() {
    let (_dir, served) = served();
    let client = served.client();
    let (id, mut submit) = submission();
    let first = client.submit(&submit).await.unwrap();
    let again = client.submit(&submit).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(client.attempts(None, 10).await.unwrap().items.len(), 1);
    submit.assignment.model = "other".to_owned();
    let error = client.submit(&submit).await.unwrap_err();
    assert!(error.is(code::ID_REUSED), "{error}");
    assert_eq!(client.attempt(id).await.unwrap().model.as_deref(), Some("sonnet"));
}

#[tokio::test]
async fn a_fleet_of_one_runs_an_attempt_over_http() {
    let (_dir, served) = served();
    let worker = Scripted::new(2);
    let _stop = served.connect("w1", worker.clone());
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    worker.start(id);
    let running = until_state(&client, id, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    assert_eq!(
        running,
        AttemptState::Running { worker: "w1".parse().unwrap(), generation: Generation(1), started: true }
    );
    client.cancel(id, CancelSignal::Terminate).await.unwrap();
    worker.until(|heard| *heard == Heard::Cancel(id, CancelSignal::Terminate)).await;
    let answer = vec![7; 3 << 20];
    worker.end(id, "cancelled", Some(&answer));
    assert_eq!(drain(client.follow(id, 0)).await.len(), 2);
    assert_eq!(client.receipt(id).await.unwrap()["status"], "cancelled");
    assert_eq!(read(client.answer(id).await.unwrap()).await, answer);
    worker.until(|heard| *heard == Heard::Release(id)).await;
}

#[tokio::test]
async fn lists_come_in_pages_and_the_queue_says_what_it_waits_for() {
    let (_dir, served) = served();
    let client = served.client();
    let mut ids = Vec::new();
    for _ in 0..5 {
        let (id, submit) = submission();
        client.submit(&submit).await.unwrap();
        ids.push(id);
    }
    let first = client.attempts(None, 3).await.unwrap();
    let second = client.attempts(first.next.as_deref(), 3).await.unwrap();
    assert_eq!(second.next, None);
    let mut listed: Vec<_> = first.items.iter().chain(&second.items).map(|view| view.attempt).collect();
    listed.reverse();
    assert_eq!(listed, ids, "newest first, none twice, none missing");
    let head = client.queue(None, 2).await.unwrap();
    assert_eq!(head.items.iter().map(|entry| entry.attempt).collect::<Vec<_>>(), ids[..2]);
    assert!(head.items[0].reason.contains("no worker is registered"), "{:?}", head.items[0]);
    let rest = client.queue(head.next.as_deref(), 10).await.unwrap();
    assert_eq!(rest.items.iter().map(|entry| entry.position).collect::<Vec<_>>(), [3, 4, 5]);
}

#[tokio::test]
async fn a_draining_worker_gets_nothing_new_and_is_removed_when_it_is_empty() {
    let (_dir, served) = served();
    let (worker, client) = (Scripted::new(2), served.client());
    let stop = served.connect("w1", worker.clone());
    let (first, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(first).await;
    let name = "w1".parse().unwrap();
    assert_eq!(client.steer_worker(&name, "drain").await.unwrap().state, WorkerState::Draining);
    let (second, submit) = submission();
    let view = client.submit(&submit).await.unwrap();
    assert!(matches!(view.state, AttemptState::Queued { ref reason, .. } if reason.contains("draining")), "{view:?}");
    assert!(client.steer_worker(&name, "remove").await.unwrap_err().is("worker-busy"));
    worker.end(first, "complete", None);
    worker.until(|heard| *heard == Heard::Release(first)).await;
    assert_eq!(worker.offers(second), 0);
    client.steer_worker(&name, "resume").await.unwrap();
    worker.until_offered(second).await;
    worker.end(second, "complete", None);
    worker.until(|heard| *heard == Heard::Release(second)).await;
    client.steer_worker(&name, "drain").await.unwrap();
    // The worker has heard of the release; that it has, the controller learns a moment later.
    let removed = async {
        while let Err(error) = client.steer_worker(&name, "remove").await {
            assert!(error.is("worker-busy"), "{error}");
            tokio::task::yield_now().await;
        }
    };
    crate::support::soon(removed).await;
    stop.cancel();
    // An agent that introduced itself again before it stopped holds nothing: it goes at once.
    let gone = async {
        while !client.workers(None, 10).await.unwrap().items.is_empty() {
            let _ = client.steer_worker(&name, "remove").await;
            tokio::task::yield_now().await;
        }
    };
    crate::support::soon(gone).await;
}

#[tokio::test]
async fn a_refused_request_tells_its_id_in_body_and_header() {
    let (_dir, served) = served();
    let request = http::Request::get("/v1/nothing").body(whole("")).unwrap();
    let response = served.transport().send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let header = response.headers()[paths::REQUEST_ID_HEADER].to_str().unwrap().to_owned();
    let body: Value = serde_json::from_slice(&read(response.into_body()).await).unwrap();
    assert_eq!(body["requestId"], header);
}
