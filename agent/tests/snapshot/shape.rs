use agent::snapshot::{LfsPolicy, Options, SnapshotError, Unseen, take};

use crate::world::{World, age, changed, git, metadata, names, tree, uglify, write};

#[tokio::test]
async fn nothing_of_the_users_git_directory_changes() {
    let world = World::new();
    let user = world.repository("user");
    git(&user, &["worktree", "add", "-q", "../linked"]);
    let linked = world.path("linked");
    // Objects in a pack, single ones, and one that is only staged: what is on disk is in there already.
    git(&user, &["gc", "-q"]);
    write(&user, b"loose", b"loose\n");
    git(&user, &["add", "loose"]);
    git(&user, &["commit", "-q", "-m", "second"]);
    write(&user, b"staged", b"staged\n");
    git(&user, &["add", "staged"]);
    git(&user, &["hash-object", "-w", "-t", "tree", "/dev/null"]);
    for dir in [&user, &linked] {
        uglify(dir);
        write(dir, b"src/main.c", b"changed\n");
        age(&user.join(".git"));
        let before = metadata(&user.join(".git"));
        let files = tree(dir);
        let taken = world.take(dir).await;
        let after = metadata(&user.join(".git"));
        let touched: Vec<_> = after.iter().filter(|(path, seen)| before.get(*path) != Some(*seen)).collect();
        assert!(after == before, "the repository was touched from {}: {touched:?}", dir.display());
        let lane = world.lane(&taken, &format!("lane of {}", dir.file_name().unwrap().display())).await;
        write(&lane.worktree.root, b"README", b"by the lane\n");
        world.result(&taken, &lane).await;
        assert!(metadata(&user.join(".git")) == before, "a result touched the repository");
        assert!(tree(dir) == files);
    }
    assert_eq!(git(&user, &["worktree", "prune", "--dry-run", "-v"]), "");
}

#[tokio::test]
async fn hooks_filters_and_monitors_of_the_repository_never_run() {
    let world = World::new();
    let user = world.repository("user");
    let trap = world.path("trap");
    let command = format!("touch {}; cat", trap.display());
    for key in ["core.fsmonitor", "filter.x.clean", "filter.x.process", "core.sshCommand", "diff.external"] {
        git(&user, &["config", key, &command]);
    }
    write(&user, b".gitattributes", b"* filter=x\n");
    for hook in ["post-index-change", "reference-transaction"] {
        write(
            &user,
            format!(".git/hooks/{hook}").as_bytes(),
            format!("#!/bin/sh\ntouch {}\n", trap.display()).as_bytes(),
        );
        crate::world::executable(&user, format!(".git/hooks/{hook}").as_bytes());
    }
    world.take(&user).await;
    assert!(!trap.exists());
}

#[tokio::test]
async fn the_same_directory_has_the_same_name_and_hidden_changes_are_seen() {
    let world = World::new();
    let user = world.repository("user");
    let first = world.take(&user).await.snapshot;
    assert_eq!(world.take(&user).await.snapshot, first);
    git(&user, &["update-index", "--assume-unchanged", "README"]);
    write(&user, b"README", b"jello\n");
    let second = world.take(&user).await.snapshot;
    assert_ne!(second.content.tree, first.content.tree);
    assert_eq!(second.index, first.index);
}

#[tokio::test]
async fn the_directory_below_the_top_is_remembered() {
    let world = World::new();
    let user = world.repository("user");
    let below = world.take(&user.join("src")).await.snapshot;
    assert_eq!(below.cwd.unwrap().to_string(), "src");
    assert_eq!(below.content, world.take(&user).await.snapshot.content);
    let inside = take(&world.client, &user.join(".git"), &Options::default()).await;
    assert!(matches!(inside, Err(SnapshotError::InsideGitDirectory { .. })), "{inside:?}");
}

