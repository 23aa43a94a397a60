//! Lanes whose client is gone, and who may go on with them.

use std::sync::Arc;

use agent::ids::AttemptId;
use agent::wire::attempt::{AttemptState, CancelSignal};
use agent::wire::identity::{Kind, Role};
use controller::cli::adopt::{Own, finish};
use controller::cli::later::Later;
use controller::cli::output::Talk;
use controller::cli::record::Records;
use controller::cli::run::drive::OnLost;
use controller::cli::run::signals::Latch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::desk::{Desk, ended};
use crate::identity::Secure;
use crate::scripted::{Heard, Scripted};
use crate::support::{Served, quick, soon, until_state};

/// A lane of ada's that runs, and whose client was killed.
struct Left {
    secure: Secure,
    /// Id of ada's credential.
    id: String,
    desk: Desk,
    worker: Arc<Scripted>,
    _connected: CancellationToken,
    attempt: AttemptId,
}

async fn left() -> Left {
    let secure = Secure::start();
    let (id, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let desk = Desk::of(&secure, &secret);
    let worker = Scripted::new(1);
    let connected = secure.served.connect("w1", worker.clone());
    let client = secure.served.client();
    let (mut child, attempt) = desk.lane(&client, &["--worktree", "direct"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    until_state(&client, attempt, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    child.start_kill().unwrap();
    assert_eq!(ended(child).await.signal(), Some(9));
    Left { secure, id, desk, worker, _connected: connected, attempt }
}

impl Left {
    async fn end(&self) {
        self.worker.end(self.attempt, "complete", Some(b"answer"));
        until_state(&self.secure.served.client(), self.attempt, AttemptState::is_ended).await;
    }

    /// Another credential of this name, in a file.
    async fn another(&self, name: &str) -> String {
        let (_, secret) = self.secure.create(Kind::Token, Role::Submit, name, None).await;
        let path = self.desk.path(&format!("{name}.other"));
        agent::secret_file::write(&path, &secret).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn check_delivered(&self) {
        assert_eq!(std::fs::read(self.desk.path("out.md")).unwrap(), b"answer");
        assert_eq!(self.desk.json("receipt.json")["status"], "complete");
        assert_eq!(Records::of(&self.desk.path("state")).all(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_environment_finishes_the_lane_of_a_revoked_one() {
    let left = left().await;
    left.secure.revoke(&left.id).await;
    let token = left.another("ada").await;
    left.end().await;
    let words = ["attach", &left.attempt.to_string()];
    let seen = left.desk.run_with(&words, &[]).await;
    assert_eq!(seen.code(), 70, "{}", seen.err());
    assert!(seen.err().contains("was revoked"), "{}", seen.err());
    let seen = left.desk.run_with(&words, &[("LANEYARD_TOKEN_FILE", &token)]).await;
    assert_eq!(seen.code(), 0, "{}", seen.err());
    left.check_delivered();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_credential_wins_over_the_clients_and_the_clients_over_one_that_is_refused() {
    let left = left().await;
    let token = left.another("ada").await;
    let strangers = left.desk.path("stranger.token");
    agent::secret_file::write(&strangers, "ly_nobody-knows-this-token").unwrap();
    let (ca, address) = (left.secure.ca(), left.secure.served.address.clone());
    let configured = |token: &str| {
        let text = format!("[controller]\nurl = '{address}'\nca = '{}'\ntoken-file = '{token}'\n", ca.display());
        std::fs::write(left.desk.path("config.toml"), text).unwrap();
        [("LANEYARD_CONFIG", left.desk.path("config.toml").to_str().unwrap().to_owned())]
    };
    let attempt = left.attempt.to_string();
    // The client's own is good still.
    let there = configured(strangers.to_str().unwrap());
    let there = there.each_ref().map(|(name, value)| (*name, value.as_str()));
    let seen = left.desk.run_with(&["cancel", &attempt], &there).await;
    assert_eq!((seen.code(), seen.err().as_str()), (0, ""));
    left.secure.revoke(&left.id).await;
    left.end().await;
    let there = configured(&token);
    let there = there.each_ref().map(|(name, value)| (*name, value.as_str()));
    let seen = left.desk.run_with(&["attach", &attempt], &there).await;
    assert_eq!(seen.code(), 0, "{}", seen.err());
    left.check_delivered();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_goes_with_the_credential_that_is_named_now() {
    let left = left().await;
    left.secure.revoke(&left.id).await;
    let token = left.another("ada").await;
    let attempt = left.attempt.to_string();
    let refused = left.desk.run_with(&["cancel", &attempt], &[]).await;
    assert!(refused.code() == 70 && refused.err().contains("was revoked"), "{}", refused.err());
    let seen = left.desk.run_with(&["cancel", &attempt, "--token-file", &token], &[]).await;
    assert_eq!((seen.code(), seen.err().as_str()), (0, ""));
    let view = left.secure.served.client().attempt(left.attempt).await.unwrap();
    assert!(view.cancel.is_some(), "{view:?}");
}

impl Left {
    /// Nothing ended it: the files are reserved and the record is there.
    fn check_kept(&self) {
        assert_eq!(std::fs::read(self.desk.path("receipt.json")).unwrap(), b"", "no end is claimed");
        assert_eq!(std::fs::read(self.desk.path("out.md")).unwrap(), b"");
        assert_eq!(Records::of(&self.desk.path("state")).all(), [self.attempt]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_submitters_token_ends_no_lane_and_the_right_one_finishes_it() {
    let left = left().await;
    let bobs = left.another("bob").await;
    let words = ["attach", &left.attempt.to_string(), "--token-file", &bobs];
    let refused = || async {
        let seen = left.desk.run_with(&words, &[]).await;
        assert_eq!((seen.code(), seen.out().as_str()), (70, ""));
        assert!(
            seen.err().contains("was submitted by `ada`") && seen.err().contains("administrator"),
            "{}",
            seen.err()
        );
        left.check_kept();
    };
    refused().await;
    left.end().await;
    refused().await;
    let seen = left.desk.run_with(&["attach", &left.attempt.to_string()], &[]).await;
    assert_eq!(seen.code(), 0, "{}", seen.err());
    left.check_delivered();
}

/// A lane whose client was killed, and in the place of its controller another one, which never heard of it.
struct Strange {
    desk: Desk,
    attempt: AttemptId,
    other: Served,
    _dirs: [tempfile::TempDir; 2],
}

async fn strange() -> Strange {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut served = Served::start(first.path(), "127.0.0.1:0", quick());
    let desk = Desk::at(&served);
    let (mut child, attempt) = desk.lane(&served.client(), &["--worktree", "direct"]).await;
    child.start_kill().unwrap();
    assert_eq!(ended(child).await.signal(), Some(9));
    let address = served.address.trim_start_matches("http://").to_owned();
    served.kill();
    let other = Served::start(second.path(), &address, quick());
    std::fs::copy(second.path().join("token"), first.path().join("token")).unwrap(); // the same name, another credential
    Strange { desk, attempt, other, _dirs: [first, second] }
}

/// Processes in the background that belong to this desk.
fn adopters(desk: &Desk) -> usize {
    let state = desk.path("state");
    let processes =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    let words = |line: &[u8]| line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let ours = processes.map(|line| words(&line)).filter(|words| {
        words.iter().any(|word| word == b"__adopt")
            && words.iter().any(|word| word == state.as_os_str().as_encoded_bytes())
    });
    ours.count()
}

impl Strange {
    /// What was tried in vain, as it is kept.
    fn note(&self) -> Option<Later> {
        Later::of(&Records::of(&self.desk.path("state")), self.attempt)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_nobody_can_finish_is_tried_seldom_and_people_are_told_what_to_type() {
    let strange = strange().await;
    let desk = &strange.desk;
    assert_eq!(desk.run(&["attempts"]).await.code(), 0); // starts the process in the background
    until(|| strange.note().is_some() && adopters(desk) == 0).await;
    let first = strange.note().unwrap();
    assert_eq!(first.tries, 1);
    assert!((first.next - first.last).whole_seconds() >= 60, "{first:?}");
    let type_this = format!("laneyard attach {}", strange.attempt);
    for _ in 0..3 {
        let listed = desk.run(&["attempts"]).await.out();
        assert_eq!(adopters(desk), 0, "its time has not come");
        assert!(listed.contains("  in-doubt  ") && listed.contains("tried once"), "{listed}");
        assert!(listed.contains("--on-lost fail") && listed.trim_end().ends_with(&type_this), "{listed}");
    }
    let listed = desk.run(&["attempts", "--json"]).await.lines().remove(0);
    assert_eq!(
        (listed["state"].as_str(), listed["waiting"]["tries"].as_u64()),
        (Some("in-doubt"), Some(1)),
        "{listed}"
    );
    let checked = desk.run(&["doctor", "--json"]).await.lines();
    let check = checked.iter().find(|check| check["name"] == "unfinished-lanes").unwrap();
    assert_eq!((check["state"].as_str(), check["remedy"].as_str()), (Some("warn"), Some(type_this.as_str())));
    let state = desk.path("state").to_str().unwrap().to_owned();
    let words = ["status", "--progress", "none", "--receipt", "receipt.json"];
    let status = desk.run_plain(&words, &[("LANEYARD_STATE", &state)]).await;
    assert!(status.code() == 0 && status.err().contains(&type_this), "{}", status.err());
    assert!(!status.out().contains(&type_this), "its lines on stdout stay as they are");
    let words = ["status", "--progress", "none", "--receipt", "prompt.md"];
    assert_eq!(desk.run_plain(&words, &[("LANEYARD_STATE", &state)]).await.err(), "", "another lane");
    assert_eq!(strange.note().unwrap(), first);

    // Its time comes: one more try, and a longer pause after it.
    let early = Later { next: first.last, ..first };
    let note = desk.path(&format!("state/clients/{}.later", strange.attempt));
    std::fs::write(&note, serde_json::to_string(&early).unwrap()).unwrap();
    assert_eq!(desk.run(&["attempts"]).await.code(), 0);
    until(|| strange.note().is_some_and(|note| note.tries == 2)).await;
    let second = strange.note().unwrap();
    assert!((second.next - second.last).whole_seconds() >= 120, "{second:?}");
    // Who attaches is not kept waiting for that, and nothing is left of it.
    let words = ["attach", &strange.attempt.to_string(), "--on-lost", "fail"];
    until(|| adopters(desk) == 0).await;
    assert_eq!(desk.run_with(&words, &[]).await.code(), 70);
    assert_eq!(desk.json("receipt.json")["status"], "child-failed");
    let left = std::fs::read_dir(desk.path("state/clients")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), Vec::<std::ffi::OsString>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_away_is_not_waited_for_without_end_by_the_process_in_the_background() {
    let mut left = left().await;
    left.secure.served.kill();
    let state = left.desk.path("state");
    let environment = [("LANEYARD_STATE".to_owned(), state.to_str().unwrap().to_owned())];
    let config = agent::config::Config::load(&environment.into_iter().collect()).unwrap();
    let held = Records::of(&state).take_as(left.attempt, true).unwrap();
    let own = Own { patience: Some(std::time::Duration::from_millis(300)), ..Own::default() };
    let (_never, first) = tokio::sync::watch::channel(None);
    let waiting = (Talk::SILENT, OnLost::Wait);
    let failed = soon(finish(&config, &own, held, &mut Latch::of(first), waiting)).await.unwrap_err();
    assert!(failed.to_string().contains("no answer from the controller"), "{failed}");
    left.check_kept();
    assert!(!Records::of(&state).is_held(left.attempt));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_does_not_know_the_attempt_ends_no_lane_unless_the_caller_gives_it_up() {
    let strange = strange().await;
    let (desk, attempt, other) = (&strange.desk, strange.attempt, &strange.other);
    let (words, none) = (["attach", &attempt.to_string()], other.client().attempts(None, 1).await.unwrap());
    assert_eq!(none.items, []);
    let seen = desk.run_with(&words, &[]).await;
    assert_eq!(seen.code(), 70);
    assert!(seen.err().contains("files stay reserved") && seen.err().contains("--on-lost fail"), "{}", seen.err());
    assert_eq!(std::fs::read(desk.path("receipt.json")).unwrap(), b"");
    assert!(desk.path("out.md").exists());
    let seen = desk.run_with(&[&words[..], &["--on-lost", "fail"]].concat(), &[]).await;
    assert_eq!(seen.code(), 70, "{}", seen.err());
    assert_eq!(desk.json("receipt.json")["status"], "child-failed");
    assert_eq!(Records::of(&desk.path("state")).all(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_and_attach_answer_with_one_json_object_if_they_are_asked_to() {
    let left = left().await;
    let (attempt, client) = (left.attempt.to_string(), left.secure.served.client());
    let elsewhere = {
        let (_, secret) = left.secure.create(Kind::Token, Role::Submit, "ada", None).await;
        Desk::of(&left.secure, &secret)
    };
    let told = async |words: &[&str]| {
        let seen = elsewhere.run(&[words, &["--json"]].concat()).await;
        let lines = seen.lines();
        assert_eq!((lines.len(), seen.err().as_str()), (1, ""), "{words:?}: {lines:?}");
        (seen.code(), lines[0].clone())
    };
    let asked = (0, json!({"attempt": attempt, "outcome": "asked"}));
    assert_eq!(told(&["cancel", &attempt]).await, asked);
    left._connected.cancel();
    until_state(&client, left.attempt, |state| matches!(state, AttemptState::Unreachable { .. })).await;
    let silent = (0, json!({"attempt": attempt, "outcome": "worker-silent", "worker": "w1"}));
    assert_eq!(told(&["cancel", &attempt]).await, silent);
    let _back = left.secure.served.connect("w1", left.worker.clone());
    left.worker.end(left.attempt, "cancelled", None);
    until_state(&client, left.attempt, AttemptState::is_ended).await;
    let over = (0, json!({"attempt": attempt, "outcome": "ended", "status": "cancelled"}));
    assert_eq!(told(&["cancel", &attempt]).await, over);
    // A receipt of an end without an answer, which goes to stderr unasked.
    let (code, receipt) = told(&["attach", &attempt]).await;
    assert_eq!((code, &receipt["status"]), (130, &json!("cancelled")));
    let finished = left.desk.run(&["attach", &attempt, "--json"]).await;
    assert_eq!((finished.code(), &finished.lines()[0]["status"]), (130, &json!("cancelled")), "{}", finished.err());
}

fn catches(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim).unwrap_or("0");
    u64::from_str_radix(mask, 16).unwrap() >> (signal as i32 - 1) & 1 == 1
}

async fn until(done: impl Fn() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon(waiting).await;
}

/// An attach beside another process, which receives a signal once it listens.
async fn attached_and_signalled(desk: &Desk, attempt: AttemptId, signal: Signal) -> tokio::process::Child {
    let child = desk.start(&["attach", &attempt.to_string()]);
    let pid = child.id().unwrap();
    until(|| catches(pid, signal)).await;
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_to_attach_cancels_a_lane_that_the_process_in_the_background_finishes() {
    let left = left().await;
    assert_eq!(left.desk.run(&["attempts"]).await.code(), 0); // starts that process
    let records = Records::of(&left.desk.path("state"));
    until(|| records.is_held(left.attempt)).await;
    let attached = attached_and_signalled(&left.desk, left.attempt, Signal::SIGTERM).await;
    left.worker.until(|heard| *heard == Heard::Cancel(left.attempt, CancelSignal::Terminate)).await;
    left.worker.end(left.attempt, "cancelled", None);
    let seen = ended(attached).await;
    assert_eq!(seen.code(), 130, "{}", seen.err());
    assert!(seen.err().contains("\"cancelled\""), "{}", seen.err());
    assert_eq!(left.desk.json("receipt.json")["status"], "cancelled");
    assert_eq!(records.all(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_to_attach_beside_a_living_client_cancels_and_a_silent_worker_ends_its_wait() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let (desk, client, worker) = (Desk::at(&served), served.client(), Scripted::new(1));
    let stop = served.connect("w1", worker.clone());
    let (child, attempt) = desk.lane(&client, &["--worktree", "direct"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    until_state(&client, attempt, |state| matches!(state, AttemptState::Running { started: true, .. })).await;
    stop.cancel();
    until_state(&client, attempt, |state| matches!(state, AttemptState::Unreachable { .. })).await;
    let seen = ended(attached_and_signalled(&desk, attempt, Signal::SIGINT).await).await;
    assert_eq!(seen.code(), 130, "{}", seen.err());
    assert!(seen.err().contains("worker w1 is"), "{}", seen.err());
    let _back = served.connect("w1", worker.clone());
    worker.until(|heard| *heard == Heard::Cancel(attempt, CancelSignal::Interrupt)).await;
    worker.end(attempt, "cancelled", None);
    let seen = ended(child).await;
    assert_eq!(seen.code(), 130, "the client waited for the true end: {}", seen.err());
}
