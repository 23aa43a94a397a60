//! A client whose credential is revoked while it waits or fetches what its lane has brought.

use agent::ids::AttemptId;
use agent::wire::attempt::AttemptState;
use agent::wire::identity::{Kind, Role};

use crate::desk::{Desk, Seen, ended};
use crate::identity::Secure;
use crate::scripted::Scripted;
use crate::support::until_state;
use crate::toll::Toll;
use crate::writer::wrote;

/// More than every buffer on the way holds, and nothing that compression makes small.
fn noise() -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[7]
    };
    std::iter::repeat_with(next).take(24 << 20).collect()
}

/// Without an end, and with the way to go on.
fn check_left(desk: &Desk, seen: &Seen, attempt: AttemptId) {
    assert_eq!((seen.code(), seen.out().as_str()), (70, ""), "{}", seen.err());
    assert!(seen.err().contains("was revoked"), "{}", seen.err());
    assert!(seen.err().contains(&format!("laneyard attach {attempt}")), "{}", seen.err());
    assert_eq!(std::fs::read(desk.path("receipt.json")).unwrap(), b"", "no end is claimed");
}

/// Finishes the lane with another credential.
async fn attach_anew(secure: &Secure, desk: &mut Desk, attempt: AttemptId) {
    let (_, other) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    desk.bear("second.token", &other);
    let attached = desk.run(&["attach", &attempt.to_string()]).await;
    assert_eq!(attached.code(), 0, "{}", attached.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_credential_is_revoked_leaves_its_lane_to_attach() {
    let secure = Secure::start();
    let (id, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let mut desk = Desk::of(&secure, &secret);
    let worker = Scripted::new(1);
    let _connected = secure.served.connect("w1", worker.clone());
    let client = secure.served.client();
    let (child, attempt) = desk.lane(&client, &["--worktree", "direct"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    until_state(&client, attempt, |state| matches!(state, AttemptState::Running { .. })).await;
    secure.revoke(&id).await;
    let seen = ended(child).await;
    check_left(&desk, &seen, attempt);
    worker.end(attempt, "complete", Some(b"answer"));
    until_state(&client, attempt, AttemptState::is_ended).await;
    attach_anew(&secure, &mut desk, attempt).await;
    assert_eq!(std::fs::read(desk.path("out.md")).unwrap(), b"answer");
    assert_eq!(desk.json("receipt.json")["status"], "complete");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_credential_is_revoked_while_it_fetches_the_answer_leaves_its_lane_to_attach() {
    let secure = Secure::start();
    let (id, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let mut desk = Desk::of(&secure, &secret);
    let mut toll = Toll::before(&secure.served.address, 2 << 20).await;
    desk.through(&toll.address);
    let worker = Scripted::new(1);
    let _connected = secure.served.connect("w1", worker.clone());
    let client = secure.served.client();
    let (child, attempt) = desk.lane(&client, &["--worktree", "direct"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    let answer = noise();
    worker.end(attempt, "complete", Some(&answer));
    toll.held().await;
    secure.revoke(&id).await;
    toll.open();
    let seen = ended(child).await;
    check_left(&desk, &seen, attempt);
    assert_eq!(std::fs::read(desk.path("out.md")).unwrap(), b"", "and a part of an answer is none");
    attach_anew(&secure, &mut desk, attempt).await;
    assert!(std::fs::read(desk.path("out.md")).unwrap() == answer);
    assert_eq!(desk.json("receipt.json")["status"], "complete");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_credential_is_revoked_while_it_fetches_the_changes_leaves_its_lane_to_attach() {
    let secure = Secure::start();
    let (id, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let mut desk = Desk::of(&secure, &secret);
    let mut toll = Toll::before(&secure.served.address, 2 << 20).await;
    desk.through(&toll.address);
    let worker = Scripted::new(1);
    let _connected = secure.served.connect("w1", worker.clone());
    let client = secure.served.client();
    let (child, attempt) = desk.lane_that("isolated-write", &client, &[]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    let written = noise();
    let result = wrote(&secure.served, "w1", attempt, |dir| std::fs::write(dir.join("noise"), &written).unwrap()).await;
    worker.end_with(attempt, result);
    toll.held().await;
    secure.revoke(&id).await;
    toll.open();
    let seen = ended(child).await;
    check_left(&desk, &seen, attempt);
    assert!(!desk.path("repo/noise").exists());
    attach_anew(&secure, &mut desk, attempt).await;
    assert!(std::fs::read(desk.path("repo/noise")).unwrap() == written);
    assert_eq!(std::fs::read(desk.path("out.md")).unwrap(), b"written");
    assert_eq!(desk.json("receipt.json")["result"]["outcome"], "applied");
}