#[tokio::test]
async fn populated_submodules_travel_and_others_are_named() {
    let world = World::new();
    let (library, user) = (world.repository("library"), world.repository("user"));
    let url = library.display().to_string();
    git(&user, &["submodule", "add", "-q", &url, "lib"]);
    git(&user, &["submodule", "add", "-q", &url, "other"]);
    git(&user, &["commit", "-q", "-m", "submodules"]);
    git(&user, &["submodule", "deinit", "-q", "-f", "other"]);
    write(&user, b"lib/README", b"changed inside\n");
    write(&user, b"lib/untracked", b"new\n");
    std::fs::create_dir(user.join("lib/hollow")).unwrap();
    // A repository that no submodule is, with nothing committed.
    std::fs::create_dir(user.join("fresh")).unwrap();
    git(&user.join("fresh"), &["init", "-q"]);
    write(&user, b"fresh/file", b"fresh\n");
    let before = metadata(&user.join(".git"));

    let taken = world.take(&user).await;
    assert!(metadata(&user.join(".git")) == before);
    let summary = &taken.snapshot.summary;
    assert_eq!(summary.submodules, 2);
    assert_eq!(summary.unseen, [Unseen::Submodule { path: String::from("other").try_into().unwrap() }]);
    let lane = world.lane(&taken, "lane").await;
    let mut expected = tree(&user);
    expected.retain(|path, _| !path.starts_with(b"fresh/.git") && path != b"lib/.git");
    let found = tree(&lane.worktree.root);
    assert_eq!(
        names(found.keys().map(|k| String::from_utf8_lossy(k))),
        names(expected.keys().map(|k| String::from_utf8_lossy(k)))
    );
    assert!(found == expected);

    write(&lane.worktree.root, b"lib/README", b"by the lane\n");
    std::fs::remove_file(lane.worktree.root.join("lib/untracked")).unwrap();
    write(&lane.worktree.root, b"fresh/file", b"by the lane too\n");
    let result = world.result(&taken, &lane).await;
    assert_eq!(changed(&result), ["fresh/file", "lib/README", "lib/untracked"]);
    world.applies(&user, &taken, &result, 3).await;
    assert_eq!(std::fs::read(user.join("lib/README")).unwrap(), b"by the lane\n");
    assert!(user.join("lib/.git").exists());
}

#[tokio::test]
async fn only_the_cone_is_on_the_lanes_disk() {
    let world = World::new();
    let user = world.repository("user");
    for n in 0..5 {
        write(&user, format!("big/{n}").as_bytes(), b"big\n");
    }
    git(&user, &["add", "-A"]);
    git(&user, &["commit", "-q", "-m", "big"]);
    let whole = git(&user, &["rev-parse", "HEAD^{tree}"]);
    git(&user, &["sparse-checkout", "set", "src"]);
    for sparse_index in [false, true] {
        git(&user, &["sparse-checkout", "reapply", if sparse_index { "--sparse-index" } else { "--no-sparse-index" }]);
        let taken = world.take(&user).await;
        assert_eq!(taken.snapshot.content.tree.as_str(), whole.trim(), "the rest is as in the base");
        assert_eq!(taken.snapshot.summary.unseen, [Unseen::OutsideSparse { files: 5 }]);
        let lane = world.lane(&taken, &format!("lane {sparse_index}")).await;
        assert!(!lane.worktree.root.join("big").exists());
        assert_eq!(git(&lane.worktree.root, &["status", "--porcelain"]), "");
        write(&lane.worktree.root, b"src/new", b"new\n");
        let result = world.result(&taken, &lane).await;
        assert_eq!(changed(&result), ["src/new"]);
    }
}

#[tokio::test]
async fn what_a_lane_writes_outside_the_cone_arrives() {
    for sparse_index in ["--sparse-index", "--no-sparse-index"] {
        let world = World::new();
        let user = world.repository("user");
        write(&user, b"big/one", b"big\n");
        write(&user, b"big/.gitignore", b"ignored\n");
        git(&user, &["add", "-A"]);
        git(&user, &["commit", "-q", "-m", "big"]);
        git(&user, &["sparse-checkout", "set", sparse_index, "src"]);
        let (taken, lane) = world.begin(&user).await;
        write(&lane.worktree.root, b"big/one", b"by the lane\n");
        write(&lane.worktree.root, b"big/new", b"new\n");
        write(&lane.worktree.root, b"big/ignored", b"nobody asked\n");
        let result = world.result(&taken, &lane).await;
        assert_eq!(changed(&result), ["big/new", "big/one"]);
        for paths in [2, 0] {
            world.applies(&user, &taken, &result, paths).await;
        }
        assert_eq!(std::fs::read(user.join("big/one")).unwrap(), b"by the lane\n");
        assert_eq!(git(&user, &["status", "--porcelain"]), " M big/one\n?? big/new\n");
    }
}

