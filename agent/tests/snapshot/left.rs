//! What of a directory or of a lane's work does not travel, and who is told.

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use agent::snapshot::result::{DirectoryChange, Finding, Outcome, apply};
use agent::snapshot::{Again, Cache, Options, SnapshotError, Unseen, take, take_and_tell};
use agent::worktree::git::Git;

use crate::world::{World, changed, git, metadata, names, objects, project, scratch, tree, write};

fn fifo(dir: &Path, name: &str) {
    nix::unistd::mkfifo(&dir.join(name), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
}

fn special(name: &str) -> Unseen {
    Unseen::Special { path: name.to_owned().try_into().unwrap() }
}

#[tokio::test]
async fn pipes_and_sockets_are_named_wherever_they_are_unless_they_are_ignored() {
    let world = World::new();
    let user = world.repository("user");
    write(&user, b".gitignore", b"ignored*\n");
    fifo(&user, "pipe");
    fifo(&user, "src/pipe");
    fifo(&user, "ignored-pipe");
    write(&user, b"new/deep/file", b"new\n");
    let _listening = UnixListener::bind(user.join("new/deep/socket")).unwrap();
    let expected: Vec<Unseen> = ["new/deep/socket", "pipe", "src/pipe"].map(special).into();
    assert_eq!(world.take(&user).await.snapshot.summary.unseen, expected);
    let plain = world.path("plain");
    std::fs::create_dir(&plain).unwrap();
    write(&plain, b"file", b"here\n");
    fifo(&plain, "pipe");
    for _ in 0..2 {
        assert_eq!(world.take(&plain).await.snapshot.summary.unseen, [special("pipe")]);
    }
}

#[tokio::test]
async fn a_known_file_that_became_a_pipe_is_gone_and_named_and_nobody_waits_for_it() {
    let world = World::new();
    let user = world.repository("user");
    std::fs::remove_file(user.join("README")).unwrap();
    fifo(&user, "README");
    let taking = tokio::time::timeout(std::time::Duration::from_secs(60), world.take(&user));
    let taken = taking.await.expect("nobody opens a pipe");
    assert_eq!(taken.snapshot.summary.unseen, [special("README")]);
    let lane = world.lane(&taken, "lane").await;
    assert!(!lane.worktree.root.join("README").exists(), "not as it was before");
    assert!(lane.worktree.root.join("src/main.c").exists());
}

#[tokio::test]
async fn what_a_lane_leaves_that_cannot_come_home_is_named() {
    let world = World::new();
    let user = world.repository("user");
    write(&user, b".gitignore", b"*.log\nbuild/\n");
    let (taken, lane) = world.begin(&user).await;
    write(&lane.worktree.root, b"src/new.c", b"int new;\n");
    write(&lane.worktree.root, b"src/trace.log", b"long work\n");
    write(&lane.worktree.root, b"build/out/a.o", b"object\n");
    write(&lane.worktree.root, b"build/out/b.o", b"object\n");
    fifo(&lane.worktree.root, "pipe");
    let result = world.result(&taken, &lane).await;
    assert_eq!(changed(&result), ["src/new.c"]);
    assert_eq!((result.ignored.paths, result.ignored.in_all), (vec!["build/".to_owned(), "src/trace.log".into()], 2));
    let pipe = Finding::Special { path: "pipe".to_owned().try_into().unwrap() };
    assert!(!pipe.refuses());
    assert_eq!(result.findings, [pipe]);
}

#[tokio::test]
async fn the_names_of_what_is_ignored_are_bounded_and_counted() {
    let world = World::new();
    let user = world.repository("user");
    write(&user, b".gitignore", b"*.log\n");
    let (taken, lane) = world.begin(&user).await;
    for number in 0..250 {
        write(&lane.worktree.root, format!("{number:03}.log").as_bytes(), b"x\n");
    }
    let result = world.result(&taken, &lane).await;
    assert_eq!((result.ignored.paths.len(), result.ignored.in_all), (100, 250));
    assert_eq!(result.ignored.paths[0], "000.log");
    assert!(result.changes.is_empty());
}

#[tokio::test]
async fn empty_directories_are_changes_too() {
    let world = World::new();
    let user = world.repository("user");
    for dir in ["stays", "goes", "filled"] {
        std::fs::create_dir(user.join(dir)).unwrap();
    }
    let (taken, lane) = world.begin(&user).await;
    let root = &lane.worktree.root;
    std::fs::remove_dir(root.join("goes")).unwrap();
    write(root, b"filled/file", b"now\n");
    std::fs::create_dir_all(root.join("made/inner")).unwrap();
    std::fs::remove_file(root.join("src/main.c")).unwrap();
    let result = world.result(&taken, &lane).await;
    let directories = result.directories(&taken.snapshot);
    let directories: Vec<_> = directories.iter().map(|(path, change)| (path.to_string(), *change)).collect();
    let expected = [
        ("goes".to_owned(), DirectoryChange::Deleted),
        ("made/inner".to_owned(), DirectoryChange::Added),
        ("src".to_owned(), DirectoryChange::Emptied),
    ];
    assert_eq!(directories, expected);
}

#[tokio::test]
async fn the_empty_directory_that_claude_makes_for_itself_stays_away_and_moves_nothing() {
    let world = World::new();
    let user = world.repository("user");
    let taken = world.take(&user.join("src")).await;
    let lane = world.lane(&taken, "lane").await;
    let root = &lane.worktree.root;
    write(root, b"README", b"by the lane\n");
    for dir in ["src/.claude/.cc-writes", "other/.claude/.cc-writes"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    let result = world.result(&taken, &lane).await;
    let empty = names(&result.content.empty_directories);
    assert_eq!(empty, ["other/.claude/.cc-writes"], "only the one in the working directory is claude's");
    // The caller's own claude makes one while the lane runs.
    std::fs::create_dir_all(user.join("src/.claude/.cc-writes")).unwrap();
    world.applies(&user, &taken, &result, 1).await;
    assert!(user.join("src/.claude/.cc-writes").is_dir(), "it is the caller's");
}

#[tokio::test]
async fn a_sparse_checkout_with_a_split_index_travels_and_comes_back() {
    let world = World::new();
    let user = world.repository("user");
    for number in 0..40 {
        write(&user, format!("big/{number}").as_bytes(), b"big\n");
        write(&user, format!("src/{number}.c").as_bytes(), b"int x;\n");
    }
    git(&user, &["add", "-A"]);
    git(&user, &["commit", "-q", "-m", "big"]);
    git(&user, &["sparse-checkout", "set", "--no-sparse-index", "src"]);
    git(&user, &["update-index", "--split-index"]);
    git(&user, &["config", "core.splitIndex", "true"]);
    write(&user, b"src/1.c", b"int changed;\n");
    std::fs::remove_file(user.join("src/2.c")).unwrap();
    write(&user, b"src/new.c", b"int new;\n");
    write(&user, b"src/staged.c", b"int staged;\n");
    git(&user, &["add", "--sparse", "src/staged.c"]);
    let shared = std::fs::read_dir(user.join(".git")).unwrap().flatten();
    assert!(shared.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("sharedindex.")));
    let status = git(&user, &["status", "--porcelain", "-z"]);
    let taken = world.take(&user).await;
    assert_eq!(taken.snapshot.summary.unseen, [Unseen::OutsideSparse { files: 40 }]);
    let lane = world.lane(&taken, "lane").await;
    assert!(tree(&lane.worktree.root) == tree(&user), "what is on disk is on the lane's");
    assert_eq!(git(&lane.worktree.root, &["status", "--porcelain", "-z"]), status);
    write(&lane.worktree.root, b"src/1.c", b"int lane;\n");
    write(&lane.worktree.root, b"big/1", b"by the lane\n");
    let result = world.result(&taken, &lane).await;
    assert_eq!(changed(&result), ["big/1", "src/1.c"]);
    world.applies(&user, &taken, &result, 2).await;
    assert_eq!(std::fs::read(user.join("src/1.c")).unwrap(), b"int lane;\n");
    assert_eq!(std::fs::read(user.join("big/1")).unwrap(), b"by the lane\n");
}

#[tokio::test]
async fn a_split_index_hides_neither_an_emptied_directory_nor_a_changed_file() {
    let world = World::new();
    let user = world.repository("user");
    for number in 0..40 {
        write(&user, format!("src/{number}.c").as_bytes(), b"int x;\n");
    }
    for name in ["gone/inner/file", "gone/file", "piped/file", "became/file", "name"] {
        write(&user, name.as_bytes(), b"here\n");
    }
    git(&user, &["add", "-A"]);
    git(&user, &["commit", "-q", "-m", "many"]);
    git(&user, &["update-index", "--assume-unchanged", "README"]);
    git(&user, &["update-index", "--split-index"]);
    git(&user, &["config", "core.splitIndex", "true"]);
    write(&user, b"src/staged.c", b"int staged;\n");
    git(&user, &["add", "src/staged.c"]);
    let shared = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("sharedindex.");
    assert!(std::fs::read_dir(user.join(".git")).unwrap().flatten().any(shared));
    for name in ["gone/inner/file", "gone/file", "piped/file", "name"] {
        std::fs::remove_file(user.join(name)).unwrap();
    }
    fifo(&user, "piped/pipe");
    std::fs::remove_dir_all(user.join("became")).unwrap();
    write(&user, b"became", b"a file now\n");
    write(&user, b"name/of/a", b"directory now\n");
    write(&user, b"README", b"jello\n");
    let before = metadata(&user.join(".git"));
    let taken = world.take(&user).await;
    assert!(metadata(&user.join(".git")) == before, "the repository was touched");
    assert_eq!(names(&taken.snapshot.content.empty_directories), ["gone/inner"]);
    assert_eq!(taken.snapshot.summary.unseen, [special("piped/pipe")]);
    let lane = world.lane(&taken, "lane").await;
    std::fs::remove_file(user.join("piped/pipe")).unwrap(); // reading it would wait for ever
    let mut expected = tree(&user);
    fifo(&user, "piped/pipe");
    expected.retain(|path, _| !path.starts_with(b"piped"));
    assert!(tree(&lane.worktree.root) == expected, "what is on disk is on the lane's");
    std::fs::remove_dir(lane.worktree.root.join("gone/inner")).unwrap();
    write(&lane.worktree.root, b"README", b"by the lane\n");
    let result = world.result(&taken, &lane).await;
    assert_eq!(changed(&result), ["README"]);
    let outcome = apply(&world.client, &user, &taken.snapshot, &result).await.unwrap();
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    assert_eq!(std::fs::read(user.join("README")).unwrap(), b"by the lane\n");
    assert!(!user.join("gone/inner").exists());
}

#[tokio::test]
async fn a_result_comes_home_to_a_sha256_repository() {
    let world = World::new();
    let user = world.repository_as("user", &["--object-format=sha256"]);
    let (taken, lane) = world.begin(&user).await;
    assert_eq!(git(&lane.worktree.root, &["log", "--format=%s"]), "first\n");
    write(&lane.worktree.root, b"README", b"by the lane\n");
    std::fs::remove_file(lane.worktree.root.join("src/main.c")).unwrap();
    let result = world.result(&taken, &lane).await;
    let patch = agent::snapshot::result::export(&taken.lease, &taken.snapshot, &result).await.unwrap();
    assert!(String::from_utf8_lossy(&patch).contains("+by the lane"));
    world.applies(&user, &taken, &result, 2).await;
    assert_eq!(std::fs::read(user.join("README")).unwrap(), b"by the lane\n");
    assert!(!user.join("src/main.c").exists());
}

#[tokio::test]
async fn content_that_no_result_carries_is_named_and_said_to_be_left() {
    let world = World::new();
    let user = world.repository("user");
    write(&user, b".gitignore", b"ignored/\n");
    let (taken, lane) = world.begin(&user).await;
    let root = &lane.worktree.root;
    for made in ["nested", "src", "ignored/made"] {
        std::fs::create_dir_all(root.join(made)).unwrap();
        git(&root.join(made), &["init", "-q"]);
    }
    write(root, b"nested/y", b"y\n");
    let result = world.result(&taken, &lane).await;
    assert_eq!(changed(&result), ["nested/y"]);
    let made = |path: &str| Finding::Repository { path: path.to_owned().try_into().unwrap() };
    assert_eq!(result.findings, [made("nested"), made("src")], "and nothing of what is ignored");
    assert!(result.leaves_some() && !made("src").refuses());
    write(root, b"w/.GIT/config", b"odd\n");
    let result = world.result(&taken, &lane).await;
    assert!(result.findings.iter().any(|finding| finding.refuses() && finding.is_left()), "{:?}", result.findings);
}

/// Appends to a file until it is told to stop.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Writer {
    fn of(path: &Path) -> Self {
        let (stop, path) = (Arc::new(AtomicBool::new(false)), path.to_owned());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut file = std::fs::File::options().append(true).open(path).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                file.write_all(b"x").unwrap();
                std::thread::yield_now();
            }
        });
        Self { stop, thread: Mutex::new(Some(thread)) }
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.lock().unwrap().take() {
            thread.join().unwrap();
        }
    }
}

