use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use agent::snapshot::SnapshotError;
use agent::snapshot::result::{Finding, Outcome, apply, export};

use crate::world::{World, at, changed, executable, git, metadata, names, tree, uglify, write};

fn change_everything(dir: &Path) {
    write(dir, b"README", b"changed\n");
    std::fs::rename(dir.join("src/main.c"), dir.join("moved.c")).unwrap();
    std::fs::remove_dir_all(at(dir, b"new\nline")).unwrap();
    write(dir, b"\xff\xfe/\x80", b"\x00\x01changed\xff");
    write(dir, b"\xfe new/\xfd", b"new\n");
    executable(dir, b"empty");
    std::fs::set_permissions(dir.join("run.sh"), std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::remove_file(dir.join("link")).unwrap();
    symlink("binary", dir.join("link")).unwrap();
    // A file becomes a directory, a directory a file, a link a file, a file a link.
    std::fs::remove_file(dir.join("tab\there")).unwrap();
    write(dir, b"tab\there/below", b"deep\n");
    std::fs::remove_dir_all(dir.join("a b")).unwrap();
    write(dir, b"a b", b"flat\n");
    std::fs::remove_file(dir.join("dangling")).unwrap();
    write(dir, b"dangling", b"real\n");
    std::fs::remove_file(dir.join("-rf")).unwrap();
    symlink("README", dir.join("-rf")).unwrap();
    std::fs::remove_dir(dir.join("hollow/inner")).unwrap();
    std::fs::create_dir_all(dir.join("hollow/other/deep")).unwrap();
}

#[tokio::test]
async fn every_kind_of_change_arrives_and_git_is_not_touched() {
    let world = World::new();
    let user = world.repository("user");
    uglify(&user);
    std::fs::set_permissions(user.join("README"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let (taken, lane) = world.begin(&user).await;
    change_everything(&lane.worktree.root);
    let expected = tree(&lane.worktree.root);
    let before = metadata(&user.join(".git"));
    let result = world.result(&taken, &lane).await;
    assert!(result.findings.is_empty(), "{:?}", result.findings);

    let patched = world.path("patched");
    git(world.dir.path(), &["clone", "-q", "user", "patched"]);
    uglify(&patched);
    let patch = world.path("patch");
    std::fs::write(&patch, export(&taken.lease, &taken.snapshot, &result).await.unwrap()).unwrap();
    git(&patched, &["apply", patch.to_str().unwrap()]);
    let files = |tree: crate::world::Tree| {
        tree.into_iter().filter(|(_, (kind, _))| kind != "directory").collect::<crate::world::Tree>()
    };
    assert!(files(tree(&patched)) == files(expected.clone()), "the patch says something else");

    world.applies(&user, &taken, &result, result.changes.len()).await;
    let found = tree(&user);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected);
    assert!(metadata(&user.join(".git")) == before);
    assert_eq!(user.join("README").metadata().unwrap().permissions().mode() & 0o777, 0o600);

    world.applies(&user, &taken, &result, 0).await;
}

#[tokio::test]
async fn if_anything_moved_nothing_is_written() {
    let world = World::new();
    let user = world.repository("user");
    uglify(&user);
    let (taken, lane) = world.begin(&user).await;
    change_everything(&lane.worktree.root);
    let result = world.result(&taken, &lane).await;

    write(&user, b"src/main.c", b"meanwhile\n");
    write(&user, b"unrelated", b"meanwhile\n");
    let before = tree(&user);
    let outcome = apply(&world.client, &user, &taken.snapshot, &result).await.unwrap();
    let Outcome::Moved { which } = outcome else { panic!("{outcome:?}") };
    assert_eq!(which, ["src/main.c", "unrelated"]);
    assert!(tree(&user) == before);

    write(&user, b"src/main.c", b"int main;\n");
    std::fs::remove_file(user.join("unrelated")).unwrap();
    git(&user, &["commit", "-q", "--allow-empty", "-m", "moved"]);
    let outcome = apply(&world.client, &user, &taken.snapshot, &result).await.unwrap();
    assert!(matches!(&outcome, Outcome::Moved { which } if which == &["HEAD"]), "{outcome:?}");
}

#[tokio::test]
async fn an_ignored_file_in_the_way_is_never_overwritten() {
    let world = World::new();
    let user = world.repository("user");
    write(&user, b".gitignore", b"secret\n");
    let (taken, lane) = world.begin(&user).await;
    write(&lane.worktree.root, b".gitignore", b"");
    write(&lane.worktree.root, b"secret", b"theirs\n");
    write(&lane.worktree.root, b"zzz", b"last\n");
    let result = world.result(&taken, &lane).await;
    write(&user, b"secret", b"mine\n");
    let before = tree(&user);
    let outcome = apply(&world.client, &user, &taken.snapshot, &result).await.unwrap();
    assert!(matches!(&outcome, Outcome::Moved { which } if which == &["secret"]), "{outcome:?}");
    assert!(tree(&user) == before, "everything else must be put back");
}

#[tokio::test]
async fn what_leads_elsewhere_is_refused_and_named() {
    let world = World::new();
    let user = world.repository("user");
    let (taken, lane) = world.begin(&user).await;
    let root = &lane.worktree.root;
    symlink("../../victim", root.join("up")).unwrap();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    symlink("../.git/hooks/post-checkout", root.join("src/hook")).unwrap();
    symlink("../README", root.join("src/fine")).unwrap();
    write(root, b"readme", b"collides\n");
    write(root, b"SRC/other", b"collides above\n");
    write(root, b"sub/.GIT/config", b"[core]\n");
    let result = world.result(&taken, &lane).await;
    let mut found = names(&result.findings);
    found.sort();
    assert_eq!(
        found,
        [
            "`README` and `readme` are one name where case does not count",
            "`SRC` and `src` are one name where case does not count",
            "`absolute` is a link to `/etc/passwd`, outside the work tree",
            "`src/hook -> ../.git/hooks/post-checkout` leads through Git's own directory",
            "`sub/.GIT/config` leads through Git's own directory",
            "`up` is a link to `../../victim`, outside the work tree",
        ]
    );
    let before = tree(&user);
    let outcome = apply(&world.client, &user, &taken.snapshot, &result).await.unwrap();
    assert!(matches!(&outcome, Outcome::Refused { why } if why.len() == 6), "{outcome:?}");
    assert!(tree(&user) == before);
    assert!(result.findings.iter().all(Finding::refuses));
}

#[tokio::test]
async fn a_lanes_own_git_directory_and_repositories_do_not_matter() {
    let world = World::new();
    let user = world.repository("user");
    let (taken, lane) = world.begin(&user).await;
    let root = &lane.worktree.root;
    let trap = world.path("trap");
    git(root, &["config", "core.fsmonitor", &format!("touch {}", trap.display())]);
    write(root, b".git/info/attributes", b"* filter=x\n");
    git(root, &["config", "filter.x.clean", &format!("touch {}; cat", trap.display())]);
    write(root, b".git/info/exclude", b"*\n");
    write(root, b"new", b"new\n");
    std::fs::create_dir(root.join("own")).unwrap();
    git(&root.join("own"), &["init", "-q"]);
    write(root, b"own/file", b"own\n");
    git(&root.join("own"), &["add", "-A"]);
    git(&root.join("own"), &["commit", "-q", "-m", "own"]);
    std::fs::remove_dir_all(root.join(".git/objects")).unwrap();
    let result = world.result(&taken, &lane).await;
    assert_eq!(changed(&result), ["new", "own/file"]);
    assert!(!trap.exists());
    world.applies(&user, &taken, &result, 2).await;
    assert!(!user.join("own/.git").exists());
}

#[tokio::test]
async fn a_result_goes_only_to_the_repository_it_came_from() {
    let world = World::new();
    let user = world.repository("user");
    git(&user, &["worktree", "add", "-q", "../linked"]);
    let (linked, plain, other) = (world.path("linked"), world.path("plain"), world.repository("other"));
    write(&plain, b"README", b"hello\n");
    for (from, elsewhere) in [(&user, [&plain, &other]), (&plain, [&user, &other])] {
        let taken = world.take(from).await;
        let lane = world.lane(&taken, &format!("lane of {}", from.file_name().unwrap().display())).await;
        write(&lane.worktree.root, b"README", b"changed\n");
        let result = world.result(&taken, &lane).await;
        drop(taken.lease);
        let projects = || std::fs::read_dir(world.path("client")).unwrap().count();
        let before = projects();
        for dir in elsewhere {
            let refused = apply(&world.client, dir, &taken.snapshot, &result).await;
            assert!(matches!(refused, Err(SnapshotError::Elsewhere { .. })), "{refused:?}");
        }
        assert_eq!(projects(), before, "nothing of another directory is taken");
        let fitting = if *from == user { &linked } else { &plain };
        let outcome = apply(&world.client, fitting, &taken.snapshot, &result).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { paths: 1 }), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_directory_that_became_a_link_is_not_followed() {
    let world = World::new();
    let user = world.repository("user");
    let (taken, lane) = world.begin(&user).await;
    write(&lane.worktree.root, b"src/main.c", b"changed\n");
    let result = world.result(&taken, &lane).await;
    let outside = world.path("outside");
    std::fs::rename(user.join("src"), &outside).unwrap();
    symlink(&outside, user.join("src")).unwrap();
    let outcome = apply(&world.client, &user, &taken.snapshot, &result).await.unwrap();
    assert!(matches!(outcome, Outcome::Moved { .. }), "{outcome:?}");
    assert_eq!(std::fs::read(outside.join("main.c")).unwrap(), b"int main;\n");
}
