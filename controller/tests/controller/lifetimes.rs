//! Credentials while time passes: revoked in mid-stream, renewed, remembered over a restart.

use std::sync::Arc;
use std::time::Duration;

use agent::identity::{Home, keep_renewed};
use agent::link;
use agent::transport::{Call, CallError};
use agent::wire::attempt::AttemptState;
use agent::wire::identity::{Kind, Role};
use agent::wire::paths;
use controller::client::Client;
use controller::identity::Lives;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::identity::{Secure, refusal};
use crate::scripted::{Heard, Scripted};
use crate::support::{drain, soon, submission, until_state};

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_its_open_streams_and_connections() {
    let secure = Secure::start();
    let (id, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let (_, other) = secure.create(Kind::Token, Role::Admin, "bob", None).await;
    let (ada, bob) = (secure.bearing(&secret), secure.bearing(&other));
    let (attempt, submit) = submission();
    Client::new(ada.clone()).submit(&submit).await.unwrap();
    let path = paths::attempt_part(attempt, "events");
    let (mut hers, mut his) = (ada.records(&path, 0).await.unwrap(), bob.records(&path, 0).await.unwrap());
    for stream in [&mut hers, &mut his] {
        soon(stream.next()).await.unwrap().unwrap();
    }
    secure.revoke(&id).await;
    let end = async { while let Some(Ok(_)) = hers.next().await {} };
    soon(end).await;
    assert_eq!(refusal(&ada, paths::ATTEMPTS).await, "401 credential-revoked");
    let following = Client::new(ada).follow(attempt, 0).collect::<Vec<_>>();
    let told = soon(following).await;
    assert!(matches!(told.last(), Some(Err(CallError::Refused { .. }))), "a follower ends: {told:?}");
    Client::new(bob.clone()).cancel(attempt, agent::wire::attempt::CancelSignal::Interrupt).await.unwrap();
    let end = async { while let Some(Ok(_)) = his.next().await {} };
    soon(end).await; // by the attempt's end
    bob.json::<Value>(Call::get(paths::ATTEMPTS)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_worker_is_cut_off_at_once_and_may_join_anew() {
    let secure = Secure::start();
    let (_home, identity) = secure.join("w1").await;
    let worker = Scripted::new(1);
    let transport = secure.with(identity.credentials);
    let stop = CancellationToken::new();
    tokio::spawn(link::run(transport.clone(), worker.clone(), "w1".parse().unwrap(), stop.clone()));
    let admin = Client::new(secure.admin());
    let (id, submit) = submission();
    admin.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    worker.start(id);
    until_state(&admin, id, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    let revoked: Value = secure.admin().json(Call::post("/v1/workers/w1/revoke", &json!({})).unwrap()).await.unwrap();
    assert_eq!(revoked["revoked"].as_array().unwrap().len(), 2, "its certificate and its token: {revoked}");
    assert_eq!(refusal(&transport, paths::ATTEMPTS).await, "401 credential-revoked");
    until_state(&admin, id, |state| matches!(state, AttemptState::Interrupted { .. })).await;
    stop.cancel();
    // The attempt's truth is still taken from a worker that was let in again.
    worker.end(id, "complete", None);
    let (_again, identity) = secure.join("w1").await;
    let stop = CancellationToken::new();
    let transport = secure.with(identity.credentials);
    tokio::spawn(link::run(transport, worker.clone(), "w1".parse().unwrap(), stop.clone()));
    assert_eq!(drain(admin.follow(id, 0)).await.len(), 2);
    worker.until(|heard| *heard == Heard::Release(id)).await;
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_before_they_end_and_nobody_notices() {
    let life = Duration::from_secs(3);
    let secure = Secure::living(Lives { server: life, client: life, ..Lives::default() });
    let (home, identity) = secure.join("w1").await;
    let first = identity.validity;
    let worker = Scripted::new(1);
    let transport = secure.with(identity.credentials.clone());
    let stop = CancellationToken::new();
    tokio::spawn(link::run(transport.clone(), worker.clone(), "w1".parse().unwrap(), stop.clone()));
    tokio::spawn(keep_renewed(Home::of(home.path()), identity, transport.clone(), stop.clone()));
    let admin = Client::new(secure.admin());
    let (id, submit) = submission();
    admin.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    worker.start(id);
    // Well past the end of both first certificates: what runs goes on, and new connections are made.
    let past = first.not_after + life;
    let mut said = 0;
    while time::OffsetDateTime::now_utc() < past {
        worker.text(id, "still here");
        said += 1;
        let state = Client::new(secure.admin()).attempt(id).await.unwrap().state;
        assert!(!matches!(state, AttemptState::Interrupted { .. }), "{state:?}");
        tokio::time::sleep(Duration::from_millis(200)).await; // time passes: that is the test
    }
    worker.end(id, "complete", None);
    assert_eq!(drain(admin.follow(id, 0)).await.len(), said + 2);
    let now = Home::of(home.path()).load().unwrap().unwrap();
    assert!(now.validity.not_after > first.not_after);
    assert_eq!(refusal(&secure.with(now.credentials), paths::ATTEMPTS).await, "403 forbidden");
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_was_not_renewed_ends_what_it_has_open() {
    let secure = Secure::living(Lives { client: Duration::from_secs(2), ..Lives::default() });
    let (_home, identity) = secure.join("w1").await;
    let transport = secure.with(identity.credentials);
    let worker = Scripted::new(1);
    let stop = CancellationToken::new();
    let linked = tokio::spawn(link::run(transport.clone(), worker.clone(), "w1".parse().unwrap(), stop.clone()));
    let expired = async {
        while refusal(&transport, paths::ATTEMPTS).await != "401 credential-expired" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(expired).await;
    let unreachable = async {
        loop {
            let page = Client::new(secure.admin()).workers(None, 10).await.unwrap();
            if page.items[0].state == agent::wire::worker::WorkerState::Unreachable {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(unreachable).await;
    assert!(!linked.is_finished(), "the agent goes on trying: somebody may set a clock");
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_revocations_outlive_the_controller() {
    let mut secure = Secure::start();
    let (id, gone) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let (_, kept) = secure.create(Kind::Token, Role::Submit, "bob", None).await;
    let (_home, worker) = secure.join("w1").await;
    secure.revoke(&id).await;
    secure.kill_and_restart();
    assert_eq!(refusal(&secure.bearing(&gone), paths::ATTEMPTS).await, "401 credential-revoked");
    secure.bearing(&kept).json::<Value>(Call::get(paths::ATTEMPTS)).await.unwrap();
    assert_eq!(refusal(&secure.with(worker.credentials), paths::ATTEMPTS).await, "403 forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_renews_without_end_fills_nothing_and_keeps_what_it_uses() {
    let secure = Secure::start();
    let (_home, identity) = secure.join("w1").await;
    let w1 = secure.with(identity.credentials);
    let csr = agent::identity::signing_request("w1", &rcgen::KeyPair::generate().unwrap()).unwrap();
    for _ in 0..30 {
        let renew = Call::post("/v1/workers/w1/certificate", &json!({"csr": csr})).unwrap();
        w1.json::<Value>(renew).await.unwrap();
    }
    let page: Value = secure.admin().json(Call::get("/v1/credentials?limit=500")).await.unwrap();
    let all = page["items"].as_array().unwrap();
    assert_eq!(all.iter().filter(|view| view["name"] == "w1").count(), 8, "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_joins_with_one_token_one_worker_gets_in() {
    let secure = Arc::new(Secure::start());
    let (_, secret) = secure.create(Kind::Join, Role::Worker, "", None).await;
    let tries = (0..8).map(|n| {
        let (secure, secret) = (Arc::clone(&secure), secret.clone());
        tokio::spawn(async move {
            let home = tempfile::tempdir().unwrap();
            let joining = secure.joining(&secret, &format!("w{n}"));
            agent::identity::join(&Home::of(home.path()), &joining).await.is_ok()
        })
    });
    let joined = futures_util::future::join_all(tries).await;
    assert_eq!(joined.into_iter().filter(|joined| *joined.as_ref().unwrap()).count(), 1);
}
