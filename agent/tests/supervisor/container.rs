//! The supervisor as first process: empty image, read-only root, no network, no capability, an ordinary user.

use std::time::Duration;

use agent::supervisor::{Exit, Notice, Phase, PutFile, StepId};
use nix::libc;

use crate::streams::wait_for_output;
use crate::world::{World, exited, finished, shell, until, with_stdin};

#[tokio::test]
async fn the_first_process_of_an_empty_image_runs_steps_and_proves_that_nothing_is_left() {
    let mut world = World::contained();
    let (supervisor, mut notices) = world.call().await;
    let hello = supervisor.hello().clone();
    assert_eq!((hello.pid, hello.warnings.len(), hello.proxy.as_deref()), (1, 0, Some("127.0.0.1:3128")));
    let content = b"secret setting";
    let put = PutFile { path: "/home/lane/.config/tool/config", mode: 0o600, dir_mode: 0o700, content };
    supervisor.put_file(put).await.unwrap();
    let refused = PutFile { path: "/etc/evil", ..put };
    assert_eq!(supervisor.put_file(refused).await.unwrap_err().errno(), Some(libc::EROFS));
    world.begin(&supervisor, with_stdin(shell("first", "id -u; cat; cat /home/lane/.config/tool/config"))).await;
    supervisor.write_all_stdin(&StepId::from("first"), b"prompt ").await.unwrap();
    assert_eq!(finished(&mut notices, "first").await.0.exit, Exit::Code(0));
    assert_eq!(world.out("first"), "1000\nprompt secret setting");

    let forks = "i=0; while [ $i -lt 500 ]; do (true & ) ; i=$((i+1)); done";
    world.run(&supervisor, "orphans", forks).await;
    finished(&mut notices, "orphans").await;
    let daemon = "(setsid sh -c 'trap \"\" TERM; echo up; while :; do sleep 1; done' &)";
    world.run(&supervisor, "daemon", daemon).await;
    wait_for_output(&mut notices, "daemon", 3).await;
    let end = supervisor.kill_tree(Duration::from_millis(300)).await.unwrap();
    assert!(end.found >= 1 && end.killed >= 1 && end.health.orphans_reaped >= 500, "{end:?}");
    assert_eq!((end.left, end.health.zombies), (0, 0));

    let pid: i32 = world.inspect("{{.State.Pid}}").parse().unwrap();
    world.agent_dies(supervisor, notices);
    world.agent_returns();
    world.listener.as_mut().unwrap().expect_peer(pid);
    let (supervisor, _notices) = world.call().await;
    assert_eq!(supervisor.hello().steps.len(), 3);
    supervisor.shutdown().await.unwrap();
    assert_eq!(world.process.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_provider_cannot_look_into_its_supervisor_nor_end_it() {
    let world = World::contained();
    let (supervisor, mut notices) = world.call().await;
    let attack = "
        for secret in environ mem maps auxv; do cat /proc/1/$secret > /dev/null 2>&1 && echo read $secret; done
        ls /proc/1/fd > /dev/null 2>&1 && echo listed fd
        ls /proc/1/root/ > /dev/null 2>&1 && echo followed root
        for signal in TERM INT HUP QUIT KILL STOP; do kill -$signal 1; done
        env | grep -i token
        ls /proc/self/fd | wc -l";
    world.run(&supervisor, "attack", attack).await;
    finished(&mut notices, "attack").await;
    assert_eq!(world.out("attack"), "4\n", "0, 1, 2 and the directory itself");
    let state = supervisor.start(shell("after", "true"), world.spools("after")).await.unwrap();
    assert!(matches!(state.phase, Phase::Running { .. }), "{state:?}");
    assert_eq!(exited(&mut notices, "after").await.exit, Exit::Code(0));
}

#[tokio::test]
async fn the_only_way_out_is_the_egress_socket() {
    let world = World::contained();
    crate::bridge::echo(world.dir.path());
    let (supervisor, mut notices) = world.call().await;
    let client = "exec perl -MIO::Socket::INET -e '
        my $s = IO::Socket::INET->new(q(127.0.0.1:3128)) or die $!;
        print $s q(hello); shutdown($s, 1); local $/; print <$s>;'";
    world.run(&supervisor, "client", client).await;
    assert_eq!(finished(&mut notices, "client").await.0.exit, Exit::Code(0));
    assert_eq!(world.out("client"), "hello and farewell");
    world.run(&supervisor, "links", "cd /sys/class/net; echo *; echo x > /run/laneyard/agent.sock || echo shut").await;
    finished(&mut notices, "links").await;
    assert_eq!(world.out("links"), "lo\nshut\n");
}

#[tokio::test]
async fn a_process_limit_stops_the_provider_and_not_its_supervisor() {
    let world = World::contained();
    let (supervisor, mut notices) = world.call().await;
    world.run(&supervisor, "bomb", "while sleep 600 & do :; done; wait").await;
    let blocked = shell("blocked", "true");
    wait_until_full(&world).await;
    let state = supervisor.start(blocked, world.spools("blocked")).await.unwrap();
    assert!(matches!(state.phase, Phase::NotStarted { errno: libc::EAGAIN, .. }), "{state:?}");
    let end = supervisor.kill_tree(Duration::from_secs(20)).await.unwrap();
    assert!(end.found > 200 && end.left == 0, "{end:?}");
    world.run(&supervisor, "again", "echo fine").await;
    finished(&mut notices, "again").await;
    assert_eq!(world.out("again"), "fine\n");
}

/// Until the limit of the container is reached.
async fn wait_until_full(world: &World) {
    let pid = world.inspect("{{.State.Pid}}");
    for _ in 0..600 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let err = std::fs::read_to_string(world.spool("bomb", "err")).unwrap();
        if err.contains("fork") && !status.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the limit was never reached");
}

#[tokio::test]
async fn a_memory_limit_ends_the_provider_and_not_its_supervisor() {
    let world = World::contained();
    let (supervisor, mut notices) = world.call().await;
    world.run(&supervisor, "first", "until [ $(cat /proc/self/oom_score_adj) = 500 ]; do :; done").await;
    finished(&mut notices, "first").await;
    world.run(&supervisor, "glutton", "exec perl -e 'push @a, q(x) x 1048576 while 1'").await;
    assert_eq!(exited(&mut notices, "glutton").await.exit, Exit::Signal(libc::SIGKILL));
    // A file counts as memory too, while it is written; it must neither stop nor kill anything.
    let total = 400_u64 << 20;
    world.run(&supervisor, "flood", &format!("head -c {total} /dev/zero")).await;
    let (end, streams) = finished(&mut notices, "flood").await;
    assert_eq!((end.exit, streams.stdout, streams.dropped), (Exit::Code(0), total, 0));
    let pid = world.inspect("{{.State.Pid}}").parse().unwrap();
    assert!(crate::world::resident(pid) < 8 << 10, "{} KiB", crate::world::resident(pid));
}

#[tokio::test]
async fn stopping_the_container_asks_the_step_first() {
    let mut world = World::contained();
    let (supervisor, mut notices) = world.call().await;
    world.run(&supervisor, "polite", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done").await;
    wait_for_output(&mut notices, "polite", 3).await;
    assert_eq!(world.stop(), Some(143));
    assert_eq!(exited(&mut notices, "polite").await.exit, Exit::Code(0));
    until(&mut notices, |notice| matches!(notice, Notice::Lost { .. }).then_some(())).await;
    assert_eq!(world.out("polite"), "up\nbye\n");
}
