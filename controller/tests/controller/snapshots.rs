//! Snapshots through the controller: only what is lacking travels, an upload goes on where it was cut off, and nobody can
//! name what another one sent.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::ids::AttemptId;
use agent::shuttle::{Far, Route, Shuttle, ShuttleError, Tell};
use agent::snapshot::transfer::{self, Have, Parcel};
use agent::snapshot::{Cache, History, Options, Taken, take};
use agent::transport::{Call, Transport, whole};
use agent::wire::attempt::Submit;
use agent::wire::snapshot::{Announce, Arrived, SnapshotRef};
use agent::worktree::git::Git;
use controller::depot::{Depot, DepotError, Limits};
use http::{Method, StatusCode};

use crate::desk::Desk;
use crate::room::LANE;
use crate::scripted::Scripted;
use crate::support::{Served, assignment, quick, soon};

/// A client with a directory of a file that no compression makes small.
pub(crate) struct Client {
    pub(crate) cache: Cache,
    pub(crate) dir: std::path::PathBuf,
}

impl Client {
    pub(crate) fn new(root: &Path) -> Self {
        let dir = root.join("files");
        std::fs::create_dir_all(&dir).unwrap();
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[7]
        };
        std::fs::write(dir.join("noise"), std::iter::repeat_with(next).take(400_000).collect::<Vec<u8>>()).unwrap();
        Self { cache: Cache::open(&root.join("client"), 1 << 30, &Git::new()).unwrap(), dir }
    }

    pub(crate) async fn take(&self) -> (Taken, Parcel) {
        let taken = take(&self.cache, &self.dir, &Options::default()).await.unwrap();
        let parcel = Parcel::snapshot(&taken.snapshot).unwrap();
        (taken, parcel)
    }
}

pub(crate) fn reference(taken: &Taken) -> SnapshotRef {
    let snapshot = &taken.snapshot;
    let id = snapshot.id().unwrap().clone();
    SnapshotRef { project: snapshot.project.clone(), format: snapshot.format, id, root: "/files".to_owned() }
}

fn shuttle(transport: Transport) -> Shuttle {
    Shuttle { transport, route: Route::snapshots(), patience: Duration::from_secs(15) }
}

/// Remembers every position that it was told.
fn positions() -> (Tell, Arc<Mutex<Vec<u64>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let tell = move |far| {
        if let Far::Bytes { done, .. } = far {
            told.lock().unwrap().push(done);
        }
    };
    (Arc::new(tell), seen)
}

pub(crate) async fn send(transport: Transport, taken: &Taken, parcel: &Parcel) -> Result<u64, ShuttleError> {
    soon(shuttle(transport).send(&taken.lease, parcel, History::Full, &positions().0)).await
}

#[tokio::test]
async fn the_second_upload_carries_only_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&dir.path().join("controller"), "127.0.0.1:0", quick());
    let client = Client::new(dir.path());
    let (taken, parcel) = client.take().await;
    let first = send(served.transport(), &taken, &parcel).await.unwrap();
    assert!(first > 400_000, "{first}");
    assert_eq!(send(served.transport(), &taken, &parcel).await.unwrap(), 0, "the same again is not sent");
    std::fs::write(client.dir.join("more"), "a little more\n").unwrap();
    let (taken, parcel) = client.take().await;
    let second = send(served.transport(), &taken, &parcel).await.unwrap();
    assert!(second > 0 && second < 2_000, "{second}");
}

