//! A writer's part by hand: fetch the snapshot, write into it, bring the result to the controller.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::ids::{AttemptId, Generation};
use agent::shuttle::{Route, Shuttle};
use agent::snapshot::result::collect;
use agent::snapshot::transfer::Parcel;
use agent::snapshot::{Cache, History, Place, Snapshot, materialize};
use agent::transport::Call;
use agent::wire::snapshot::{KeepResult, ResultView};
use agent::worktree::git::Git;
use serde_json::{Value, json};

use crate::support::{Served, soon};

/// What a worker does between the start and the end of a writer; `write` is the model. Gives the receipt's `result`.
pub(crate) async fn wrote(served: &Served, worker: &str, attempt: AttemptId, write: impl FnOnce(&Path)) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&dir.path().join("cache"), 1 << 30, &Git::new()).unwrap();
    let shuttle = |part: &str| Shuttle {
        transport: served.transport(),
        route: Route::of_worker(&worker.parse().unwrap(), part, attempt, Generation(1)),
        patience: Duration::from_secs(15),
    };
    let silent: agent::shuttle::Tell = Arc::new(|_| {});
    let down = shuttle("snapshot");
    let offer = soon(down.offered()).await.unwrap();
    let lease = cache.lease(&offer.project, offer.format).unwrap();
    soon(down.bring(&lease, &offer, None, &silent)).await.unwrap();
    let snapshot = Snapshot::load(&lease, &offer.want[0]).await.unwrap();
    let place = Place { work_tree: dir.path().join("tree"), private: dir.path().join("private"), owner: None };
    let worktree = materialize(&lease, &snapshot, &place).await.unwrap();
    write(&worktree.root);
    let result = collect(&lease, &worktree, &snapshot).await.unwrap();
    let up = shuttle("result");
    soon(up.send(&lease, &Parcel::result(&snapshot, &result), History::Full, &silent)).await.unwrap();
    let keep = KeepResult { result: result.id.clone() };
    soon(up.insist::<ResultView>(|| Call::post(&up.route.at("keep", ""), &keep))).await.unwrap();
    let ignored = &result.ignored;
    json!({"tree": result.id, "keptBy": "controller", "ignored": ignored.paths, "ignoredInAll": ignored.in_all})
}
