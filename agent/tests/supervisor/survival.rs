//! What outlives what: descendants, agents, supervisors.

use std::fs::{self, OpenOptions};
use std::process::Command;
use std::time::Duration;

use agent::supervisor::{Exit, JournalLine, Listener, Notice, Phase, StepId, SupervisorError, Token};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::streams::wait_for_output;
use crate::world::{PATIENCE, World, drained, exited, finished, program, shell, until, with_stdin};

#[tokio::test]
async fn a_daemon_holds_the_pipes_until_the_tree_is_ended() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let daemon = "(setsid sh -c 'trap \"\" TERM HUP; echo started; while :; do sleep 1; done' &) ; exit 0";
    world.run(&supervisor, "daemon", daemon).await;
    let (mut end, mut told) = (None, None);
    until(&mut notices, |notice| {
        match notice {
            Notice::Exited { end: this, .. } => end = Some(this.exit),
            Notice::Output { streams, .. } => told = Some(streams.stdout),
            _ => {}
        }
        end.zip(told)
    })
    .await;
    assert_eq!((end, told), (Some(Exit::Code(0)), Some(8)));
    world.run(&supervisor, "next", "true").await;
    until(&mut notices, |notice| match notice {
        Notice::Drained { step, .. } => {
            assert_eq!(step.as_str(), "next", "the daemon still holds its pipes");
            Some(())
        }
        _ => None,
    })
    .await;
    let end = supervisor.kill_tree(Duration::from_millis(300)).await.unwrap();
    assert!(end.found >= 1 && end.killed >= 1 && end.left == 0, "{end:?}");
    assert_eq!(drained(&mut notices, "daemon").await.stdout, 8);
}

#[tokio::test]
async fn five_hundred_orphans_leave_no_zombie() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let line = "i=0; while [ $i -lt 500 ]; do (true & ) ; i=$((i+1)); done";
    world.run(&supervisor, "orphans", line).await;
    finished(&mut notices, "orphans").await;
    let end = supervisor.kill_tree(Duration::from_secs(10)).await.unwrap();
    assert!(end.health.orphans_reaped >= 500, "{end:?}");
    assert_eq!((end.left, end.health.zombies), (0, 0));
}

#[tokio::test]
async fn an_agent_that_dies_in_the_middle_misses_nothing() {
    let mut world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let (go, step) = (world.dir.path().join("go"), StepId::from("model"));
    let line = format!("echo before; until [ -e {} ]; do sleep 0.02; done; cat; exit 9", go.display());
    world.begin(&supervisor, with_stdin(shell("model", &line))).await;
    supervisor.write_stdin(&step, 0, b"half ").await.unwrap();
    wait_for_output(&mut notices, "model", 7).await;
    world.agent_dies(supervisor, notices);
    fs::write(go, "").unwrap();
    world.agent_returns();

    let (supervisor, mut notices) = world.call().await;
    let known = supervisor.hello().steps[0].clone();
    assert_eq!((&known.step, known.stdin_bytes, known.drained), (&step, 5, false));
    let again = supervisor.start(with_stdin(shell("model", "echo twice")), world.spools("model")).await.unwrap();
    assert!(matches!(again.phase, Phase::Running { .. }));
    supervisor.write_all_stdin(&step, b"half full").await.unwrap();
    let (end, _) = finished(&mut notices, "model").await;
    assert_eq!((end.exit, world.out("model").as_str()), (Exit::Code(9), "before\nhalf full"));

    world.agent_dies(supervisor, notices);
    world.agent_returns();
    let (supervisor, _notices) = world.call().await;
    let state = &supervisor.hello().steps[0];
    assert!(matches!(state.phase, Phase::Exited { end: same, .. } if same == end) && state.drained);
    assert_eq!((state.streams.stdout, state.stdin_bytes), (16, 9));
}

#[tokio::test]
async fn the_journal_tells_the_end_when_the_supervisor_is_gone() {
    let mut world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let path = world.dir.path().join("journal");
    let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    world.run(&supervisor, "early", "exit 2").await;
    finished(&mut notices, "early").await;
    supervisor.attach_journal(file.into()).await.unwrap();
    world.run(&supervisor, "late", "kill -9 $$").await;
    finished(&mut notices, "late").await;
    world.process.kill().unwrap();
    let lines: Vec<JournalLine> =
        fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends: Vec<Exit> = lines
        .iter()
        .filter_map(|line| match line {
            JournalLine::Exited { end, .. } => Some(end.exit),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [Exit::Code(2), Exit::Signal(9)]);
    assert!(matches!(&lines[0], JournalLine::Starting { step } if step.as_str() == "early"));
}

#[tokio::test]
async fn a_request_to_stop_reaches_the_step_before_the_supervisor_ends() {
    let mut world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    world.run(&supervisor, "polite", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done").await;
    wait_for_output(&mut notices, "polite", 3).await;
    kill(Pid::from_raw(world.process.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(exited(&mut notices, "polite").await.exit, Exit::Code(0));
    until(&mut notices, |notice| matches!(notice, Notice::Lost { .. }).then_some(())).await;
    assert_eq!(world.process.wait().unwrap().code(), Some(143));
    assert_eq!(world.out("polite"), "up\nbye\n");
}

#[tokio::test]
async fn shutdown_leaves_nothing_behind() {
    let mut world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let pid = world.begin(&supervisor, program("sleeper", &["/bin/sleep", "600"])).await;
    supervisor.shutdown().await.unwrap();
    until(&mut notices, |notice| matches!(notice, Notice::Lost { .. }).then_some(())).await;
    assert_eq!(world.process.wait().unwrap().code(), Some(0));
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
    let error = supervisor.find("sh", "/bin", "/").await.unwrap_err();
    assert!(matches!(error, SupervisorError::Lost { .. }), "{error}");
}

#[tokio::test]
async fn only_the_supervisor_with_the_right_token_and_process_is_let_in() {
    let mut world = World::direct();
    let right = world.process.id().cast_signed();
    let listener = world.listener.as_mut().unwrap();
    listener.expect_peer(right + 1);
    let error = listener.accept(Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, SupervisorError::NoCall { .. }), "{error}");
    listener.expect_peer(right);
    listener.accept(PATIENCE).await.unwrap();
    let stranger = Listener::bind(world.dir.path(), Token::generate()).unwrap();
    let error = stranger.accept(Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, SupervisorError::NoCall { .. }), "{error}");
}

#[tokio::test]
async fn a_wrong_command_is_refused_in_words() {
    let world = World::direct();
    let program = agent::supervisor::install(world.dir.path()).unwrap();
    let output = Command::new(program).args(["--socket", "/s", "--token-env", "NOT_SET"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("NOT_SET is not set"));
}
