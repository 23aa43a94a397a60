//! What a client gave to its caller, which may be another end than the worker told.

use agent::ids::AttemptId;
use agent::receipt::Status;
use agent::transport::{Call, CallError};
use agent::wire::attempt::{AttemptState, AttemptView, Deliver};
use agent::wire::error::code;
use agent::wire::identity::{Kind, Role};
use agent::wire::paths;
use controller::client::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::desk::{Desk, ended};
use crate::identity::Secure;
use crate::scripted::Scripted;
use crate::support::{Served, quick, soon, submission, until_state};
use crate::writer::wrote;

fn served() -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    (dir, served)
}

fn given(view: &AttemptView) -> Option<Status> {
    view.delivered.map(|delivered| delivered.status)
}

/// The only attempt as `laneyard attempts` lists it: the line for people, and the object.
async fn listed(desk: &Desk) -> (String, Value) {
    let text = desk.run(&["attempts"]).await;
    assert_eq!((text.code(), text.out().lines().count()), (0, 1), "{}", text.err());
    (text.out().trim_end().to_owned(), desk.run(&["attempts", "--json"]).await.lines().remove(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_delivered_is_durable_may_be_repeated_and_the_newest_word_counts() {
    let (_dir, mut served) = served();
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    assert_eq!(given(&client.attempt(id).await.unwrap()), None);
    let first = client.delivered(id, Status::ChildFailed).await.unwrap().delivered.unwrap();
    let again = client.delivered(id, Status::ChildFailed).await.unwrap().delivered.unwrap();
    assert_eq!((first.status, again), (Status::ChildFailed, first), "the same again is no news");
    let address = served.address.trim_start_matches("http://").to_owned();
    served.kill();
    let served = Served::start(&served.dir, &address, quick());
    let client = served.client();
    assert_eq!(client.attempt(id).await.unwrap().delivered, Some(first));
    assert_eq!(given(&client.delivered(id, Status::Complete).await.unwrap()), Some(Status::Complete));
    assert_eq!(client.attempts(None, 10).await.unwrap().items[0].delivered.unwrap().status, Status::Complete);
    let unknown = client.delivered(AttemptId::generate(), Status::Complete).await.unwrap_err();
    assert_eq!(unknown.code(), Some(code::NO_SUCH_ATTEMPT));
    for wrong in [json!({"status": "fine"}), json!({"status": "complete", "more": 1}), json!({})] {
        let call = Call::post(&paths::attempt_part(id, "delivered"), &wrong).unwrap();
        let refused = served.transport().json::<Value>(call).await.unwrap_err();
        assert_eq!(refused.code(), Some("bad-body"), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_whoever_submitted_an_attempt_says_what_was_delivered() {
    let secure = Secure::start();
    let (_, ada) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let (_, bob) = secure.create(Kind::Token, Role::Approve, "bob", None).await;
    let (_home, worker) = secure.join("w1").await;
    let (id, submit) = submission();
    let owner = Client::new(secure.bearing(&ada));
    owner.submit(&submit).await.unwrap();
    let told = async |transport: agent::transport::Transport| {
        let call = Call::post(&paths::attempt_part(id, "delivered"), &Deliver { status: Status::Complete }).unwrap();
        match transport.json::<AttemptView>(call).await {
            Ok(view) => format!("{:?}", given(&view)),
            Err(CallError::Refused { status, body }) => format!("{} {}", status.as_u16(), body.code),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(told(secure.bearing(&bob)).await, "403 not-your-attempt");
    assert_eq!(told(secure.with(worker.credentials.clone())).await, "403 forbidden");
    assert_eq!(told(secure.with(secure.trust())).await, "401 unauthenticated");
    assert_eq!(given(&owner.attempt(id).await.unwrap()), None);
    assert_eq!(told(secure.bearing(&ada)).await, "Some(Complete)");
    assert_eq!(told(secure.admin()).await, "Some(Complete)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_changes_could_not_be_applied_is_listed_as_its_caller_sees_it() {
    let (_dir, served) = served();
    let (desk, client) = (Desk::at(&served), served.client());
    let repo = desk.path("repo");
    std::fs::write(repo.join("file"), "first\n").unwrap();
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let (child, attempt) = desk.lane_that("isolated-write", &client, &[]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    let write = |dir: &std::path::Path| std::fs::write(dir.join("file"), "second\n").unwrap();
    let result = wrote(&served, "w1", attempt, write).await;
    std::fs::write(repo.join("file"), "moved\n").unwrap();
    worker.end_with(attempt, result);
    assert_eq!(ended(child).await.code(), 70);
    assert_eq!(desk.json("receipt.json")["status"], "child-failed");
    let view = client.attempt(attempt).await.unwrap();
    assert!(matches!(&view.state, AttemptState::Ended { status, .. } if status == "complete"), "{view:?}");
    assert_eq!(given(&view), Some(Status::ChildFailed));
    let (text, value) = listed(&desk).await;
    assert!(text.contains("  child-failed  ") && text.ends_with("w1; the worker ended it as complete"), "{text}");
    let expected = (&json!("complete"), &json!("w1"), &json!("child-failed"));
    assert_eq!((&value["state"], &value["place"], &value["delivered"]), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_whose_client_was_killed_is_not_delivered_until_somebody_finishes_it() {
    let (_dir, served) = served();
    let (desk, client) = (Desk::at(&served), served.client());
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let (mut child, attempt) = desk.lane(&client, &["--worktree", "direct"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    until_state(&client, attempt, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    assert_eq!(listed(&desk).await.1["delivered"], Value::Null);
    child.start_kill().unwrap();
    assert_eq!(ended(child).await.signal(), Some(9));
    worker.end(attempt, "complete", Some(b"answer"));
    until_state(&client, attempt, AttemptState::is_ended).await;
    let (text, value) = listed(&desk).await;
    assert!(text.contains("  complete  ") && text.ends_with("w1; no delivery reported yet"), "{text}");
    assert_eq!((&value["state"], &value["delivered"]), (&json!("complete"), &Value::Null));
    let attached = desk.run(&["attach", &attempt.to_string()]).await;
    assert_eq!(attached.code(), 0, "{}", attached.err());
    let (text, value) = listed(&desk).await;
    assert!(text.contains("  complete  ") && text.ends_with("  w1"), "{text}");
    assert_eq!(value["delivered"], "complete");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_gave_up_on_a_lost_worker_was_given_a_failure_whatever_comes_later() {
    let (_dir, served) = served();
    let (desk, client) = (Desk::at(&served), served.client());
    let worker = Scripted::new(1);
    let stop = served.connect("w1", worker.clone());
    let (child, attempt) = desk.lane(&client, &["--worktree", "direct", "--on-lost", "fail"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    until_state(&client, attempt, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    stop.cancel();
    assert_eq!(ended(child).await.code(), 70);
    let (text, value) = listed(&desk).await;
    assert!(text.contains("  interrupted  ") && text.ends_with("w1; its caller was given child-failed"), "{text}");
    assert_eq!((&value["state"], &value["delivered"]), (&json!("interrupted"), &json!("child-failed")));
    worker.end(attempt, "complete", Some(b"late"));
    let _back = served.connect("w1", worker.clone());
    until_state(&client, attempt, AttemptState::is_ended).await;
    let (text, _) = listed(&desk).await;
    assert!(text.contains("  child-failed  ") && text.ends_with("the worker ended it as complete"), "{text}");
}

/// What a line does with reports of deliveries.
#[derive(Clone, Copy, PartialEq)]
enum Reports {
    /// As to a controller from before there was such a route: it has another name there.
    Renamed,
    /// Cuts the connection.
    Cut,
    Passed,
}

async fn older(target: &str) -> String {
    line(target, watch::channel(Reports::Renamed).1).await
}

/// A line to a controller that does what it is told with reports of deliveries.
async fn line(target: &str, reports: watch::Receiver<Reports>) -> String {
    let place = target.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&place).await else { continue };
            let reports = reports.clone();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            tokio::spawn(async move {
                let mut piece = vec![0; 64 << 10];
                while let Ok(length @ 1..) = from_client.read(&mut piece).await {
                    let wanted = b"/delivered HTTP";
                    if let Some(at) = piece[..length].windows(wanted.len()).position(|part| part == wanted) {
                        let does = *reports.borrow();
                        match does {
                            Reports::Renamed => piece[at..at + 5].copy_from_slice(b"/xxxx"),
                            Reports::Cut => return,
                            Reports::Passed => {}
                        }
                    }
                    if to_server.write_all(&piece[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_knows_no_deliveries_costs_a_lane_nothing() {
    let (_dir, served) = served();
    let (mut desk, client) = (Desk::at(&served), served.client());
    desk.through(&older(&served.address).await);
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let (child, attempt) = desk.lane(&client, &["--worktree", "direct"]).await;
    worker.until_offered(attempt).await;
    worker.end(attempt, "complete", Some(b"answer"));
    let seen = soon(ended(child)).await;
    assert_eq!((seen.code(), seen.err().as_str()), (0, ""));
    assert_eq!(std::fs::read(desk.path("out.md")).unwrap(), b"answer");
    let view = client.attempt(attempt).await.unwrap();
    assert_eq!(given(&view), None, "it was not heard");
    // What such a controller answers has no word of it.
    let mut answer = serde_json::to_value(&view).unwrap();
    answer.as_object_mut().unwrap().remove("delivered").unwrap();
    assert_eq!(serde_json::from_value::<AttemptView>(answer).unwrap(), view);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_a_delivery_that_was_not_heard_is_sent_by_a_later_command() {
    let (_dir, served) = served();
    let (mut desk, client) = (Desk::at(&served), served.client());
    let (tell, reports) = watch::channel(Reports::Cut);
    desk.through(&line(&served.address, reports).await);
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let (child, attempt) = desk.lane(&client, &["--worktree", "direct"]).await;
    worker.until_offered(attempt).await;
    worker.end(attempt, "complete", Some(b"answer"));
    assert_eq!(ended(child).await.code(), 0, "the lane itself is as good as any");
    let kept = desk.path(&format!("state/clients/{attempt}.given"));
    assert!(kept.exists() && given(&client.attempt(attempt).await.unwrap()).is_none());
    tell.send_replace(Reports::Passed);
    assert_eq!(desk.run(&["queue"]).await.code(), 0);
    let heard = async {
        while given(&client.attempt(attempt).await.unwrap()).is_none() || kept.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon(heard).await;
    assert_eq!(given(&client.attempt(attempt).await.unwrap()), Some(Status::Complete));
}
