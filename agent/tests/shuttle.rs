//! A transfer to a controller that does not let this side in.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agent::ids::{AttemptId, Generation};
use agent::shuttle::{Route, Shuttle};
use agent::transport::{Call, Transport, whole};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

/// Refuses so many requests with 401, then answers. Gives the count of requests too.
fn refusing(times: u32) -> (Transport, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let transport = Transport::in_process(Arc::new(move |_| {
        let refused = count.fetch_add(1, Ordering::SeqCst) < times;
        let refusal = json!({"code": "credential-revoked", "message": "it was revoked", "requestId": "1"});
        let (status, body) =
            if refused { (StatusCode::UNAUTHORIZED, refusal) } else { (StatusCode::OK, json!("let in")) };
        let answer = Response::builder().status(status).body(whole(body.to_string()).boxed_unsync()).unwrap();
        Box::pin(async move { answer })
    }));
    (transport, asked)
}

#[tokio::test]
async fn a_workers_transfer_waits_until_it_is_let_in_again_however_short_its_patience() {
    let (transport, asked) = refusing(3);
    let route = Route::of_worker(&"w1".parse().unwrap(), "result", AttemptId::generate(), Generation(1));
    let shuttle = Shuttle { transport, route, patience: Duration::from_millis(50) };
    let answer: Value = shuttle.insist(|| Ok(Call::get("/"))).await.unwrap();
    assert_eq!((answer, asked.load(Ordering::SeqCst)), (json!("let in"), 4));
}

#[tokio::test]
async fn a_workers_transfer_that_is_let_in_no_more_ends_after_a_time_of_its_own() {
    let (transport, asked) = refusing(u32::MAX);
    let route = Route::of_worker(&"w1".parse().unwrap(), "result", AttemptId::generate(), Generation(1));
    let route = route.with_exile(Duration::from_millis(500));
    let shuttle = Shuttle { transport, route, patience: Duration::from_millis(1) };
    let waiting = shuttle.insist::<Value>(|| Ok(Call::get("/")));
    let given_up = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap_err();
    assert_eq!(given_up.code(), Some("credential-revoked"), "{given_up}");
    assert!(asked.load(Ordering::SeqCst) > 2, "it waits much longer than its patience");
}

#[tokio::test]
async fn a_clients_transfer_ends_with_its_credential() {
    let (transport, asked) = refusing(3);
    let shuttle = Shuttle { transport, route: Route::snapshots(), patience: Duration::from_secs(60) };
    let refused = shuttle.insist::<Value>(|| Ok(Call::get("/"))).await.unwrap_err();
    assert_eq!((refused.code(), asked.load(Ordering::SeqCst)), (Some("credential-revoked"), 1));
}
