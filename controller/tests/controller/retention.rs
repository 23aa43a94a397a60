//! What a controller keeps of ended attempts, and for how long.

use std::time::{Duration, SystemTime};

use agent::event::EventBody;
use agent::ids::AttemptId;
use agent::retention::{Keep, Kind, Rules};
use agent::wire::attempt::AttemptState;
use agent::wire::error::code;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::desk::Desk;
use crate::scripted::{Heard, Scripted};
use crate::support::{Served, drain, numbers, read, soon, submission, until_state};

const FOREVER: Keep = Keep { age: None, size: None };
const NOT_AT_ALL: Keep = Keep { age: Some(Duration::ZERO), size: None };

/// By hand only.
fn rules(logs: Keep, receipts: Keep) -> Rules {
    Rules { every: Duration::from_secs(3600), logs, receipts, ..Rules::default() }
}

fn served(dir: &std::path::Path, listen: &str, rules: Rules) -> Served {
    Served::start_as(dir, listen, |config| config.retention = rules)
}

/// An attempt that ended with an answer and was let go.
async fn ended(served: &Served, worker: &Scripted, events: u64) -> AttemptId {
    let (id, submit) = submission();
    served.client().submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    for n in 1..events {
        worker.text(id, &format!("{id} {n}"));
    }
    worker.end(id, "complete", Some(id.to_string().as_bytes()));
    worker.until(|heard| *heard == Heard::Release(id)).await;
    id
}

