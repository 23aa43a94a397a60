//! Killed controllers, lost links, full logs and slow readers.

use std::time::Duration;

use agent::event::EventBody;
use agent::wire::attempt::AttemptState;
use controller::client::Told;
use futures_util::StreamExt as _;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::scripted::{Heard, Scripted};
use crate::support::{Served, drain, numbers, quick, soon, submission, until_state};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_controller_loses_nothing_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let address = served.address.trim_start_matches("http://").to_owned();
    let worker = Scripted::new(2);
    let _stop = served.connect("w1", worker.clone());
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    let following = tokio::spawn(drain(client.follow(id, 0)));
    worker.start(id);
    for round in 0..3 {
        for n in 0..50 {
            worker.text(id, &format!("round {round}, {n}"));
        }
        served.kill();
        worker.text(id, "while nobody listens");
        served = Served::start(dir.path(), &address, quick());
    }
    worker.end(id, "complete", Some(b"answer"));
    let events = soon(following).await.unwrap();
    assert_eq!(numbers(&events), (1..=155).collect::<Vec<_>>());
    assert_eq!(client.receipt(id).await.unwrap()["status"], "complete");
    assert_eq!(client.submit(&submit).await.unwrap().state, client.attempt(id).await.unwrap().state);
    worker.until(|heard| *heard == Heard::Release(id)).await;
    assert_eq!(worker.offers(id), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_worker_is_unreachable_then_interrupted_and_its_late_receipt_counts() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let (worker, spare) = (Scripted::new(1), Scripted::new(1));
    let stop = served.connect("w1", worker.clone());
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    worker.start(id);
    until_state(&client, id, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    let _spare = served.connect("w2", spare.clone());
    stop.cancel();
    until_state(&client, id, |state| matches!(state, AttemptState::Unreachable { .. })).await;
    until_state(&client, id, |state| matches!(state, AttemptState::Interrupted { .. })).await;
    worker.end(id, "complete", None);
    let _again = served.connect("w1", worker.clone());
    assert_eq!(drain(client.follow(id, 0)).await.len(), 2);
    assert_eq!(client.receipt(id).await.unwrap()["status"], "complete");
    assert_eq!((worker.offers(id), spare.offers(id)), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_no_longer_kept_give_one_gap_record() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    for n in 0..9 {
        worker.text(id, &n.to_string());
    }
    worker.end(id, "complete", None);
    drain(client.follow(id, 0)).await;
    let options = SqliteConnectOptions::new().filename(dir.path().join("controller.sqlite"));
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::query("DELETE FROM events WHERE seq BETWEEN 1 AND 6").execute(&pool).await.unwrap();
    let events = drain(client.follow(id, 2)).await;
    assert_eq!(events[0].body, EventBody::Gap { from: 3, to: 6 });
    assert_eq!(numbers(&events), [6, 7, 8, 9, 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_slows_nobody_and_misses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    let mut asleep = client.follow(id, 0);
    soon(asleep.next()).await.unwrap().unwrap();
    let long = "x".repeat(4000);
    for n in 0..1500 {
        worker.text(id, &format!("{n} {long}"));
    }
    worker.end(id, "complete", None);
    let awake = client.follow(id, 0);
    assert_eq!(drain(awake).await.len(), 1501, "others are served meanwhile");
    let slept = drain(asleep).await;
    assert_eq!(numbers(&slept), (1..=1501).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_says_that_it_lost_the_controller_and_goes_on_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    let mut following = client.follow(id, 0);
    assert!(matches!(soon(following.next()).await, Some(Ok(Told::State(_)))));
    served.kill();
    for _ in 0..2 {
        let told = soon(following.next()).await.unwrap().unwrap();
        assert!(matches!(told, Told::Lost { retry_in, .. } if retry_in >= Duration::from_millis(100)), "{told:?}");
    }
    let address = served.address.trim_start_matches("http://").to_owned();
    let _served = Served::start(dir.path(), &address, quick());
    loop {
        match soon(following.next()).await.unwrap().unwrap() {
            Told::Lost { .. } => {}
            Told::State(view) => break assert_eq!(view.attempt, id),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_second_controller_on_the_same_directory_and_an_open_token_file_are_refused() {
    use controller::serve::{Listen, ServeConfig, ServeError, start};
    let dir = tempfile::tempdir().unwrap();
    let config = ServeConfig::new("127.0.0.1:0".parse::<Listen>().unwrap(), dir.path());
    let first = start(config.clone()).await.unwrap();
    assert!(matches!(start(config.clone()).await, Err(ServeError::InUse { .. })));
    drop(first);
    std::fs::set_permissions(dir.path().join("token"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let error = start(config).await.unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_that_got_no_answer_is_sent_again_until_the_controller_is_back_and_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let address = served.address.trim_start_matches("http://").to_owned();
    let client = served.client();
    served.kill();
    let (id, submit) = submission();
    let lost = async {
        while client.health().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    soon(lost).await;
    let submitting = tokio::spawn({
        let (client, submit) = (client.clone(), submit.clone());
        async move { client.submit(&submit).await }
    });
    let _served = Served::start(dir.path(), &address, quick());
    assert_eq!(soon(submitting).await.unwrap().unwrap().attempt, id);
    client.submit(&submit).await.unwrap();
    assert_eq!(client.attempts(None, 10).await.unwrap().items.len(), 1);
}
