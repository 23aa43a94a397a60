//! Steps, files, signals and deadlines.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use agent::supervisor::{Exit, Phase, PutFile, Start, StepId, binary};
use nix::libc;

use crate::world::{World, drained, exited, finished, program, shell, with_stdin};

#[tokio::test]
async fn steps_run_one_after_the_other_with_nothing_inherited() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    world.run(&supervisor, "first", "echo one; exit 3").await;
    let (end, streams) = finished(&mut notices, "first").await;
    assert_eq!((end.exit, streams.stdout, streams.stderr), (Exit::Code(3), 4, 0));
    let seen = "env | grep -v -e ^PWD= -e ^SHLVL= -e ^_=; ls /proc/self/fd | wc -l; cut -d' ' -f6 /proc/$$/stat; echo $$; kill -TERM $$";
    world.run(&supervisor, "second", seen).await;
    let (end, _) = finished(&mut notices, "second").await;
    assert_eq!(end.exit, Exit::Signal(libc::SIGTERM));
    let out = world.out("second");
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words[..2], ["PATH=/usr/bin:/bin", "4"], "only PATH, and 0, 1, 2 and the one of ls: {out}");
    assert_eq!(words[2], words[3], "leader of its own session");
}

#[tokio::test]
async fn a_step_that_cannot_start_is_a_state_with_a_reason() {
    let world = World::direct();
    let (supervisor, _notices) = world.call().await;
    let cases = [
        (program("a", &["/no/such/program"]), libc::ENOENT),
        (program("b", &["sh"]), libc::EINVAL),
        (program("c", &["/etc/passwd"]), libc::EACCES),
        (Start { cwd: "/no/where".to_owned(), ..program("d", &["/bin/true"]) }, libc::ENOENT),
        (Start { cwd: "/etc/passwd".to_owned(), ..program("e", &["/bin/true"]) }, libc::ENOTDIR),
    ];
    for (start, expected) in cases {
        let name = start.step.clone();
        let state = supervisor.start(start, world.spools(name.as_str())).await.unwrap();
        let Phase::NotStarted { errno, message } = state.phase else { panic!("{name} started") };
        assert_eq!(errno, expected, "{name}: {message}");
        assert!(state.drained);
    }
}

#[tokio::test]
async fn a_step_is_started_once_however_often_it_is_asked_for() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let line = format!("echo x >> {}", world.dir.path().join("runs").display());
    world.run(&supervisor, "model", &line).await;
    finished(&mut notices, "model").await;
    let again = supervisor.start(shell("model", &line), world.spools("model")).await.unwrap();
    assert!(matches!(again.phase, Phase::Exited { .. }) && again.drained);
    world.run(&supervisor, "later", "true").await;
    finished(&mut notices, "later").await;
    assert_eq!(fs::read_to_string(world.dir.path().join("runs")).unwrap(), "x\n");
}

#[tokio::test]
async fn stdin_is_held_open_until_it_is_closed() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let step = StepId::from("cat");
    world.begin(&supervisor, with_stdin(program("cat", &["/bin/cat"]))).await;
    let offset = supervisor.write_stdin(&step, 0, b"one ").await.unwrap();
    let offset = supervisor.write_stdin(&step, offset, b"two").await.unwrap();
    supervisor.write_stdin(&step, 0, b"one two").await.unwrap(); // a repetition changes nothing
    let gap = supervisor.write_stdin(&step, offset + 1, b"?").await.unwrap_err();
    assert_eq!(gap.errno(), Some(libc::EINVAL));
    supervisor.close_stdin(&step, offset).await.unwrap();
    let (end, _) = finished(&mut notices, "cat").await;
    assert_eq!((end.exit, world.out("cat").as_str()), (Exit::Code(0), "one two"));
}

#[tokio::test]
async fn a_child_that_exits_before_reading_ends_the_feeding() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let input = vec![b'x'; 3 << 20];
    // The second one leaves a descendant behind that holds the pipe and never reads it.
    for (name, line) in [("exits", "exec 0<&-; sleep 0.1"), ("leaves", "sleep 600 <&0 & sleep 0.1")] {
        world.begin(&supervisor, with_stdin(shell(name, line))).await;
        let error = supervisor.write_all_stdin(&StepId::from(name), &input).await.unwrap_err();
        assert!(error.stdin_closed(), "{error}");
        assert_eq!(exited(&mut notices, name).await.exit, Exit::Code(0));
    }
}