#[tokio::test]
async fn a_refused_snapshot_leaves_nothing_in_the_store_and_says_why_it_tries_again() {
    let world = World::new();
    let user = world.repository("user");
    world.take(&user).await;
    let store = project(&world.path("client"));
    let before = objects(&store);
    write(&user, b"new/file", b"nobody has this\n");
    write(&user, b"busy", &vec![7; 8 << 20]);
    let (writer, told) = (Writer::of(&user.join("busy")), Mutex::new(Vec::new()));
    let tell = |again: Again| told.lock().unwrap().push(again.to_string());
    let refused = take_and_tell(&world.client, &user, &Options::default(), &tell).await;
    writer.end();
    assert!(matches!(refused, Err(SnapshotError::Changed { .. })), "{refused:?}");
    assert_eq!(objects(&store), before, "of what was read nothing stays");
    assert_eq!(scratch(&store), Vec::<String>::new());
    let words = "files change while they are read: `busy`; trying again".to_owned();
    assert_eq!(*told.lock().unwrap(), [words.clone(), words], "three tries, two of them again");
    let lane = world.lane(&world.take(&user).await, "lane").await;
    assert!(tree(&lane.worktree.root) == tree(&user));
}

#[tokio::test]
async fn what_an_earlier_try_read_of_a_changed_file_does_not_stay() {
    let world = World::new();
    let (user, other) = (world.repository("user"), world.path("other"));
    write(&user, b"busy", &vec![7; 8 << 20]);
    write(&user, b"calm", b"calm\n");
    let writer = Writer::of(&user.join("busy"));
    let taken = take_and_tell(&world.client, &user, &Options::default(), &|_| writer.end()).await;
    writer.end();
    let taken = taken.unwrap();
    // The same directory in a store that never saw it change.
    let calm = Cache::open(&other, 1 << 30, &Git::new()).unwrap();
    std::fs::copy(world.path("client/secret"), other.join("secret")).unwrap();
    let again = take(&calm, &user, &Options::default()).await.unwrap();
    assert_eq!(again.snapshot, taken.snapshot);
    assert_eq!(objects(&project(&world.path("client"))), objects(&project(&other)));
    let lane = world.lane(&taken, "lane").await;
    assert!(tree(&lane.worktree.root) == tree(&user));
}

#[tokio::test]
async fn a_changing_file_in_a_submodule_is_named_from_the_top() {
    let world = World::new();
    let (library, user) = (world.repository("library"), world.repository("user"));
    git(&user, &["submodule", "add", "-q", &library.display().to_string(), "lib"]);
    git(&user, &["commit", "-q", "-m", "submodule"]);
    write(&user, b"lib/busy", &vec![7; 8 << 20]);
    let writer = Writer::of(&user.join("lib/busy"));
    let refused = take(&world.client, &user, &Options::default()).await;
    writer.end();
    match refused {
        Err(SnapshotError::Changed { paths }) => assert_eq!(names(paths), ["lib/busy"]),
        other => panic!("{other:?}"),
    }
}