/// Waits until the controller has heard that the attempts were let go.
async fn until_due(served: &Served, wanted: usize) {
    let due = async {
        while served.client().collect(true).await.unwrap().items.len() < wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(due).await;
}

async fn rows(served: &Served) -> (i64, i64, i64) {
    let options = SqliteConnectOptions::new().filename(served.dir.join("controller.sqlite"));
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let query = "SELECT (SELECT COUNT(*) FROM journal), (SELECT COUNT(*) FROM events), \
                 (SELECT COUNT(*) FROM assignments)";
    let row = sqlx::query(query).fetch_one(&pool).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_go_first_and_leave_one_gap_record_and_the_receipt() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path(), "127.0.0.1:0", rules(NOT_AT_ALL, FOREVER));
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let client = served.client();
    let id = ended(&served, &worker, 1_200).await;
    until_due(&served, 1).await;
    let planned = client.collect(true).await.unwrap();
    let item = &planned.items[0];
    assert_eq!((item.kind, item.subject.as_str(), item.kept), (Kind::Logs, id.to_string().as_str(), false));
    assert!(item.bytes > 1_000, "{item:?}");
    assert_eq!(numbers(&drain(client.follow(id, 0)).await).len(), 1_200, "asking removes nothing");
    assert_eq!(client.collect(false).await.unwrap(), planned);
    let told = drain(client.follow(id, 0)).await;
    assert_eq!(told[0].body, EventBody::Gap { from: 1, to: 1_199 });
    assert_eq!(numbers(&told), [1_199, 1_200]);
    assert_eq!(client.receipt(id).await.unwrap()["status"], "complete");
    assert_eq!(read(client.answer(id).await.unwrap()).await, id.to_string().as_bytes());
    assert_eq!(client.collect(false).await.unwrap().items, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_past_its_time_goes_whole_and_the_tables_do_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = served(dir.path(), "127.0.0.1:0", rules(FOREVER, NOT_AT_ALL));
    let address = running.address.trim_start_matches("http://").to_owned();
    let worker = Scripted::new(2);
    let _stop = running.connect("w1", worker.clone());
    let client = running.client();
    let (open, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(open).await;
    worker.start(open);
    let mut counted = Vec::new();
    for _ in 0..3 {
        for _ in 0..4 {
            ended(&running, &worker, 30).await;
        }
        until_due(&running, 4).await;
        for entry in std::fs::read_dir(dir.path().join("blobs")).unwrap() {
            let file = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
        }
        let gone = client.collect(false).await.unwrap();
        assert_eq!(gone.items.len(), 4);
        let first: AttemptId = gone.items[0].subject.parse().unwrap();
        assert!(client.attempt(first).await.unwrap_err().is(code::NO_SUCH_ATTEMPT));
        counted.push(rows(&running).await);
    }
    let (journal, events, assignments) = counted[2];
    assert!(journal <= counted[0].0 + 2 && events == counted[0].1 && assignments == 1, "{counted:?}");
    assert_eq!(std::fs::read_dir(dir.path().join("blobs")).unwrap().count(), 0, "no answer is left");
    running.kill();
    let again = served(dir.path(), &address, rules(FOREVER, NOT_AT_ALL));
    let listed = again.client().attempts(None, 10).await.unwrap().items;
    assert_eq!(listed.iter().map(|view| view.attempt).collect::<Vec<_>>(), [open], "the journal has no hole");
    worker.end(open, "complete", None);
    assert_eq!(drain(again.client().follow(open, 0)).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_somebody_still_needs_goes() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path(), "127.0.0.1:0", rules(NOT_AT_ALL, NOT_AT_ALL));
    let client = served.client();
    let (waiting, submit) = submission();
    client.submit(&submit).await.unwrap();
    assert_eq!(client.collect(false).await.unwrap().items, []);
    let worker = Scripted::new(1);
    let stop = served.connect("w1", worker.clone());
    worker.until_offered(waiting).await;
    worker.start(waiting);
    until_state(&client, waiting, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    assert_eq!(client.collect(false).await.unwrap().items, []);
    stop.cancel();
    until_state(&client, waiting, |state| matches!(state, AttemptState::Interrupted { .. })).await;
    assert_eq!(client.collect(false).await.unwrap().items, [], "its receipt may still come");
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_that_later_ones_have_overtaken_go_and_the_newest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = served(dir.path(), "127.0.0.1:0", rules(FOREVER, FOREVER));
    let address = running.address.trim_start_matches("http://").to_owned();
    let worker = Scripted::labelled(3, "zone", "eu");
    let client = running.client();
    for _ in 0..20 {
        let stop = running.connect("w1", worker.clone());
        let listed = async {
            while client.workers(None, 1).await.unwrap().items.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(listed).await;
        client.steer_worker(&"w1".parse().unwrap(), "drain").await.unwrap();
        client.steer_worker(&"w1".parse().unwrap(), "resume").await.unwrap();
        client.steer_worker(&"w1".parse().unwrap(), "drain").await.unwrap();
        stop.cancel();
    }
    let before = client.workers(None, 1).await.unwrap().items;
    assert!(rows(&running).await.0 > 30);
    client.collect(false).await.unwrap();
    assert!(rows(&running).await.0 <= 6, "{:?}", rows(&running).await);
    running.kill();
    let again = served(dir.path(), &address, rules(FOREVER, FOREVER));
    let after = again.client().workers(None, 1).await.unwrap().items;
    assert_eq!(after[0].facts, before[0].facts);
    assert_eq!(after.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_lists_exactly_what_it_would_remove_here_and_at_the_controller() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path(), "127.0.0.1:0", rules(NOT_AT_ALL, FOREVER));
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    ended(&served, &worker, 10).await;
    until_due(&served, 1).await;
    let desk = Desk::at(&served);
    let planned = desk.run(&["gc", "--engine", "unix:///nowhere/e.sock", "--dry-run", "--json"]).await;
    assert_eq!(planned.lines().len(), 1, "{}", planned.err());
    assert_eq!(planned.lines()[0]["place"], "controller");
    assert!(
        desk.run(&["gc", "--engine", "unix:///nowhere/e.sock", "--dry-run"])
            .await
            .out()
            .starts_with("would remove  logs  ")
    );
    let done = desk.run(&["gc", "--engine", "unix:///nowhere/e.sock", "--json"]).await;
    assert_eq!((done.code(), done.out()), (0, planned.out()));
    assert_eq!(desk.run(&["gc", "--engine", "unix:///nowhere/e.sock", "--json"]).await.out(), "");
}
