//! Workers whose credential counts no more, and credentials that do not reach: what everybody concerned is told.

use std::sync::Arc;

use agent::identity::{Home, Joining, join, keep_renewed};
use agent::ids::WorkerId;
use agent::link;
use agent::transport::Call;
use agent::wire::attempt::AttemptState;
use agent::wire::identity::{Kind, Role};
use agent::wire::worker::{Register, WorkerFacts, WorkerState};
use controller::client::Client;
use controller::core::Core;
use controller::reactor::tick::on_shut_out;
use controller::reactor::worker::{on_heartbeat, on_register};
use controller::reactor::{Effects, Liveness, Now, Refused, Timing, World};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::desk::Desk;
use crate::identity::Secure;
use crate::scripted::Scripted;
use crate::support::{soon, submission, until_state};

/// An agent that joined and runs, as `laneyard-agent run` wires it.
async fn agent(secure: &Secure, worker: &Arc<Scripted>) -> (tempfile::TempDir, CancellationToken) {
    let (home, identity) = secure.join("w1").await;
    let transport = secure.with(identity.credentials.clone());
    let stop = CancellationToken::new();
    tokio::spawn(link::run(transport.clone(), worker.clone(), "w1".parse().unwrap(), stop.clone()));
    tokio::spawn(keep_renewed(Home::of(home.path()), identity, transport, stop.clone()));
    (home, stop)
}