#[tokio::test]
async fn files_are_put_once_and_read_back_without_links() {
    let world = World::direct();
    let (supervisor, _notices) = world.call().await;
    let path = world.dir.path().join("made/here/config");
    let path = path.to_str().unwrap();
    let content: Vec<u8> = (0..900_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let put = PutFile { path, mode: 0o440, dir_mode: 0o700, content: &content };
    supervisor.put_file(put).await.unwrap();
    supervisor.put_file(put).await.unwrap(); // ours, so ours to replace
    assert_eq!(supervisor.get_file(path, 1 << 20).await.unwrap(), content);
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(path), mode(path.strip_suffix("/config").unwrap())), (0o440, 0o700));

    let theirs = world.dir.path().join("theirs");
    fs::write(&theirs, "x").unwrap();
    let put = PutFile { path: theirs.to_str().unwrap(), ..put };
    assert_eq!(supervisor.put_file(put).await.unwrap_err().errno(), Some(libc::EEXIST));
    let (link, dir) = (world.dir.path().join("link"), world.dir.path().join("dir"));
    std::os::unix::fs::symlink(&theirs, &link).unwrap();
    std::os::unix::fs::symlink(world.dir.path(), &dir).unwrap();
    for (path, errno) in [
        (link.as_path(), libc::ELOOP),
        (&dir.join("theirs"), libc::ELOOP),
        (world.dir.path(), libc::EINVAL),
        (&world.dir.path().join("none"), libc::ENOENT),
    ] {
        let error = supervisor.get_file(path.to_str().unwrap(), 10).await.unwrap_err();
        assert_eq!(error.errno(), Some(errno), "{}: {error}", path.display());
    }
    let error = supervisor.get_file(put.path.strip_suffix("theirs").unwrap(), 0).await.unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL));
    assert_eq!(supervisor.get_file(path, 899_999).await.unwrap_err().errno(), Some(libc::EFBIG));
}

#[tokio::test]
async fn executables_are_found_as_a_shell_would() {
    let world = World::direct();
    let (supervisor, _notices) = world.call().await;
    let bin = world.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for (name, mode) in [("tool", 0o755), ("data", 0o644)] {
        fs::write(bin.join(name), "").unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let cwd = world.dir.path().to_str().unwrap();
    let tool = bin.join("tool").to_str().unwrap().to_owned();
    let path = format!("/no/where:{}", bin.display());
    for (name, path, expected) in [
        ("tool", path.as_str(), Some(&tool)),
        ("tool", "bin", Some(&tool)),
        ("bin/tool", "", Some(&tool)),
        ("data", &path, None),
        ("bin", "", None),
        ("", &path, None),
    ] {
        let found = supervisor.find(name, path, cwd).await.unwrap();
        assert_eq!(found.as_ref(), expected, "{name} on {path:?}");
    }
}

#[tokio::test]
async fn a_signal_reaches_the_direct_child_only() {
    let world = World::direct();
    let (supervisor, mut notices) = world.call().await;
    let step = StepId::from("shell");
    world.run(&supervisor, "shell", "sleep 600 & echo $!; wait").await;
    crate::streams::wait_for_output(&mut notices, "shell", 1).await;
    supervisor.signal(&step, libc::SIGTERM).await.unwrap();
    assert_eq!(exited(&mut notices, "shell").await.exit, Exit::Signal(libc::SIGTERM));
    let sleeper: u32 = world.out("shell").trim().parse().unwrap();
    assert!(fs::exists(format!("/proc/{sleeper}")).unwrap());
    assert_eq!(supervisor.signal(&step, libc::SIGTERM).await.unwrap_err().errno(), Some(libc::ESRCH));
    let end = supervisor.kill_tree(Duration::from_secs(5)).await.unwrap();
    assert_eq!((end.found, end.killed, end.left, end.health.zombies), (1, 0, 0, 0));
    drained(&mut notices, "shell").await;
}

#[tokio::test]
async fn a_deadline_ends_a_child_that_ignores_term_without_any_agent() {
    let mut world = World::direct();
    let (supervisor, notices) = world.call().await;
    let stubborn = Start { deadline_ms: Some(300), ..shell("stubborn", "trap '' TERM INT; while :; do sleep 1; done") };
    world.begin(&supervisor, stubborn).await;
    let pid = world.process.id();
    world.agent_dies(supervisor, notices);
    world.agent_returns();
    let (supervisor, mut notices) = world.call().await;
    assert_eq!(supervisor.hello().pid, pid);
    let end = match &supervisor.hello().steps[0].phase {
        Phase::Exited { end, .. } => *end,
        _ => exited(&mut notices, "stubborn").await,
    };
    assert!(end.deadline && end.exit == Exit::Signal(libc::SIGKILL), "{end:?}");
    assert!((1300..10_000).contains(&end.elapsed_ms), "{end:?}");
}

#[test]
fn the_supervisor_is_a_static_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = agent::supervisor::install(dir.path()).unwrap();
    assert_eq!(agent::supervisor::install(dir.path()).unwrap(), path, "twice is once");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o555);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // A dynamic program names its interpreter in a PT_INTERP segment (type 3).
    let (elf, word) = (binary(), |at: usize| u16::from_le_bytes([binary()[at], binary()[at + 1]]));
    let table = usize::try_from(u64::from_le_bytes(elf[32..40].try_into().unwrap())).unwrap();
    let types: Vec<u8> = (0..usize::from(word(56))).map(|n| elf[table + n * usize::from(word(54))]).collect();
    assert!(types.contains(&1) && !types.contains(&3), "{types:?}");
}
