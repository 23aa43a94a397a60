//! What operators see and do from the command line: the queue, the workers.

use agent::wire::attempt::{AttemptState, CancelSignal};
use tokio::io::AsyncBufReadExt as _;

use crate::desk::{Desk, ended, submitted};
use crate::scripted::{Heard, Scripted};
use crate::support::{Served, drain, quick, soon, submission, until_state};

fn served() -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    (dir, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_shows_place_reason_submitter_and_age() {
    let (_dir, served) = served();
    let (desk, client) = (Desk::at(&served), served.client());
    assert_eq!(desk.run(&["queue"]).await.out(), "");
    let (first, submit) = submission();
    client.submit(&submit).await.unwrap();
    let (second, mut submit) = submission();
    submit.labels.insert("zone".to_owned(), "moon".to_owned());
    client.submit(&submit).await.unwrap();
    let told = desk.run(&["queue", "--json"]).await.lines();
    assert_eq!(told.len(), 2);
    assert_eq!((&told[0]["position"], &told[0]["attempt"]), (&1.into(), &first.to_string().into()));
    assert!(told[0]["reason"].as_str().unwrap().contains("no worker is registered"), "{told:?}");
    assert!(told[1]["submitter"].is_string() && told[1]["ageSeconds"].is_u64(), "{told:?}");
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    worker.until_offered(first).await;
    let text = desk.run(&["queue"]).await.out();
    assert!(text.contains(&second.to_string()) && text.contains("no worker carries the label zone=moon"), "{text}");
    assert!(text.starts_with("1  ") && text.lines().all(|line| line == line.trim_end()), "{text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_of_a_client_asks_its_controller_and_needs_no_engine() {
    let (_dir, served) = served();
    let mut desk = Desk::at(&served);
    std::fs::create_dir(desk.path("worktree")).unwrap();
    let worktree = desk.path("worktree").display().to_string();
    let told = desk.run(&["doctor", "--json", "--engine", "unix:///nowhere.sock", "--cwd", &worktree]).await;
    let checks = told.lines();
    assert_eq!(
        (told.code(), &checks[0]["name"], &checks[0]["state"]),
        (0, &"controller".into(), &"ok".into()),
        "{checks:?}"
    );
    assert!(checks[0]["saw"].as_str().unwrap().contains(&served.address), "{checks:?}");
    assert!(checks.iter().all(|check| check["name"] != "engine"), "{checks:?}");
    desk.bear("wrong.token", "a-token-of-another-controller");
    let told = desk.run(&["doctor", "--json"]).await;
    let check = &told.lines()[0];
    assert_eq!((told.code(), &check["state"]), (1, &"fail".into()), "{check}");
    assert!(check["saw"].as_str().unwrap().contains("token"), "{check}");
    desk.through("http://127.0.0.1:1");
    let told = desk.run(&["doctor"]).await;
    assert_eq!(told.code(), 1);
    assert!(
        told.out().contains("FAIL controller: http://127.0.0.1:1: no answer from the controller"),
        "{}",
        told.out()
    );
    assert_eq!(told.out().matches("Connection refused").count(), 1, "{}", told.out());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_requires_a_label_goes_only_to_a_worker_that_carries_it() {
    let (_dir, served) = served();
    let (desk, client) = (Desk::at(&served), served.client());
    let (plain, far) = (Scripted::new(1), Scripted::labelled(1, "zone", "eu"));
    let _plain = served.connect("plain", plain.clone());
    let (child, id) = desk.lane(&client, &["--require", "zone=eu"]).await;
    let waiting = until_state(
        &client,
        id,
        |state| matches!(state, AttemptState::Queued { reason, .. } if reason.contains("zone=eu")),
    )
    .await;
    assert!(matches!(waiting, AttemptState::Queued { position: 1, .. }));
    let _far = served.connect("far", far.clone());
    far.until_offered(id).await;
    far.end(id, "complete", Some(b"from afar"));
    assert_eq!(ended(child).await.code(), 0);
    assert_eq!(std::fs::read(desk.path("out.md")).unwrap(), b"from afar");
    assert_eq!(plain.offers(id), 0);
}

/// Waits until a worker is registered.
async fn until_listed(client: &controller::client::Client) {
    let listed = async {
        while client.workers(None, 1).await.unwrap().items.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    soon(listed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_waits_in_the_queue_says_once_why_also_to_a_pipe_unless_it_shall_be_quiet() {
    let (first, second, third) = (served(), served(), served());
    let _workers = [&first.1, &second.1].map(|served| served.connect("w1", Scripted::new(1)));
    let (loud, quiet) = (Desk::at(&first.1), Desk::at(&second.1));
    let (client, other) = (first.1.client(), second.1.client());
    until_listed(&client).await;
    until_listed(&other).await;
    let words = ["--worktree", "direct", "--instance", "nowhere"];
    let (silent, hushed) = quiet.lane(&other, &[&words[..], &["--quiet"]].concat()).await;
    // The streams of this name are fixed.
    let (named, its) = (Desk::at(&third.1), third.1.client());
    let runner = named.compatible("worktree = 'direct'\n[require]\nzone = 'moon'\n");
    let run = submitted(&its).await;
    let (mut child, id) = loud.lane(&client, &words).await;
    let mut lines = tokio::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let said = soon(lines.next_line()).await.unwrap().unwrap();
    assert_eq!(said, format!("attempt {id} queued at 1: no worker has the instance nowhere"));
    client.cancel(id, CancelSignal::Interrupt).await.unwrap();
    other.cancel(hushed, CancelSignal::Interrupt).await.unwrap();
    let receipt = soon(lines.next_line()).await.unwrap().unwrap();
    assert!(receipt.starts_with('{') && receipt.contains("\"cancelled\""), "{receipt}");
    assert_eq!(soon(lines.next_line()).await.unwrap(), None);
    its.cancel(run, CancelSignal::Interrupt).await.unwrap();
    // They waited for as long, and more.
    for child in [silent, runner] {
        let seen = ended(child).await;
        assert_eq!((seen.code(), seen.err().lines().count()), (130, 1), "{}", seen.err());
        assert!(seen.err().starts_with('{'), "{}", seen.err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_drained_and_resumed() {
    let (_dir, served) = served();
    let desk = Desk::at(&served);
    let worker = Scripted::labelled(2, "zone", "eu");
    let stop = served.connect("w1", worker.clone());
    let (id, submit) = submission();
    served.client().submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    let text = desk.run(&["workers", "list"]).await.out();
    assert!(text.contains("w1  ready  1/2") && text.trim_end().ends_with("zone=eu"), "{text}");
    let drained = desk.run(&["workers", "drain", "w1", "--json"]).await.lines();
    assert_eq!((&drained[0]["state"], &drained[0]["holds"][0]), (&"draining".into(), &id.to_string().into()));
    assert!(desk.run(&["workers", "resume", "w1"]).await.out().contains("ready"));
    for verb in ["drain", "resume", "remove"] {
        let unknown = desk.run(&["workers", verb, "nobody"]).await;
        assert_eq!(unknown.code(), 70);
        let said = unknown.err();
        assert!(said.contains("nobody") && said.contains("laneyard workers list"), "{said}");
        assert!(!said.contains("register first"), "{said}");
    }
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_holds_attempts_is_removed_only_on_purpose_and_its_late_receipt_still_counts() {
    let (_dir, served) = served();
    let (desk, client) = (Desk::at(&served), served.client());
    let worker = Scripted::new(1);
    let stop = served.connect("w1", worker.clone());
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    worker.start(id);
    until_state(&client, id, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    stop.cancel();
    until_state(&client, id, |state| matches!(state, AttemptState::Unreachable { .. })).await;
    let refused = desk.run(&["workers", "remove", "w1"]).await;
    assert_eq!(refused.code(), 75);
    let said = refused.err();
    assert!(said.contains(&id.to_string()) && said.contains("interrupted") && said.contains("--abandon"), "{said}");
    let removed = desk.run(&["workers", "remove", "w1", "--abandon"]).await;
    assert_eq!((removed.code(), removed.out().as_str()), (0, "worker `w1` is removed\n"), "{}", removed.err());
    assert!(removed.err().contains(&format!("abandoned: attempt {id}")), "{}", removed.err());
    assert_eq!(desk.run(&["workers", "list"]).await.out(), "");
    assert!(matches!(client.attempt(id).await.unwrap().state, AttemptState::Interrupted { started: true, .. }));
    let other = Scripted::new(1);
    let _other = served.connect("w2", other.clone());
    worker.end(id, "complete", None);
    let _back = served.connect("w1", worker.clone());
    soon(drain(client.follow(id, 0))).await;
    assert_eq!(client.receipt(id).await.unwrap()["status"], "complete");
    worker.until(|heard| *heard == Heard::Release(id)).await;
    assert_eq!((worker.offers(id), other.offers(id)), (1, 0), "what may have started is never started again");
}
