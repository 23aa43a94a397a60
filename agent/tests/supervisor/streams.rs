//! Output: odd bytes, long lines, floods, limits, full disks.

use std::fs::{self, OpenOptions};

use agent::supervisor::{Exit, Notice, Notices, Spools, Start};
use nix::libc;

use crate::world::{World, finished, program, resident, shell, until};

/// Until a step's stdout has grown to this.
pub(crate) async fn wait_for_output(notices: &mut Notices, name: &str, bytes: u64) {
    until(notices, |notice| match notice {
        Notice::Output { step, streams } if step.as_str() == name && streams.stdout >= bytes => Some(()),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_not_text_and_a_long_line_arrive_unchanged() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    world.run(&supervisor, "odd", "printf '\\377\\376\\000\\n'; head -c 67108864 /dev/zero; printf '\\200' >&2").await;
    let (end, streams) = finished(&mut notices, "odd").await;
    assert_eq!((end.exit, streams.stdout, streams.stderr, streams.dropped), (Exit::Code(0), 67_108_868, 1, 0));
    let out = fs::read(world.spool("odd", "out")).unwrap();
    assert!(out.starts_with(b"\xff\xfe\0\n\0") && out.len() == 67_108_868);
    assert_eq!(fs::read(world.spool("odd", "err")).unwrap(), b"\x80");
}

#[tokio::test]
async fn a_flood_of_a_gigabyte_leaves_memory_flat_and_control_alive() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let (theirs, ours) = (resident(world.process.id()), resident(std::process::id()));
    let total = 1_u64 << 30;
    world.begin(&supervisor, program("flood", &["/usr/bin/head", "-c", &total.to_string(), "/dev/zero"])).await;
    wait_for_output(&mut notices, "flood", 1).await;
    let mut asked = 0;
    let found = loop {
        let sleeping = supervisor.find("sh", "/bin", "/").await.unwrap();
        asked += 1;
        let grown = fs::metadata(world.spool("flood", "out")).unwrap().len();
        if grown >= total / 2 || asked > 1_000_000 {
            break sleeping;
        }
    };
    assert!(found.is_some() && asked > 10, "asked {asked} times in half the flood");
    let (_, streams) = finished(&mut notices, "flood").await;
    assert_eq!(streams.stdout, total);
    assert_eq!(fs::metadata(world.spool("flood", "out")).unwrap().len(), total);
    let (theirs, ours) = (resident(world.process.id()) - theirs, resident(std::process::id()).saturating_sub(ours));
    assert!(theirs < 2048 && ours < 8192, "grew by {theirs} KiB and {ours} KiB");
}

#[tokio::test]
async fn beyond_its_limit_output_is_counted_and_dropped() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let start = shell("much", "head -c 3000000 /dev/zero; echo oops >&2; exit 5");
    world.begin(&supervisor, Start { output_limit: 1_000_000, ..start }).await;
    let limit = |notice: &Notice| matches!(notice, Notice::OutputLimit { .. }).then_some(());
    until(&mut notices, limit).await;
    let (end, streams) = finished(&mut notices, "much").await;
    assert_eq!(end.exit, Exit::Code(5));
    assert_eq!((streams.stdout, streams.stderr, streams.dropped), (1_000_000, 0, 2_000_005));
    assert_eq!(fs::metadata(world.spool("much", "out")).unwrap().len(), 1_000_000);
}

#[tokio::test]
async fn a_spool_that_cannot_be_written_is_told_and_the_child_goes_on() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let full = || OpenOptions::new().append(true).open("/dev/full").unwrap().into();
    let spools = Spools { stdout: full(), stderr: full() };
    supervisor.start(shell("full", "head -c 1000000 /dev/zero; exit 7"), spools).await.unwrap();
    let errno = until(&mut notices, |notice| match notice {
        Notice::SpoolFailed { errno, .. } => Some(*errno),
        _ => None,
    })
    .await;
    assert_eq!(errno, libc::ENOSPC);
    let (end, streams) = finished(&mut notices, "full").await;
    assert_eq!((end.exit, streams.stdout, streams.dropped), (Exit::Code(7), 0, 1_000_000));
}

#[tokio::test]
async fn closing_stdout_early_is_no_end() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let go = world.dir.path().join("go");
    let line =
        format!("echo early; exec >&-; until [ -e {} ]; do sleep 0.05; done; echo late >&2; exit 4", go.display());
    world.run(&supervisor, "early", &line).await;
    wait_for_output(&mut notices, "early", 6).await;
    fs::write(go, "").unwrap();
    let (end, streams) = finished(&mut notices, "early").await;
    assert_eq!((end.exit, streams.stdout, streams.stderr), (Exit::Code(4), 6, 5));
}

#[tokio::test]
async fn output_is_told_before_the_exit() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    for round in 0..50 {
        let name = format!("short{round}");
        world.run(&supervisor, &name, "echo hello").await;
        let (_, streams) = finished(&mut notices, &name).await;
        assert_eq!((streams.stdout, world.out(&name).as_str()), (6, "hello\n"));
    }
    world.run(&supervisor, "last", "echo a; sleep 600 & exit 1").await;
    let mut told = 0;
    until(&mut notices, |notice| match notice {
        Notice::Output { streams, .. } => {
            told = streams.stdout;
            None
        }
        Notice::Exited { .. } => Some(()),
        _ => None,
    })
    .await;
    if told < 2 {
        wait_for_output(&mut notices, "last", 2).await; // the exit overtook the bytes, which still come
    }
    assert_eq!(world.out("last"), "a\n");
}
