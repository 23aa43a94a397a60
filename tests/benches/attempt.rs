//! What a lane costs over the bare engine calls, and what a flood of output costs in memory. Prints ratios; never fails.
//!
//! `cargo bench -p tests --bench attempt [-- ROUNDS]`, with `laneyard` built in the same profile
//! (`cargo build --release -p controller`) and the images of `tests/images/build`.
//!
//! Bare: create, start, wait for and remove a container of the same image with the same limits and mounts, whose first
//! process is the no-op provider itself, through the very client that laneyard uses. Lane: the whole process `laneyard run`
//! with that provider, from its start to its exit. The two are run in turn.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and says by a panic that it cannot run"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent::assignment::Limits;
use agent::container::identity::{Identity, Owner, UserMapping};
use agent::container::spec::{Labels, SystemPaths};
use agent::container::{ContainerSpec, Engine, Mount};
use agent::ids::{AttemptId, Generation};
use tests::world::{Cli, World};

const IMAGE: &str = "laneyard-test/fake-claude:current";

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(20);
    let world = World::on(tests::world::Engine::Docker);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    overhead(&world, &runtime, rounds);
    flood(&world);
}

fn overhead(world: &World, runtime: &tokio::runtime::Runtime, rounds: usize) {
    let engine = runtime.block_on(Engine::open(Path::new("/var/run/docker.sock"))).expect("Docker answers");
    let image = runtime.block_on(engine.image(IMAGE)).expect("Docker answers").expect("tests/images/build was run");
    let (mut parts, mut lane) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        parts.push(runtime.block_on(bare_run(&engine, &image.id, &world.path("work"))));
        let began = Instant::now();
        let ended = world.lane(Cli::Claude).prompt("go").flag("--image", IMAGE).run();
        lane.push(began.elapsed());
        ended.assert("complete", 0);
    }
    let (bare, lane) = (median(parts.iter().map(|parts| parts.iter().sum()).collect()), median(lane));
    let [create, start, wait, remove] =
        [0, 1, 2, 3].map(|part| median(parts.iter().map(|parts| parts[part]).collect()));
    println!("bare engine calls  median {:7.1} ms of {rounds}", millis(bare));
    println!(
        "  of which create {:.1}, start {:.1}, wait {:.1}, remove {:.1}",
        millis(create),
        millis(start),
        millis(wait),
        millis(remove)
    );
    println!("laneyard run       median {:7.1} ms of {rounds}", millis(lane));
    println!("overhead           {:.3}x (goal 1.15x)", lane.as_secs_f64() / bare.as_secs_f64());
}

/// Create, start, wait, remove.
async fn bare_run(engine: &Engine, image: &str, work: &Path) -> [Duration; 4] {
    let spec = ContainerSpec {
        labels: Labels {
            owner: "bench".parse().expect("an id"),
            worker: "bench".parse().expect("an id"),
            attempt: AttemptId::generate(),
            generation: Generation(1),
        },
        image: image.to_owned(),
        entrypoint: vec!["/usr/local/bin/claude".to_owned()],
        args: vec!["-p".to_owned(), "--model".to_owned(), "sonnet".to_owned()],
        env: BTreeMap::from([("FAKE_PROVIDER".to_owned(), "ignores-stdin".to_owned())]),
        workdir: PathBuf::from("/"),
        identity: Identity { uid: 1000, gid: 1000, host: Owner { uid: 1000, gid: 1000 }, mapping: UserMapping::Direct },
        mounts: vec![Mount::same(work, agent::container::Access::ReadOnly)],
        limits: Limits::default(),
        system_paths: SystemPaths::default(),
        private_dir: work.to_owned(),
    };
    let began = Instant::now();
    let id = engine.create(&spec).await.expect("created");
    let created = began.elapsed();
    engine.start(&id).await.expect("started");
    let started = began.elapsed();
    engine.wait(&id).await.expect("ended");
    let ended = began.elapsed();
    engine.remove(&id).await.expect("removed");
    [created, started - created, ended - started, began.elapsed() - ended]
}

/// Highest resident memory of `laneyard run` without output, and with 1 GB of it.
fn flood(world: &World) {
    let peak = |script: &str| {
        let running = world.lane(Cli::Claude).prompt(script).flag("--image", IMAGE).start();
        let status = format!("/proc/{}/status", running.pid());
        let mut peak = 0;
        // The kernel's own high-water mark: whoever looks last sees the highest.
        while let Ok(text) = std::fs::read_to_string(&status) {
            let mark =
                text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok());
            let Some(mark) = mark else { break };
            peak = peak.max(mark);
            std::thread::sleep(Duration::from_millis(5));
        }
        (peak, running.wait())
    };
    let (idle, _) = peak("go");
    let (flooded, ended) = peak("fake-provider: floods 1000000000");
    println!("memory idle        {:7.1} MB", idle as f64 / 1024.0);
    println!("memory, 1 GB out   {:7.1} MB ({})", flooded as f64 / 1024.0, ended.status());
    println!("above idle         {:7.1} MB (goal under 32 MB)", (flooded as f64 - idle as f64) / 1024.0);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