#[tokio::test]
async fn an_upload_that_was_cut_off_goes_on_after_the_controller_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("controller");
    let mut served = Served::start(&state, "127.0.0.1:0", quick());
    let client = Client::new(dir.path());
    let (taken, parcel) = client.take().await;
    let offer = transfer::offer(&taken.lease, &parcel).await.unwrap();
    let packed = transfer::pack(&taken.lease, &parcel, &Have::default(), History::Full).await.unwrap();
    let (project, format, ticket) = (offer.project.clone(), offer.format, packed.ticket.clone());
    let announce = Announce { project, format, ticket: ticket.clone() };
    let announcing = || served.transport().json::<Arrived>(Call::post("/v1/snapshots/upload", &announce).unwrap());
    assert_eq!(announcing().await.unwrap(), Arrived { bytes: 0, complete: false });

    let mut bytes = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut packed.reader(0).await.unwrap(), &mut bytes).await.unwrap();
    let put = |offset: u64, part: &[u8]| {
        let query = format!("project={}&format=sha1&sha256={}&offset={offset}", announce.project, ticket.sha256);
        let call = Call::new(Method::PUT, &format!("/v1/snapshots/upload?{query}")).body(whole(part.to_vec()));
        served.transport().json::<Arrived>(call)
    };
    assert_eq!(put(0, &bytes[..100_000]).await.unwrap(), Arrived { bytes: 100_000, complete: false });
    assert_eq!(put(50_000, &bytes[50_000..120_000]).await.unwrap().bytes, 120_000, "repeated bytes are passed over");
    let gap = put(130_000, &bytes[130_000..]).await.unwrap_err();
    assert!(gap.is("wrong-offset"), "{gap}");

    let address = served.address.trim_start_matches("http://").to_owned();
    let (tell, seen) = positions();
    served.kill();
    let resumed = shuttle(served.transport());
    let sending = resumed.send(&taken.lease, &parcel, History::Full, &tell);
    let restarting = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Served::start(&state, &address, quick())
    };
    let (sent, served) = soon(async { tokio::join!(sending, restarting) }).await;
    assert_eq!(sent.unwrap(), ticket.bytes);
    let first = *seen.lock().unwrap().first().unwrap();
    assert!(first > 120_000, "what had arrived was not sent again: {first}");
    let mut assignment = assignment();
    assignment.snapshot = Some(reference(&taken));
    served.client().submit(&Submit::new(assignment)).await.unwrap();
}

#[tokio::test]
async fn a_damaged_upload_is_refused_and_a_snapshot_that_is_not_there_cannot_be_submitted() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&dir.path().join("controller"), "127.0.0.1:0", quick());
    let client = Client::new(dir.path());
    let (taken, parcel) = client.take().await;
    let packed = transfer::pack(&taken.lease, &parcel, &Have::default(), History::Full).await.unwrap();
    let mut ticket = packed.ticket.clone();
    ticket.sha256 = format!("{}{}", if ticket.sha256.starts_with('0') { '1' } else { '0' }, &ticket.sha256[1..]);
    let reference = reference(&taken);
    let announce = Announce { project: reference.project.clone(), format: reference.format, ticket: ticket.clone() };
    let transport = served.transport();
    transport.json::<Arrived>(Call::post("/v1/snapshots/upload", &announce).unwrap()).await.unwrap();
    let mut bytes = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut packed.reader(0).await.unwrap(), &mut bytes).await.unwrap();
    let query = format!("project={}&format=sha1&sha256={}&offset=0", reference.project, ticket.sha256);
    let call = Call::new(Method::PUT, &format!("/v1/snapshots/upload?{query}")).body(whole(bytes));
    let refused = transport.json::<Arrived>(call).await.unwrap_err();
    assert!(refused.is("digest-mismatch"), "{refused}");
    let mut assignment = assignment();
    assignment.snapshot = Some(reference);
    let refused = served.client().submit(&Submit::new(assignment)).await.unwrap_err();
    assert!(refused.is("no-such-snapshot"), "{refused}");
}

#[tokio::test]
async fn what_one_submitter_sent_does_not_exist_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let depot = Depot::open(&dir.path().join("depot"), Limits::default()).unwrap();
    let client = Client::new(dir.path());
    let (taken, parcel) = client.take().await;
    let offer = transfer::offer(&taken.lease, &parcel).await.unwrap();
    let packed = transfer::pack(&taken.lease, &parcel, &Have::default(), History::Full).await.unwrap();
    let announce = Announce { project: offer.project.clone(), format: offer.format, ticket: packed.ticket.clone() };
    depot.announce("ada", &announce).await.unwrap();
    let place = (packed.ticket.sha256.as_str(), 0);
    let reader = packed.reader(0).await.unwrap();
    assert!(depot.accept("ada", (&offer.project, offer.format), place, reader).await.unwrap().complete);
    assert!(depot.answer("ada", &offer).await.unwrap().covers(&offer));
    let theirs = depot.answer("bob", &offer).await.unwrap();
    assert!(theirs.objects.is_empty(), "{theirs:?}");
    let attempt = AttemptId::generate();
    let refused = depot.hold("bob", attempt, &reference(&taken)).await.unwrap_err();
    assert!(matches!(refused, DepotError::NoSnapshot { .. }), "{refused}");
    depot.hold("ada", attempt, &reference(&taken)).await.unwrap();
}