#[tokio::test]
async fn pointers_are_counted_and_replaced_only_by_what_is_here() {
    let world = World::new();
    let user = world.repository("user");
    write(&user, b".gitattributes", b"*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let digest = |c: &str| c.repeat(64);
    let pointer = |c: &str| format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n", digest(c));
    write(&user, b"a.bin", pointer("a").as_bytes());
    write(&user, b"b.bin", pointer("b").as_bytes());
    write(&user, b"c.bin", b"content already\n");
    git(&user, &["add", "-A"]);
    git(&user, &["commit", "-q", "-m", "pointers"]);
    write(&user, format!(".git/lfs/objects/aa/aa/{}", digest("a")).as_bytes(), b"large");
    let unseen = |name: &str| Unseen::LfsContent { path: name.to_owned().try_into().unwrap() };

    let taken = world.take(&user).await.snapshot;
    assert_eq!((taken.summary.lfs_pointers, taken.summary.unseen), (2, vec![unseen("a.bin"), unseen("b.bin")]));
    let options = Options { lfs: LfsPolicy::FetchIfLocal, ..Options::default() };
    let taken = take(&world.client, &user, &options).await.unwrap();
    assert_eq!(taken.snapshot.summary.unseen, [unseen("b.bin")]);
    let lane = world.lane(&taken, "lane").await;
    assert_eq!(std::fs::read(lane.worktree.root.join("a.bin")).unwrap(), b"large");
}

#[tokio::test]
async fn a_ref_that_is_asked_for_and_not_there_is_named_and_a_configured_one_may_be_missing() {
    let world = World::new();
    let user = world.repository("user");
    git(&user, &["branch", "release"]);
    let plain = world.path("plain");
    std::fs::create_dir(&plain).unwrap();
    let names = |name: &str| vec![format!("refs/heads/{name}")];
    let required = |name: &str| Options { required: names(name), ..Options::default() };

    let taken = take(&world.client, &user, &required("release")).await.unwrap();
    assert!(
        taken.snapshot.refs.iter().any(|carried| carried.name == "refs/heads/release"),
        "{:?}",
        taken.snapshot.refs
    );
    for dir in [&user, &plain] {
        let error = take(&world.client, dir, &required("nope")).await.unwrap_err();
        assert!(matches!(&error, SnapshotError::NoRef { name, .. } if name == "refs/heads/nope"), "{error}");
    }
    let configured = Options { refs: names("nope"), ..Options::default() };
    take(&world.client, &user, &configured).await.unwrap();
}

#[tokio::test]
async fn conflicts_travel_as_the_files_show_them() {
    let world = World::new();
    let user = world.repository("user");
    git(&user, &["switch", "-q", "-c", "side"]);
    write(&user, b"README", b"side\n");
    git(&user, &["commit", "-q", "-a", "-m", "side"]);
    git(&user, &["switch", "-q", "main"]);
    write(&user, b"README", b"main\n");
    git(&user, &["commit", "-q", "-a", "-m", "main"]);
    let merge = std::process::Command::new("git").args(["merge", "-q", "side"]).current_dir(&user).output().unwrap();
    assert!(!merge.status.success());
    let taken = world.take(&user).await;
    assert_eq!(taken.snapshot.summary.unseen, [Unseen::Conflicts]);
    let lane = world.lane(&taken, "lane").await;
    assert_eq!(tree(&lane.worktree.root), tree(&user));
}

#[tokio::test]
async fn files_that_never_stop_changing_are_named() {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    let world = World::new();
    let user = world.repository("user");
    write(&user, b"busy", &vec![7; 8 << 20]);
    let (stop, path) = (std::sync::Arc::new(AtomicBool::new(false)), user.join("busy"));
    let stopped = stop.clone();
    let writer = std::thread::spawn(move || {
        let mut file = std::fs::File::options().append(true).open(path).unwrap();
        while !stopped.load(Ordering::Relaxed) {
            file.write_all(b"x").unwrap();
            std::thread::yield_now();
        }
    });
    let taken = take(&world.client, &user, &Options::default()).await;
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    match taken {
        Err(SnapshotError::Changed { paths }) => assert_eq!(names(paths), ["busy"]),
        other => panic!("{other:?}"),
    }
    world.take(&user).await;
}

#[tokio::test]
async fn sha256_repositories_travel_too() {
    let world = World::new();
    let user = world.repository_as("user", &["--object-format=sha256"]);
    uglify(&user);
    git(&user, &["add", "-A"]);
    git(&user, &["commit", "-q", "-m", "second"]);
    write(&user, b"more", b"more\n");
    let (_, lane) = world.begin(&user).await;
    assert!(tree(&lane.worktree.root) == tree(&user));
}
