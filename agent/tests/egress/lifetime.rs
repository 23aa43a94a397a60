//! Which ends the proxy survives, and which it does not.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use agent::egress::{self, EgressHandle, Stopped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt as _;

use crate::world::{LIMIT, World, expect_text, listener, spec_in, trusted, until};

/// Set for the copy of this test program that plays the agent: directory and port.
const AGENT_DIR: &str = "EGRESS_TEST_AGENT_DIR";
const AGENT_PORT: &str = "EGRESS_TEST_AGENT_PORT";

/// Not a test of its own: the agent that [`killing_the_agent_cuts_no_connection`] kills.
#[tokio::test]
async fn agent_that_starts_a_proxy_and_waits_to_be_killed() {
    let Ok(dir) = std::env::var(AGENT_DIR) else { return };
    let mut spec = spec_in(dir.as_ref());
    spec.allow = vec![trusted(std::env::var(AGENT_PORT).unwrap().parse().unwrap())];
    egress::ensure(&spec).await.unwrap();
    std::future::pending().await
}

#[tokio::test]
async fn killing_the_agent_cuts_no_connection() {
    let (server, port) = listener().await;
    let dir = tempfile::tempdir().unwrap();
    let run_dir = spec_in(dir.path()).run_dir;
    let mut agent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifetime::agent_that_starts_a_proxy_and_waits_to_be_killed"])
        .env(AGENT_DIR, dir.path())
        .env(AGENT_PORT, port.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the agent's proxy serves", || egress::find(&run_dir).is_some()).await;
    let world = World { handle: egress::find(&run_dir).unwrap(), dir };
    let mut client = world.tunnel(&format!("127.0.0.1:{port}")).await;
    let (mut inside, _) = server.accept().await.unwrap();
    client.write_all(b"before").await.unwrap();
    expect_text(&mut inside, "before").await;

    // The whole group, as a terminal's hang-up or a killed job would.
    agent.kill().unwrap();
    agent.wait().unwrap();
    client.write_all(b"after").await.unwrap();
    expect_text(&mut inside, "after").await;
    inside.write_all(b"answer").await.unwrap();
    expect_text(&mut client, "answer").await;
    world.tunnel(&format!("127.0.0.1:{port}")).await; // new ones too

    let adopted = egress::find(&run_dir).expect("the next agent finds it");
    assert_eq!(adopted.pid(), world.handle.pid());
    assert_eq!(adopted.stop(LIMIT).await.unwrap(), Stopped::AfterTerm);
    assert!(egress::find(&run_dir).is_none());
    assert!(!adopted.socket().exists());
}

#[tokio::test]
async fn the_proxy_has_a_session_of_its_own_an_empty_environment_and_no_terminal() {
    let world = World::start(|_| {}).await;
    let pid = world.handle.pid();
    let session = nix::unistd::getsid(Some(Pid::from_raw(pid))).unwrap();
    assert_eq!(session.as_raw(), pid);
    assert_eq!(std::fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
    for fd in 0..3 {
        let target = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
        assert_eq!(target.to_str(), Some("/dev/null"), "descriptor {fd}");
    }
    let mode = std::fs::metadata(world.handle.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
}

#[tokio::test]
async fn an_attempt_gets_one_proxy_however_often_it_is_ensured() {
    let world = World::start(|_| {}).await;
    let spec = spec_in(world.dir.path());
    assert_eq!(egress::ensure(&spec).await.unwrap().pid(), world.handle.pid());
    let error = egress::spawn(&spec).await.unwrap_err().to_string();
    assert!(error.contains("another proxy serves"), "{error}");
    assert!(world.handle.is_alive());
}

#[tokio::test]
async fn a_killed_proxy_is_replaced_by_the_next_ensure() {
    let world = World::start(|_| {}).await;
    kill(Pid::from_raw(world.handle.pid()), Signal::SIGKILL).unwrap();
    until("the proxy is gone", || !world.handle.is_alive()).await;
    assert!(egress::find(&spec_in(world.dir.path()).run_dir).is_none());
    let next = egress::ensure(&spec_in(world.dir.path())).await.unwrap();
    assert_ne!(next.pid(), world.handle.pid());
    assert_eq!(world.handle.stop(LIMIT).await.unwrap(), Stopped::ByItself);
    assert!(next.socket().exists(), "the old handle leaves the new proxy's files alone");
    assert_eq!(next.stop(LIMIT).await.unwrap(), Stopped::AfterTerm);
}

/// A process that the kernel can tell from `pid` by its start: not of the same clock tick.
fn born_later_than(pid: i32) -> std::process::Child {
    let started = |pid: i64| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().to_owned()
    };
    loop {
        let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
        if started(stranger.id().into()) != started(pid.into()) {
            return stranger;
        }
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

#[tokio::test]
async fn another_process_with_the_same_number_is_never_ended() {
    let world = World::start(|_| {}).await;
    let mut stranger = born_later_than(world.handle.pid());
    let run_dir = spec_in(world.dir.path()).run_dir;
    let path = run_dir.join("egress.pid");
    let text = std::fs::read_to_string(&path).unwrap();
    // What a reader finds when the proxy has died and its number went to the stranger.
    std::fs::write(&path, text.replace(&world.handle.pid().to_string(), &stranger.id().to_string())).unwrap();
    assert!(egress::find(&run_dir).is_none());
    let _ = world.handle.stop(LIMIT).await.unwrap();
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger was ended");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

async fn ends_by_itself(handle: &EgressHandle) {
    until("the proxy ends by itself", || !handle.is_alive()).await;
}

#[tokio::test]
async fn the_proxy_ends_when_its_directory_is_gone() {
    let world = World::start(|_| {}).await;
    std::fs::remove_dir_all(spec_in(world.dir.path()).run_dir).unwrap();
    ends_by_itself(&world.handle).await;
}

#[tokio::test]
async fn the_proxy_ends_when_the_receipt_is_there() {
    let world = World::start(|spec| spec.over_when = Some(spec.run_dir.with_file_name("receipt.json"))).await;
    let receipt = world.dir.path().join("receipt.json");
    std::fs::write(&receipt, "").unwrap(); // a reservation is no end
    std::fs::write(&receipt, "{}").unwrap();
    ends_by_itself(&world.handle).await;
    assert!(!world.handle.socket().exists());
}

#[tokio::test]
async fn the_proxy_ends_when_nobody_has_used_it_for_its_limit() {
    let (server, port) = listener().await;
    let world = World::start(|spec| {
        spec.allow = vec![trusted(port)];
        spec.idle_limit = std::time::Duration::from_millis(100);
    })
    .await;
    let mut client = world.tunnel(&format!("127.0.0.1:{port}")).await;
    let (mut inside, _) = server.accept().await.unwrap();
    // Longer than the limit and than two looks of the proxy at itself: an open tunnel is use.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    client.write_all(b"still here").await.unwrap();
    expect_text(&mut inside, "still here").await;
    drop((client, inside));
    ends_by_itself(&world.handle).await;
}

#[tokio::test]
async fn ending_the_proxy_closes_the_log_of_open_connections() {
    let (server, port) = listener().await;
    let world = World::start(|spec| spec.allow = vec![trusted(port)]).await;
    let mut client = world.tunnel(&format!("127.0.0.1:{port}")).await;
    let (mut inside, _) = server.accept().await.unwrap();
    client.write_all(b"12345").await.unwrap();
    expect_text(&mut inside, "12345").await;
    let log = world.log().await;
    assert_eq!((&log[1]["event"], &log[1]["reason"]), (&"close".into(), &"proxy-ended".into()));
    assert_eq!(log[1]["bytesUp"], 5);
}
