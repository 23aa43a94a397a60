//! One process, no port.

use agent::event::EventBody;
use agent::ids::{AttemptId, Generation};
use agent::link::Refusal;
use agent::receipt::Status;
use agent::wire::attempt::{AttemptState, CancelSignal};
use agent::wire::error::code;
use controller::client::Told;
use controller::embedded::embedded;
use futures_util::StreamExt as _;

use crate::scripted::{Heard, Scripted};
use crate::support::{drain, numbers, read, soon, submission, texts, until_state};

#[tokio::test]
async fn an_attempt_goes_from_submission_to_receipt_and_answer() {
    let worker = Scripted::new(4);
    let here = embedded(worker.clone()).await.unwrap();
    let client = here.client().clone();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    let mut following = client.follow(id, 0);
    worker.start(id);
    worker.text(id, "one");
    while !matches!(soon(following.next()).await.unwrap().unwrap(), Told::Event(event) if event.seq == 2) {}
    worker.say(id, EventBody::Delta { text: "li".to_owned() });
    worker.say(id, EventBody::Delta { text: "ve".to_owned() });
    let live = loop {
        match soon(following.next()).await.unwrap().unwrap() {
            Told::Live(body) => break body,
            other => assert!(matches!(other, Told::State(_)), "{other:?}"),
        }
    };
    assert_eq!(live, EventBody::Delta { text: "live".to_owned() });
    assert_eq!(client.receipt(id).await.unwrap_err().code(), Some(code::NOT_YET));
    worker.end(id, "complete", Some(b"the answer"));
    assert_eq!(numbers(&drain(following).await), [3]);
    let receipt = client.receipt(id).await.unwrap().to_string();
    assert_eq!(receipt, r#"{"schemaVersion":2,"zebra":1,"status":"complete","apple":[1,2]}"#, "key order is kept");
    worker.until(|heard| *heard == Heard::Release(id)).await;
    assert_eq!(read(client.answer(id).await.unwrap()).await, b"the answer", "also after the release");
    assert_eq!(texts(&drain(client.follow(id, 0)).await), ["one"]);
    // Of another end that the caller was given, the worker hears: this process keeps nothing.
    for _ in 0..2 {
        let view = client.delivered(id, Status::ChildFailed).await.unwrap();
        assert_eq!(view.delivered.unwrap().status, Status::ChildFailed);
    }
    assert_eq!(worker.heard().last(), Some(&Heard::Delivered(id, Status::ChildFailed)));
    here.finish().await;
    assert_eq!(worker.heard().iter().filter(|heard| matches!(heard, Heard::Delivered(..))).count(), 1);
    assert_eq!(worker.offers(id), 1);
}

#[tokio::test]
async fn what_a_killed_process_left_is_followed_from_its_beginning() {
    let worker = Scripted::new(4);
    let (before, later) = (AttemptId::generate(), AttemptId::generate());
    worker.adopt(before, Generation(1));
    worker.text(before, "from before");
    let here = embedded(worker.clone()).await.unwrap();
    worker.adopt(later, Generation(1));
    worker.text(later, "adopted later");
    for id in [before, later] {
        let client = here.client();
        let known = async {
            while client.attempt(id).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        soon(known).await;
        worker.end(id, "complete", None);
        assert_eq!(numbers(&drain(client.follow(id, 0)).await), [1, 2]);
        assert_eq!(client.answer(id).await.unwrap_err().code(), Some(code::NO_ANSWER));
    }
    assert!(worker.heard().iter().all(|heard| matches!(heard, Heard::Release(_))), "nothing was started");
    here.finish().await;
}

#[tokio::test]
async fn an_attempt_that_waits_is_cancelled_with_a_receipt_of_its_own() {
    let worker = Scripted::new(0);
    let here = embedded(worker.clone()).await.unwrap();
    let (id, submit) = submission();
    let view = here.client().submit(&submit).await.unwrap();
    assert!(matches!(view.state, AttemptState::Queued { position: 1, .. }), "{view:?}");
    here.client().cancel(id, CancelSignal::Interrupt).await.unwrap();
    here.client().cancel(id, CancelSignal::Terminate).await.unwrap();
    assert_eq!(numbers(&drain(here.client().follow(id, 0)).await), [1]);
    let receipt = here.client().receipt(id).await.unwrap();
    assert_eq!(receipt["status"], "cancelled");
    assert_eq!(receipt["error"]["message"], "launcher received SIGINT before authentication preflight");
    assert_eq!(receipt["attempt"], id.to_string());
    assert!(worker.heard().is_empty());
    here.finish().await;
}

#[tokio::test]
async fn an_attempt_whose_deadline_passes_while_it_waits_is_timed_out() {
    let worker = Scripted::new(0);
    let here = embedded(worker.clone()).await.unwrap();
    let (id, mut submit) = submission();
    submit.assignment.timeout_ms = Some(1.0);
    here.client().submit(&submit).await.unwrap();
    let state = until_state(here.client(), id, AttemptState::is_ended).await;
    assert_eq!(state, AttemptState::Ended { status: "timed-out".to_owned(), worker: None });
    here.finish().await;
}

#[tokio::test]
async fn a_worker_that_cannot_run_an_attempt_ends_it_and_says_why() {
    let worker = Scripted::new(1);
    *worker.refuse.lock().unwrap() = Some(Refusal::Unfit("no such image".to_owned()));
    let here = embedded(worker.clone()).await.unwrap();
    let (id, submit) = submission();
    here.client().submit(&submit).await.unwrap();
    drain(here.client().follow(id, 0)).await;
    let receipt = here.client().receipt(id).await.unwrap();
    assert_eq!(receipt["status"], "child-failed");
    assert_eq!(receipt["error"]["message"], "the worker cannot run it: no such image");
    assert_eq!(worker.offers(id), 1);
    here.finish().await;
}
