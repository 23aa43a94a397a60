use agent::snapshot::{History, Snapshot, SnapshotError, transfer};

use crate::world::{World, git, send, tree, uglify, write};

#[tokio::test]
async fn everything_arrives_as_it_was_and_git_shows_the_same() {
    let world = World::new();
    let user = world.repository("user");
    write(&user, b".gitattributes", b"*.txt text=auto eol=lf\n*.dat filter=upper\n");
    write(&user, b".gitignore", b"ignored\n");
    git(&user, &["config", "filter.upper.clean", "tr a-z A-Z"]);
    uglify(&user);
    write(&user, b"x.dat", b"exact\n");
    write(&user, b"staged", b"staged\n");
    git(&user, &["add", "staged", "run.sh", "crlf.txt"]);
    write(&user, b"staged", b"and changed\n");
    std::fs::remove_file(user.join("README")).unwrap();
    let expected = tree(&user);
    let status = git(&user, &["status", "--porcelain", "-z", "--branch"]);
    write(&user, b"ignored", b"stays\n");

    let taken = world.take(&user).await;
    assert!(taken.snapshot.summary.unseen.is_empty(), "{:?}", taken.snapshot.summary);
    let lane = world.lane(&taken, "lane").await;
    let found = tree(&lane.worktree.root);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected, "content or modes differ");
    assert_eq!(git(&lane.worktree.root, &["status", "--porcelain", "-z", "--branch"]), status);
    assert_eq!(git(&lane.worktree.root, &["remote"]), "");
    assert!(!lane.worktree.root.join(".git/hooks").exists());
    assert_eq!(taken.snapshot.summary.files, expected.values().filter(|(kind, _)| kind != "directory").count() as u64);
}

#[tokio::test]
async fn a_directory_without_a_repository_works_the_same_way() {
    let world = World::new();
    let user = world.path("plain");
    std::fs::create_dir(&user).unwrap();
    uglify(&user);
    write(&user, b"late", b"1\n");
    let first = world.take(&user).await.snapshot;
    write(&user, b".gitignore", b"late\n");
    let taken = world.take(&user).await;
    assert_ne!(first.content.tree, taken.snapshot.content.tree);
    let mut expected = tree(&user);
    assert!(expected.remove(&b"late"[..]).is_some());
    let lane = world.lane(&taken, "lane").await;
    assert!(tree(&lane.worktree.root) == expected, "a file that is ignored by now must not travel");
    assert_eq!(world.take(&user).await.snapshot, taken.snapshot, "nothing changed");
}

#[tokio::test]
async fn history_and_the_base_branch_are_there_and_the_second_transfer_is_small() {
    let world = World::new();
    let user = world.repository("user");
    let noise: Vec<u8> = (0..200_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    write(&user, b"noise", &noise);
    git(&user, &["add", "-A"]);
    git(&user, &["commit", "-q", "-m", "noise"]);
    git(&user, &["switch", "-q", "-c", "topic"]);
    write(&user, b"topic", b"topic\n");
    git(&user, &["add", "-A"]);
    git(&user, &["commit", "-q", "-m", "topic"]);
    let (_, lane) = world.begin(&user).await;
    let root = &lane.worktree.root;
    assert_eq!(git(root, &["log", "--format=%s", "--all"]), git(&user, &["log", "--format=%s", "--all"]));
    assert_eq!(git(root, &["diff", "--stat", "main...HEAD"]), git(&user, &["diff", "--stat", "main...HEAD"]));
    assert_eq!(git(root, &["fsck", "--strict", "--no-dangling"]), "");

    write(&user, b"topic", b"more\n");
    let again = world.take(&user).await;
    let parcel = transfer::Parcel::snapshot(&again.snapshot).unwrap();
    let bytes = send(&again.lease, &parcel, &lane.lease, History::Full).await;
    assert!(bytes < 5_000, "{bytes} bytes for one changed line");
    let offer = transfer::offer(&again.lease, &parcel).await.unwrap();
    assert!(transfer::answer(&lane.lease, &offer).await.unwrap().covers(&offer));
}

#[tokio::test]
async fn a_cut_history_still_reaches_the_fork() {
    let world = World::new();
    let user = world.repository("user");
    let commit = |name: &str| git(&user, &["commit", "-q", "--allow-empty", "-m", name]);
    (0..20).for_each(|n| drop(commit(&format!("old {n}"))));
    git(&user, &["switch", "-q", "-c", "topic"]);
    (0..10).for_each(|n| drop(commit(&format!("topic {n}"))));
    let taken = world.take(&user).await;
    let lease = world.worker.lease(&taken.snapshot.project, taken.snapshot.format).unwrap();
    let parcel = transfer::Parcel::snapshot(&taken.snapshot).unwrap();
    send(&taken.lease, &parcel, &lease, History::Depth(3)).await;
    let lane = world.lane(&taken, "lane").await;
    let root = &lane.worktree.root;
    assert_eq!(git(root, &["merge-base", "main", "HEAD"]), git(&user, &["merge-base", "main", "HEAD"]));
    let subjects = git(root, &["log", "--format=%s"]);
    assert!(subjects.contains("topic 0") && subjects.contains("old 19"), "{subjects}");
    assert!(!subjects.contains("old 5"), "history was not cut: {subjects}");

    // A later snapshot of the same history finds its way past the cut.
    commit("topic later");
    write(&user, b"README", b"changed\n");
    let later = world.take(&user).await;
    let lane = world.lane(&later, "lane2").await;
    assert_eq!(tree(&lane.worktree.root), tree(&user));
}

#[tokio::test]
async fn a_transfer_goes_on_where_it_was_cut_and_never_installs_what_was_damaged() {
    let world = World::new();
    let user = world.repository("user");
    uglify(&user);
    let taken = world.take(&user).await;
    let lease = world.worker.lease(&taken.snapshot.project, taken.snapshot.format).unwrap();
    let parcel = transfer::Parcel::snapshot(&taken.snapshot).unwrap();
    let offer = transfer::offer(&taken.lease, &parcel).await.unwrap();
    let have = transfer::answer(&lease, &offer).await.unwrap();
    let packed = transfer::pack(&taken.lease, &parcel, &have, History::Full).await.unwrap();
    let mut bytes = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut packed.reader(0).await.unwrap(), &mut bytes).await.unwrap();

    let error = transfer::receive(&lease, &packed.ticket, &bytes[..100]).await.unwrap_err();
    assert!(matches!(error, SnapshotError::Incomplete { have: 100, .. }), "{error}");
    assert!(Snapshot::load(&lease, taken.snapshot.id().unwrap()).await.is_err());
    assert_eq!(transfer::arrived(&lease, &packed.ticket), 100);

    let mut damaged = bytes[100..].to_vec();
    damaged[50] ^= 1;
    let error = transfer::receive(&lease, &packed.ticket, &damaged[..]).await.unwrap_err();
    assert!(matches!(error, SnapshotError::Digest { .. }), "{error}");
    assert_eq!(transfer::arrived(&lease, &packed.ticket), 0);

    transfer::receive(&lease, &packed.ticket, &bytes[..7]).await.unwrap_err();
    transfer::receive(&lease, &packed.ticket, packed.reader(7).await.unwrap()).await.unwrap();
    let loaded = Snapshot::load(&lease, taken.snapshot.id().unwrap()).await.unwrap();
    assert_eq!(loaded.content, taken.snapshot.content);
}