async fn until_ready(client: &Client) {
    soon(async {
        loop {
            let page = client.workers(None, 10).await.unwrap();
            if page.items.first().is_some_and(|worker| worker.state == WorkerState::Ready) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn revoke(secure: &Secure) {
    let done: Value = secure.admin().json(Call::post("/v1/workers/w1/revoke", &json!({})).unwrap()).await.unwrap();
    assert_eq!(done["revoked"].as_array().unwrap().len(), 2, "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_worker_is_shown_as_such_at_once_and_offered_nothing() {
    let secure = Secure::patient();
    let (_, root) = secure.create(Kind::Token, Role::Admin, "root", None).await;
    let desk = Desk::of(&secure, &root);
    let worker = Scripted::new(2);
    let (_home, _stop) = agent(&secure, &worker).await;
    let client = Client::new(secure.admin());
    until_ready(&client).await;
    revoke(&secure).await;
    let shown = desk.run(&["workers", "list"]).await.out();
    assert!(shown.starts_with("w1  revoked  "), "{shown}");
    let shown = desk.run(&["workers", "list", "--json"]).await.lines();
    assert_eq!((&shown[0]["state"], &shown[0]["revoked"]), (&"unreachable".into(), &true.into()));
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    let state = client.attempt(id).await.unwrap().state;
    assert!(matches!(&state, AttemptState::Queued { reason, .. } if reason.contains("unreachable")), "{state:?}");
    assert_eq!(worker.offers(id), 0);
}

#[test]
fn what_a_worker_sent_before_it_was_shut_out_does_not_make_it_ready_again() {
    let at = time::OffsetDateTime::UNIX_EPOCH;
    let now = Now { at, tick: std::time::Duration::ZERO };
    let (core, liveness) = (Core::default(), Liveness::starting(now));
    let mut world = World { core, liveness, timing: Timing::default() };
    let effects = &mut Effects::default();
    let worker: WorkerId = "w1".parse().unwrap();
    let register = |session| Register {
        worker: "w1".parse().unwrap(),
        session,
        number: 0,
        facts: WorkerFacts { capacity: 1, ..WorkerFacts::default() },
        held: Vec::new(),
        damaged: Vec::new(),
    };
    let (first, second) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    on_register(&mut world, effects, now, &register(first)).unwrap();
    on_shut_out(&mut world, effects, now, &worker);
    let late = on_heartbeat(&mut world, effects, now, &worker, first, &[]);
    assert!(matches!(late, Err(Refused::StaleSession(_))), "{late:?}");
    assert_eq!(world.core.worker_view(&worker).unwrap().state, WorkerState::Unreachable);
    on_register(&mut world, effects, now, &register(second)).unwrap();
    on_heartbeat(&mut world, effects, now, &worker, second, &[]).unwrap();
    assert_eq!(world.core.worker_view(&worker).unwrap().state, WorkerState::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_only_certificate_is_revoked_by_its_id_is_shown_as_such_too() {
    let secure = Secure::patient();
    let worker = Scripted::new(2);
    let (_home, _stop) = agent(&secure, &worker).await;
    let client = Client::new(secure.admin());
    until_ready(&client).await;
    let page: Value = secure.admin().json(Call::get("/v1/credentials?limit=500")).await.unwrap();
    let all = page["items"].as_array().unwrap();
    let id = all.iter().find(|view| view["name"] == "w1" && view["kind"] == "certificate").unwrap()["id"].clone();
    secure.revoke(id.as_str().unwrap()).await;
    let seen = client.workers(None, 10).await.unwrap().items.remove(0);
    assert_eq!((seen.state, seen.revoked), (WorkerState::Unreachable, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_agent_takes_the_identity_of_a_join_with_replace_and_delivers_what_it_ran() {
    let secure = Secure::patient();
    let worker = Scripted::new(2);
    let (home, stop) = agent(&secure, &worker).await;
    let client = Client::new(secure.admin());
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    worker.start(id);
    until_state(&client, id, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    revoke(&secure).await;
    until_state(&client, id, |state| matches!(state, AttemptState::Unreachable { .. })).await;
    worker.end(id, "complete", None);
    let (_, secret) = secure.create(Kind::Join, Role::Worker, "w1", None).await;
    // By another of its names: that makes it no other controller.
    let named = secure.served.address.replace("127.0.0.1", "localhost").parse().unwrap();
    let joining = Joining { replace: true, controller: named, ..secure.joining(&secret, "w1") };
    join(&Home::of(home.path()), &joining).await.unwrap();
    until_state(&client, id, AttemptState::is_ended).await;
    until_ready(&client).await;
    assert_eq!(worker.offers(id), 1);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_worker_and_a_bad_join_token_are_told_how_to_go_on() {
    let secure = Secure::start();
    let (home, identity) = secure.join("w1").await;
    let w1 = secure.with(identity.credentials);
    revoke(&secure).await;
    let refused = w1.json::<Value>(Call::get("/v1/attempts")).await.unwrap_err().to_string();
    for part in ["certificate", "worker `w1` was revoked", "laneyard worker token", "laneyard-agent join --replace"] {
        assert!(refused.contains(part), "{refused}");
    }
    let told = async |secret: &str| {
        let joining = Joining { replace: true, ..secure.joining(secret, "w2") };
        join(&Home::of(home.path()), &joining).await.unwrap_err().to_string()
    };
    let (_, used) = secure.create(Kind::Join, Role::Worker, "", None).await;
    let elsewhere = tempfile::tempdir().unwrap();
    join(&Home::of(elsewhere.path()), &secure.joining(&used, "w3")).await.unwrap();
    let (id, ended) = secure.create(Kind::Join, Role::Worker, "", None).await;
    secure.revoke(&id).await;
    let (_, other) = secure.create(Kind::Token, Role::Admin, "root", None).await;
    for (secret, what) in [
        ("ly_0123456789abcdef_0123456789abcdef", "no such join token"),
        (&other, "no such join token"),
        (&used, "was used by worker `w3`"),
        (&ended, "was revoked"),
    ] {
        let said = told(secret).await;
        assert!(said.contains(what) && said.contains("`laneyard worker token`"), "{said}");
        assert!(!said.contains("--token-file") && !said.contains("token create"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_was_refused_leaves_nothing_behind() {
    let secure = Secure::start();
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("new/state");
    let joining = secure.joining("ly_0123456789abcdef_0123456789abcdef", "w2");
    join(&Home::of(&state), &joining).await.unwrap_err();
    assert!(!dir.path().join("new").exists());
    let absent = Joining { controller: "https://127.0.0.1:1".parse().unwrap(), ..joining };
    join(&Home::of(&state), &absent).await.unwrap_err();
    assert!(!dir.path().join("new").exists());
    // What was there stays.
    let (home, _) = secure.join("w1").await;
    let before = std::fs::read_dir(home.path().join("worker")).unwrap().count();
    let again = Joining { replace: true, ..secure.joining("ly_0123456789abcdef_0123456789abcdef", "w1") };
    join(&Home::of(home.path()), &again).await.unwrap_err();
    assert_eq!(std::fs::read_dir(home.path().join("worker")).unwrap().count(), before);
    assert!(Home::of(home.path()).load().unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_because_of_a_role_names_the_role_that_is_needed_and_the_one_that_is_there() {
    let secure = Secure::start();
    let (_, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let desk = Desk::of(&secure, &secret);
    let refused = desk.run(&["workers", "drain", "w1"]).await;
    assert_eq!(refused.code(), 70);
    let said = refused.err();
    assert!(said.contains("needs role `admin`") && said.contains("`ada` has role `submit`"), "{said}");
    assert!(said.contains("laneyard token create --role admin"), "{said}");
    let collected = desk.run(&["gc", "--engine", "unix:///nowhere.sock"]).await;
    assert_eq!((collected.code(), collected.err()), (70, said), "as every other command");
    let (_home, identity) = secure.join("w1").await;
    let w1 = secure.with(identity.credentials);
    let said = w1.json::<Value>(Call::get("/v1/attempts")).await.unwrap_err().to_string();
    assert!(said.contains("`submit`, `approve` or `admin`") && said.contains("`w1` has role `worker`"), "{said}");
    let beat = Call::post("/v1/workers/w1/heartbeat", &json!({})).unwrap();
    let said = secure.bearing(&secret).json::<Value>(beat).await.unwrap_err().to_string();
    assert!(said.contains("needs role `worker` or `admin`") && said.contains("`ada` has role `submit`"), "{said}");
}
