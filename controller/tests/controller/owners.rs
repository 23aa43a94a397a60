//! Whose attempts are: what one submitter may do with another's.

use agent::transport::{Call, CallError, Transport};
use agent::wire::attempt::{AttemptState, Cancel, CancelSignal, Deliver, Submit};
use agent::wire::identity::{Kind, Role};
use agent::wire::paths;
use controller::client::Client;
use serde_json::{Value, json};

use crate::identity::Secure;
use crate::scripted::Scripted;
use crate::support::{submission, until_state};

/// The code of a refused request; its message names the submitter and what to do.
async fn refusal(transport: &Transport, call: Call) -> String {
    match transport.open(call).await {
        Ok(answer) => format!("{}", answer.status().as_u16()),
        Err(CallError::Refused { status, body }) => {
            let hint = body.hint.unwrap_or_default();
            assert!(body.message.contains("`ada`") && hint.contains("administrator"), "{} {hint}", body.message);
            format!("{} {}", status.as_u16(), body.code)
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_attempt_is_about_is_for_its_submitter_and_administrators() {
    let secure = Secure::start();
    let bearing = async |role, name: &str| secure.bearing(&secure.create(Kind::Token, role, name, None).await.1);
    let ada = bearing(Role::Submit, "ada").await;
    let (carol, dan) = (bearing(Role::Submit, "carol").await, bearing(Role::Approve, "dan").await);
    let worker = Scripted::new(1);
    let _connected = secure.served.connect("w1", worker.clone());
    let (id, submit) = submission();
    let model = submit.assignment.model.clone();
    let owner = Client::new(ada.clone());
    owner.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    worker.start(id);
    until_state(&owner, id, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    let calls = || {
        let part = |part: &str| paths::attempt_part(id, part);
        let signal = CancelSignal::Interrupt;
        let status = agent::receipt::Status::Complete;
        vec![
            Call::post(&part("cancel"), &Cancel { signal }).unwrap(),
            Call::get(&part("events")),
            Call::get(&part("receipt")),
            Call::get(&part("answer")),
            Call::post(&part("delivered"), &Deliver { status }).unwrap(),
            Call::get(&part("result")),
            Call::get(&part("result/offer")),
            Call::get(&part("result/packing")),
            Call::post(&part("result/review"), &json!({})).unwrap(),
        ]
    };
    let all_refused = async || {
        for transport in [&carol, &dan] {
            for call in calls() {
                assert_eq!(refusal(transport, call).await, "403 not-your-attempt");
            }
        }
    };
    all_refused().await;
    assert_eq!(owner.attempt(id).await.unwrap().cancel, None, "a refused cancel cancels nothing");
    worker.end(id, "complete", Some(b"answer"));
    until_state(&owner, id, AttemptState::is_ended).await;
    all_refused().await;
    for transport in [&ada, &secure.admin()] {
        for part in ["receipt", "answer", "events"] {
            assert_eq!(refusal(transport, Call::get(&paths::attempt_part(id, part))).await, "200");
        }
    }
    // That it exists, all may see.
    for transport in [&carol, &ada] {
        let client = Client::new(transport.clone());
        let listed = client.attempts(None, 10).await.unwrap().items.remove(0);
        assert_eq!(client.attempt(id).await.unwrap(), listed);
        assert_eq!((listed.attempt, listed.submitter.as_str()), (id, "ada"));
        assert_eq!(
            (listed.model.as_deref(), listed.effort),
            (Some(model.as_str()), Some(agent::descriptor::Effort::High))
        );
        assert_eq!(listed.execution_id.is_some(), std::ptr::eq(transport, &ada));
    }
    let unknown = paths::attempt_part(agent::ids::AttemptId::generate(), "receipt");
    let error = carol.json::<Value>(Call::get(&unknown)).await.unwrap_err();
    assert_eq!(error.code(), Some("no-such-attempt"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_names_the_administrator_who_cancelled() {
    let mut secure = Secure::start();
    let (_, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let (_, root) = secure.create(Kind::Token, Role::Admin, "grace", None).await;
    let (id, submit) = submission();
    Client::new(secure.bearing(&secret)).submit(&submit).await.unwrap();
    Client::new(secure.bearing(&root)).cancel(id, CancelSignal::Interrupt).await.unwrap();
    secure.served.kill();
    let files = std::fs::read_dir(&secure.dir).unwrap().map(|entry| entry.unwrap().path());
    let kept = files.filter(|path| path.is_file()).any(|path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(12).any(|part| part == b"\"by\":\"grace\"")
    });
    assert!(kept, "no file of the controller says who asked");
}

/// Status, code and message of what a submission was answered.
async fn answered(transport: &Transport, submit: &Submit) -> (u16, String, String) {
    match transport.open(Call::post(paths::ATTEMPTS, submit).unwrap()).await {
        Ok(answer) => (answer.status().as_u16(), String::new(), String::new()),
        Err(CallError::Refused { status, body }) => (status.as_u16(), body.code, body.message),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_under_the_id_of_anothers_attempt_is_refused_and_tells_nothing_of_its_body() {
    let secure = Secure::start();
    let bearing = async |role, name: &str| secure.bearing(&secure.create(Kind::Token, role, name, None).await.1);
    let ada = bearing(Role::Submit, "ada").await;
    let adas_too = bearing(Role::Submit, "ada").await;
    let carol = bearing(Role::Submit, "carol").await;
    let (id, submit) = submission();
    let mut other = submit.clone();
    other.assignment.model = "other".to_owned();
    assert_eq!(answered(&ada, &submit).await.0, 201);
    let same = answered(&carol, &submit).await;
    assert_eq!((same.0, same.1.as_str()), (403, "not-your-attempt"), "{}", same.2);
    assert_eq!(answered(&carol, &other).await, same, "whether the body is the same is not told");
    assert_eq!(answered(&secure.admin(), &submit).await.1, "not-your-attempt", "an id is of one submitter");
    for owner in [&ada, &adas_too] {
        assert_eq!(answered(owner, &submit).await.0, 200, "its submitter's repetition is answered");
        assert_eq!(answered(owner, &other).await.1, "id-reused");
    }
    let view = Client::new(ada).attempt(id).await.unwrap();
    assert_eq!((view.submitter.as_str(), view.model), ("ada", Some(submit.assignment.model)));
}
