//! How long the second snapshot of a large repository takes, next to `git status`; and the first transfer next to `git bundle`.
//! Goals: 1.5 and 1.2 times as long. `LANEYARD_BENCH_FILES` sets the number of files (50,000).
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent::snapshot::{Cache, History, Options, take, transfer};
use agent::worktree::git::Git;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let files: usize = std::env::var("LANEYARD_BENCH_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let dir = tempfile::tempdir().unwrap();
    let user = dir.path().join("user");
    generate(&user, files);
    let cache = |name| Cache::open(&dir.path().join(name), u64::MAX, &Git::new()).unwrap();
    let (client, worker) = (cache("client"), cache("worker"));
    let first = take(&client, &user, &Options::default()).await.unwrap();

    let (mut status, mut second) = (Vec::new(), Vec::new());
    for round in 0..7 {
        for n in 0..10 {
            let path = user.join(name(n * (files / 10)));
            std::fs::write(path, format!("round {round}\n")).unwrap();
        }
        // Turns, so that neither always finds the warmer cache; `git status` may keep what it learns.
        let start = Instant::now();
        git(&user, &["status", "--porcelain"]);
        status.push(start.elapsed());
        let start = Instant::now();
        let taken = take(&client, &user, &Options::default()).await.unwrap();
        second.push(start.elapsed());
        assert_ne!(taken.snapshot.content.tree, first.snapshot.content.tree);
    }
    report("second snapshot", median(&mut second), "git status", median(&mut status), 1.5);

    let start = Instant::now();
    let lease = worker.lease(&first.snapshot.project, first.snapshot.format).unwrap();
    let parcel = transfer::Parcel::snapshot(&first.snapshot).unwrap();
    let offer = transfer::offer(&first.lease, &parcel).await.unwrap();
    let have = transfer::answer(&lease, &offer).await.unwrap();
    let packed = transfer::pack(&first.lease, &parcel, &have, History::Full).await.unwrap();
    transfer::receive(&lease, &packed.ticket, packed.reader(0).await.unwrap()).await.unwrap();
    let ours = start.elapsed();
    let theirs = bundle(&user, &dir.path().join("bundle.git"));
    report("first transfer", ours, "git bundle, unbundled", theirs, 1.2);
}

fn report(what: &str, ours: Duration, than: &str, theirs: Duration, goal: f64) {
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    eprintln!("{what}: {ours:.1?}, {than}: {theirs:.1?}, ratio {ratio:.2} (goal {goal})");
}

fn name(n: usize) -> String {
    format!("d{}/e{}/file-{n}.txt", n % 50, n % 997)
}

fn generate(user: &Path, files: usize) {
    for n in 0..files {
        let path = user.join(name(n));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{n}\n").repeat(n % 100 + 1)).unwrap();
    }
    git(user, &["init", "-q", "-b", "main"]);
    git(user, &["add", "-A"]);
    git(user, &["commit", "-q", "-m", "all"]);
    git(user, &["gc", "-q"]);
}

fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=B", "-c", "user.email=b@example.org"]);
    // Nothing of Git's own runs beside what is measured, or is in the way of `gc`.
    command.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]).args(args).current_dir(dir);
    assert!(command.stdout(Stdio::null()).status().unwrap().success(), "git {args:?}");
}

fn bundle(user: &Path, other: &Path) -> Duration {
    git(user, &["init", "-q", "--bare", other.to_str().unwrap()]);
    let start = Instant::now();
    let mut make = Command::new("git");
    let mut made =
        make.args(["bundle", "create", "-q", "-", "--all"]).current_dir(user).stdout(Stdio::piped()).spawn().unwrap();
    let file = other.join("received.bundle");
    std::io::copy(&mut made.stdout.take().unwrap(), &mut std::fs::File::create(&file).unwrap()).unwrap();
    assert!(made.wait().unwrap().success());
    git(other, &["bundle", "unbundle", file.to_str().unwrap()]);
    start.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
