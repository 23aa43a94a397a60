//! A writer's result that its worker could not bring when the attempt ended.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::attempt::directory::{Accepted, StateDir};
use agent::attempt::{Deps, EngineSource, Supply};
use agent::container::discover::Surroundings;
use agent::container::image::PullPolicy;
use agent::ids::{AttemptId, Generation};
use agent::shuttle::{Route, Shuttle};
use agent::snapshot::{Cache, Place, Snapshot, materialize};
use agent::wire::snapshot::SnapshotRef;
use agent::wire::worker::WorkerFacts;
use agent::worker::Worker;
use agent::worktree::git::Git;
use controller::depot::Limits;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::desk::{Desk, Seen, ended};
use crate::results::committed;
use crate::scripted::Scripted;
use crate::support::{Served, assignment, soon};

/// A lane that delivered, and whose changes are on its worker only.
struct Lane {
    dir: tempfile::TempDir,
    served: Served,
    desk: Desk,
    attempt: AttemptId,
    seen: Seen,
    /// It stays connected as long as this is not cancelled.
    connected: CancellationToken,
}

/// What an ended attempt leaves in a worker's state directory when its result is not taken: a worktree in which `write` was the
/// model. Gives the receipt's `result`.
async fn left(served: &Served, state: &Path, attempt: AttemptId, write: impl FnOnce(&Path)) -> Value {
    let (worker, generation) = ("w1".parse().unwrap(), Generation(1));
    let cache = Cache::open(&state.join("cache"), 1 << 30, &Git::new()).unwrap();
    let route = Route::of_worker(&worker, "snapshot", attempt, generation);
    let shuttle = Shuttle { transport: served.transport(), route, patience: Duration::from_secs(15) };
    let offer = soon(shuttle.offered()).await.unwrap();
    let lease = cache.lease(&offer.project, offer.format).unwrap();
    soon(shuttle.bring(&lease, &offer, None, &(Arc::new(|_| {}) as _))).await.unwrap();
    lease.pin(&attempt.to_string()).unwrap();
    let snapshot = Snapshot::load(&lease, &offer.want[0]).await.unwrap();
    let reference = SnapshotRef {
        project: snapshot.project.clone(),
        format: snapshot.format,
        id: offer.want[0].clone(),
        root: "/repo".to_owned(),
    };
    let mut assignment = assignment();
    (assignment.attempt, assignment.snapshot) = (attempt, Some(reference));
    let dirs = StateDir::open(state).unwrap();
    let dir = dirs.accept(&Accepted { generation, assignment }).unwrap();
    let (work_tree, private) = (dir.file("worktree"), dir.file("worktree.private"));
    let worktree = materialize(&lease, &snapshot, &Place { work_tree, private, owner: None }).await.unwrap();
    write(&worktree.root);
    let note = json!({"project": lease.project(), "fetched": 0}).to_string();
    for (name, text) in
        [("worktree.json", &*note), ("worktree.kept", "worker"), ("released", ""), ("journal.jsonl", "")]
    {
        std::fs::write(dir.file(name), text).unwrap();
    }
    let place = json!({"worker": worker, "path": worktree.root});
    json!({"tree": null, "keptBy": "worker", "reason": "no progress for 60 s: the line was cut", "worktree": place})
}

async fn lane(limits: Limits, write: impl FnOnce(&Path)) -> Lane {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start_as(&dir.path().join("serve"), "127.0.0.1:0", |config| config.snapshots = limits);
    let desk = Desk::at(&served);
    let repo = desk.path("repo");
    std::fs::write(repo.join("file"), "first\n").unwrap();
    committed(&repo);
    let worker = Scripted::new(1);
    let connected = served.connect("w1", worker.clone());
    let (child, attempt) = desk.lane_that("isolated-write", &served.client(), &["--verbose"]).await;
    worker.until_offered(attempt).await;
    worker.start(attempt);
    let result = left(&served, &dir.path().join("worker"), attempt, write).await;
    worker.end_with(attempt, result);
    let seen = ended(child).await;
    Lane { dir, served, desk, attempt, seen, connected }
}