#[tokio::test]
async fn a_worker_gets_the_snapshots_of_attempts_that_it_holds_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&dir.path().join("controller"), "127.0.0.1:0", quick());
    let client = Client::new(dir.path());
    let (taken, parcel) = client.take().await;
    send(served.transport(), &taken, &parcel).await.unwrap();
    let mut held = assignment();
    held.snapshot = Some(reference(&taken));
    let (id, submit) = (held.attempt, Submit::new(held));
    served.client().submit(&submit).await.unwrap();
    let offered = |worker: &str, generation: u64| {
        let route = Route::of_worker(&worker.parse().unwrap(), "snapshot", id, agent::ids::Generation(generation));
        served.transport().json::<transfer::Offer>(Call::get(&route.at("offer", "")))
    };
    assert!(offered("w1", 1).await.unwrap_err().is("stale-lease"), "nobody holds it yet");
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    worker.until_offered(id).await;
    let offer = offered("w1", 1).await.unwrap();
    assert!(offer.want.contains(taken.snapshot.id().unwrap()));
    assert_ne!(offer.project, taken.snapshot.project, "workers know it by a name that no client can give");
    for (other, generation) in [("w2", 1), ("w1", 2)] {
        let refused = offered(other, generation).await.unwrap_err();
        assert!(refused.is("stale-lease"), "{other} {generation}: {refused}");
    }
    let result = served.client().result(id).await.unwrap_err();
    assert!(result.is("no-result"), "{result}");
    let unknown = served.client().result(AttemptId::generate()).await.unwrap_err();
    assert!(matches!(unknown, agent::transport::CallError::Refused { status: StatusCode::NOT_FOUND, .. }), "{unknown}");
}

#[test]
fn an_assignment_of_an_older_client_is_read_as_before() {
    let text = serde_json::to_value(assignment()).unwrap();
    assert!(text.get("snapshot").is_none(), "nothing new is said where nothing travels: {text}");
    let read: agent::assignment::Assignment = serde_json::from_value(text).unwrap();
    assert_eq!(read.snapshot, None);
}

#[tokio::test]
async fn an_id_submitted_again_with_another_snapshot_is_a_conflict_and_the_first_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&dir.path().join("controller"), "127.0.0.1:0", quick());
    let client = Client::new(dir.path());
    let (taken, parcel) = client.take().await;
    send(served.transport(), &taken, &parcel).await.unwrap();
    let mut assignment = assignment();
    assignment.snapshot = Some(reference(&taken));
    let submit = Submit::new(assignment);
    served.client().submit(&submit).await.unwrap();
    let mut other = submit.clone();
    std::fs::write(client.dir.join("more"), "never sent\n").unwrap();
    other.assignment.snapshot = Some(reference(&client.take().await.0));
    let refused = served.client().submit(&other).await.unwrap_err();
    assert_eq!(refused.code(), Some("id-reused"), "{refused}");
    served.client().submit(&submit).await.unwrap();
    // Where there is no room for it, it stays only because the attempt holds it.
    let objects = dir.path().join("controller/objects");
    let cache = Cache::open(&objects, 0, &Git::new()).unwrap();
    cache.evict().unwrap();
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    worker.until_offered(submit.assignment.attempt).await;
    let route =
        Route::of_worker(&"w1".parse().unwrap(), "snapshot", submit.assignment.attempt, agent::ids::Generation(1));
    let shuttle = Shuttle { transport: served.transport(), route, patience: Duration::from_secs(15) };
    assert!(soon(shuttle.offered()).await.unwrap().want.contains(&submit.assignment.snapshot.unwrap().id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_files_never_stop_changing_says_so_before_it_gives_up_and_keeps_nothing() {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let desk = Desk::at(&served);
    let busy = desk.path("repo/busy file");
    std::fs::write(&busy, vec![7; 8 << 20]).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let writer = std::thread::spawn(move || {
        let mut file = std::fs::File::options().append(true).open(busy).unwrap();
        while !stopped.load(Ordering::Relaxed) {
            file.write_all(b"x").unwrap();
            std::thread::yield_now();
        }
    });
    let words: Vec<&str> = std::iter::once("run").chain(LANE.split_whitespace()).chain(["--verbose"]).collect();
    let seen = desk.run(&words).await;
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(seen.code(), 64, "{}", seen.err());
    let again = "files change while they are read: `busy file`; trying again\n";
    assert_eq!(seen.err().matches(again).count(), 2, "{}", seen.err());
    assert!(seen.err().contains("files changed while they were read"), "{}", seen.err());
    let store = std::fs::read_dir(desk.path("state/snapshots")).unwrap().map(|entry| entry.unwrap().path());
    let project = store.into_iter().find(|path| path.is_dir()).unwrap();
    assert_eq!(std::fs::read_dir(project.join("tmp")).unwrap().count(), 0);
    let objects =
        std::fs::read_dir(project.join("repository.git/objects")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut objects: Vec<_> = objects.collect();
    objects.sort();
    assert_eq!(objects, ["info", "pack"], "no object");
}