#[tokio::test]
async fn the_making_of_a_pack_tells_how_far_it_is_and_why_it_failed() {
    let world = World::new();
    let user = world.repository("user");
    uglify(&user);
    let taken = world.take(&user).await;
    let parcel = transfer::Parcel::snapshot(&taken.snapshot).unwrap();
    let (have, told) = (transfer::Have::default(), std::sync::Mutex::new(Vec::new()));
    let tell = |far: transfer::Packing| told.lock().unwrap().push(far);
    let packed = transfer::pack_and_tell(&taken.lease, &parcel, &have, History::Full, &tell).await.unwrap();
    let quiet = transfer::pack(&taken.lease, &parcel, &have, History::Full).await.unwrap();
    assert_eq!(packed.ticket, quiet.ticket, "whoever listens changes nothing");
    let told = told.into_inner().unwrap();
    let steps: Vec<_> = told.iter().map(|far| far.step).collect();
    assert!(steps.is_sorted(), "{told:?}");
    let last = told.last().unwrap();
    assert_eq!((last.step, last.done), (transfer::PackStep::Writing, last.total), "{told:?}");
    assert!(last.total > 20, "{told:?}");

    let objects = taken.lease.objects();
    std::fs::remove_dir_all(&objects).unwrap();
    std::fs::create_dir_all(objects.join("pack")).unwrap();
    let failed = transfer::pack(&taken.lease, &parcel, &have, History::Full).await.unwrap_err().to_string();
    assert!(!failed.contains("Enumerating") && failed.contains("bad object"), "{failed}");
}

#[tokio::test]
async fn a_pack_with_missing_objects_is_refused() {
    let world = World::new();
    let user = world.repository("user");
    let taken = world.take(&user).await;
    let lease = world.worker.lease(&taken.snapshot.project, taken.snapshot.format).unwrap();
    let parcel = transfer::Parcel::snapshot(&taken.snapshot).unwrap();
    // The sender is told a lie: that the base is there.
    let have = transfer::Have { objects: taken.snapshot.base.iter().cloned().collect(), shallow: Vec::new() };
    let packed = transfer::pack(&taken.lease, &parcel, &have, History::Full).await.unwrap();
    assert!(transfer::receive(&lease, &packed.ticket, packed.reader(0).await.unwrap()).await.is_err());
    assert!(Snapshot::load(&lease, taken.snapshot.id().unwrap()).await.is_err());
}

#[tokio::test]
async fn eviction_takes_the_oldest_and_never_what_is_in_use() {
    let world = World::new();
    let dir = world.path("small");
    let cache = agent::snapshot::Cache::open(&dir, 1, &agent::worktree::git::Git::new()).unwrap();
    let project = |n: u8| agent::snapshot::ProjectId::derive(b"secret", &[n]);
    let format = agent::snapshot::ObjectFormat::Sha1;
    let used = cache.lease(&project(1), format).unwrap();
    cache.lease(&project(2), format).unwrap().pin("attempt-1").unwrap();
    drop(cache.lease(&project(3), format).unwrap());
    let gone = |cache: &agent::snapshot::Cache| {
        cache.evict().unwrap().into_iter().map(|evicted| evicted.project).collect::<Vec<_>>()
    };
    assert_eq!(gone(&cache), [project(3)]);
    cache.unpin(&project(2), "attempt-1").unwrap();
    drop(used);
    assert_eq!(gone(&cache), [project(1), project(2)]);
    assert!(cache.unpin(&project(2), "../x").is_err());
}