impl Lane {
    /// The worker's own process, once it reaches the controller again.
    fn worker(&self) -> Arc<Worker> {
        let state = self.dir.path().join("worker");
        let cache = Cache::open(&state.join("cache"), 1 << 30, &Git::new()).unwrap();
        let deps = Deps {
            state: StateDir::open(&state).unwrap(),
            worker: "w1".parse().unwrap(),
            engine: EngineSource::new(Some("/nowhere.sock".parse().unwrap()), Surroundings::from_env()),
            images: BTreeMap::new(),
            pull: PullPolicy::Never,
            instances: BTreeMap::new(),
            supply: Some(Supply { transport: self.served.transport(), cache }),
        };
        Worker::new(deps, WorkerFacts::default())
    }

    async fn result(&self, verb: &str, words: &[&str]) -> Seen {
        self.desk.run(&[&["result", verb, &self.attempt.to_string()], words].concat()).await
    }

    async fn until_shown(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let shown = async {
            loop {
                let shown = self.result("show", &["--json"]).await;
                assert_eq!(shown.code(), 0, "{}", shown.err());
                if let Some(value) = shown.lines().into_iter().find(&wanted) {
                    return value;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        soon(shown).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_stayed_on_its_worker_is_shown_there_and_comes_later() {
    let lane = lane(Limits::default(), |dir| std::fs::write(dir.join("file"), "by the lane\n").unwrap()).await;
    assert_eq!(lane.seen.code(), 70, "{}", lane.seen.err());
    assert!(lane.seen.err().contains("still on the worker, which offers them again"), "{}", lane.seen.err());
    let place = lane.dir.path().join(format!("worker/attempts/{}/worktree", lane.attempt)).display().to_string();
    let shown = lane.result("show", &[]).await;
    assert_eq!(shown.code(), 0, "{}", shown.err());
    for part in ["still on worker w1", &*place, "did not get through", "the line was cut", "offers it again by itself"]
    {
        assert!(shown.err().contains(part), "`{part}` is not in: {}", shown.err());
    }
    let value = lane.until_shown(|_| true).await;
    assert_eq!((&value["keptBy"], &value["path"]), (&json!("worker"), &json!(place)), "{value}");
    let applied = lane.result("apply", &[]).await;
    assert!(applied.code() == 70 && applied.err().contains("still on worker w1"), "{}", applied.err());
    lane.connected.cancel();
    let shown = lane.until_shown(|value| value["connected"] == false).await;
    assert_eq!(shown["keptBy"], "worker");

    let (worker, stop) = (lane.worker(), CancellationToken::new());
    let delivering = tokio::spawn({
        let (worker, stop) = (worker.clone(), stop.clone());
        async move { worker.deliver_late_until(stop).await }
    });
    let value = lane.until_shown(|value| value["keptBy"] == "controller").await;
    assert_eq!(value["changes"], json!([{"path": "file", "change": "changed"}]), "{value}");
    stop.cancel();
    soon(delivering).await.unwrap();
    let kept = agent::attempt::kept::list(worker.state()).unwrap();
    assert!(kept.len() == 1 && kept[0].result_kept, "the worktree stays until somebody has looked: {kept:?}");
    let applied = lane.result("apply", &[]).await;
    assert_eq!(applied.code(), 0, "{}", applied.err());
    assert_eq!(std::fs::read(lane.desk.path("repo/file")).unwrap(), b"by the lane\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_the_controller_refuses_stays_and_the_reason_is_shown() {
    let limits = Limits { pack: 64 << 10, ..Limits::default() };
    let noise: Vec<u8> =
        (0_u64..50_000).flat_map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7).to_le_bytes()).collect();
    let lane = lane(limits, |dir| std::fs::write(dir.join("large"), noise).unwrap()).await;
    let (worker, stop) = (lane.worker(), CancellationToken::new());
    let working = tokio::spawn({
        let (worker, stop) = (worker.clone(), stop.clone());
        async move { tokio::join!(worker.deliver_late_until(stop.clone()), worker.let_go_until(stop)) }
    });
    let value = lane.until_shown(|value| value["refused"] == true).await;
    assert!(value["reason"].as_str().unwrap().contains("larger than the 65536"), "{value}");
    let shown = lane.result("show", &[]).await;
    assert!(shown.err().contains("the controller did not take it: "), "{}", shown.err());
    let released = lane.result("release", &[]).await;
    assert_eq!(released.code(), 0, "{}", released.err());
    let gone = async {
        while !agent::attempt::kept::list(worker.state()).unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(gone).await;
    let shown = lane.result("show", &[]).await;
    assert!(shown.code() == 70 && shown.err().contains("left no result"), "{}", shown.err());
    stop.cancel();
    soon(working).await.unwrap();
}
