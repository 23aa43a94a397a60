use std::path::PathBuf;
use std::process::{Command, Stdio};

use agent::snapshot::result::{Recovered, ResultTree, apply, recover};
use agent::snapshot::{Cache, Options, take};
use agent::worktree::git::Git;

use crate::world::{World, objects, project, scratch, tree, write};

/// Not a test of its own: the process that is killed.
#[tokio::test]
#[ignore = "run by the test below"]
async fn child_applies() {
    let Ok(dir) = std::env::var("LANEYARD_TEST_APPLY") else { return };
    let dir = PathBuf::from(dir);
    let cache = Cache::open(&dir.join("client"), 1 << 30, &Git::new()).unwrap();
    let taken = take(&cache, &dir.join("user"), &Options::default()).await.unwrap();
    let id = std::fs::read_to_string(dir.join("result")).unwrap().parse().unwrap();
    let result = ResultTree::load(&taken.lease, &taken.snapshot, &id).await.unwrap();
    apply(&cache, &dir.join("user"), &taken.snapshot, &result).await.unwrap();
}

#[tokio::test]
async fn killed_at_any_moment_every_file_is_old_or_every_file_is_new() {
    let world = World::new();
    let user = world.repository("user");
    for n in 0..400 {
        write(&user, format!("d{}/f{n}", n % 7).as_bytes(), format!("{n}\n").as_bytes());
    }
    let (taken, lane) = world.begin(&user).await;
    for n in 0..400 {
        let path = format!("d{}/f{n}", n % 7);
        match n % 4 {
            0 => std::fs::remove_file(lane.worktree.root.join(path)).unwrap(),
            1 => write(&lane.worktree.root, format!("new/{path}").as_bytes(), b"new\n"),
            _ => write(&lane.worktree.root, path.as_bytes(), b"changed\n"),
        }
    }
    std::fs::remove_dir_all(lane.worktree.root.join("d3")).unwrap();
    let result = world.result(&taken, &lane).await;
    std::fs::write(world.path("result"), result.id.as_str()).unwrap();
    drop(taken);
    let (old, new) = (tree(&user), tree(&lane.worktree.root));
    assert!(old != new);

    let mut ends = std::collections::BTreeMap::new();
    for files_seen in [0_usize, 1, 150, 299, 300, 330, 400, 500] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "crash::child_applies"])
            .env("LANEYARD_TEST_APPLY", world.dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The moment is taken from what the child has done, not from a clock.
        while child.try_wait().unwrap().is_none() {
            let entries = std::fs::read_dir(&user).unwrap().flatten();
            let stage =
                entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(".laneyard-apply-"));
            let count = |part: &str| {
                stage.as_ref().and_then(|stage| std::fs::read_dir(stage.join(part)).ok()).map_or(0, Iterator::count)
            };
            // New files are written, then old ones move in, then new ones move out.
            let armed = stage.as_ref().is_some_and(|stage| stage.join("journal").exists());
            let progress = if armed { 300 + count("old") } else { count("new") };
            if stage.is_some() && progress >= files_seen {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let recovered = recover(&user).unwrap();
        let found = tree(&user);
        assert!(found == old || found == new, "half of it after {files_seen}: {recovered:?}");
        *ends.entry(format!("{recovered:?}")).or_insert(0) += 1;
        if found == new {
            assert_ne!(recovered, Recovered::Undone);
            return;
        }
    }
    assert!(ends.contains_key("Undone"), "never killed in the middle: {ends:?}");
}

/// Not a test of its own: the process that is killed.
#[tokio::test]
#[ignore = "run by the test below"]
async fn child_takes() {
    let Ok(dir) = std::env::var("LANEYARD_TEST_TAKE") else { return };
    let dir = PathBuf::from(dir);
    let cache = Cache::open(&dir.join("client"), 1 << 30, &Git::new()).unwrap();
    take(&cache, &dir.join("user"), &Options::default()).await.unwrap();
}

#[tokio::test]
async fn killed_while_it_reads_a_snapshot_leaves_nothing_and_a_living_one_is_left_alone() {
    let world = World::new();
    let user = world.repository("user");
    drop(world.take(&user).await);
    let store = project(&world.path("client"));
    let before = objects(&store);
    for n in 0_u32..3000 {
        write(&user, format!("new/{n}").as_bytes(), n.to_string().repeat(2000).as_bytes());
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "crash::child_takes"])
        .env("LANEYARD_TEST_TAKE", world.dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let reading = || {
        let open = scratch(&store);
        open.iter().any(|name| {
            std::fs::read_dir(store.join("tmp").join(name).join("objects")).is_ok_and(|dirs| dirs.count() > 20)
        })
    };
    while !reading() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was seen to read");
    }
    let format = agent::snapshot::ObjectFormat::Sha1;
    let name = store.file_name().unwrap().to_string_lossy().into_owned().try_into().unwrap();
    drop(world.client.lease(&name, format).unwrap());
    assert_eq!(scratch(&store).len(), 1, "its maker lives");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((scratch(&store).len(), objects(&store)), (1, before), "killed before it was whole");
    world.client.evict().unwrap();
    assert_eq!(scratch(&store), Vec::<String>::new());
    let lane = world.lane(&world.take(&user).await, "lane").await;
    assert!(tree(&lane.worktree.root) == tree(&user));
}
