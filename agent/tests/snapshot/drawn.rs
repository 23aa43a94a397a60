//! Drawn trees: any names, kinds and changes travel as they are, and what a lane makes of them comes home.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::world::{World, at, git, metadata, tree};

/// One change of a tree. What stands in its way goes.
#[derive(Clone, Debug)]
enum Step {
    Write { path: Vec<u8>, content: Vec<u8>, executable: bool },
    Link { path: Vec<u8>, target: Vec<u8> },
    Directory { path: Vec<u8> },
    Remove { path: Vec<u8> },
}

/// Few pieces, so that paths meet each other; no two names are one where case does not count.
fn name() -> impl Strategy<Value = Vec<u8>> {
    // Single letters and signs, then what is no UTF-8, half of a letter, and a whole one.
    let single = b"aB \"'\n\r\t\\*[?:-#!.~$%\x01\x7f\xff\xc3".iter().map(|byte| vec![*byte]);
    let pieces: Vec<Vec<u8>> = single.chain(["\u{e9}".as_bytes().to_vec()]).collect();
    let odd = vec(select(pieces), 1..5).prop_map(|pieces| pieces.concat());
    let plain = select(vec![&b"a"[..], b"c", b"d"]).prop_map(<[u8]>::to_vec);
    prop_oneof![odd, plain].prop_filter("names of their own", |name| !matches!(&name[..], b"." | b".."))
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    vec(name(), 1..4).prop_map(|names| names.join(&b'/'))
}

fn step() -> impl Strategy<Value = Step> {
    let content = vec(any::<u8>(), 0..40);
    prop_oneof![
        4 => (path(), content, any::<bool>())
            .prop_map(|(path, content, executable)| Step::Write { path, content, executable }),
        1 => (path(), name()).prop_map(|(path, target)| Step::Link { path, target }),
        1 => path().prop_map(|path| Step::Directory { path }),
        2 => path().prop_map(|path| Step::Remove { path }),
    ]
}

fn clear(path: &Path) {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Makes room for `path`: above it are directories only, and itself is not there.
fn room(root: &Path, path: &[u8]) {
    for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        let above = at(root, &path[..end]);
        if !above.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            clear(&above);
            std::fs::create_dir(&above).unwrap();
        }
    }
    clear(&at(root, path));
}

fn change(root: &Path, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Write { path, content, executable } => {
                room(root, path);
                std::fs::write(at(root, path), content).unwrap();
                let mode = if *executable { 0o755 } else { 0o644 };
                std::fs::set_permissions(at(root, path), Permissions::from_mode(mode)).unwrap();
            }
            Step::Link { path, target } => {
                room(root, path);
                symlink(OsStr::from_bytes(target), at(root, path)).unwrap();
            }
            Step::Directory { path } => {
                room(root, path);
                std::fs::create_dir(at(root, path)).unwrap();
            }
            // Never through a link.
            Step::Remove { path } if tree(root).contains_key(path) => clear(&at(root, path)),
            Step::Remove { .. } => {}
        }
    }
}

/// Committed, changed, sent, changed by a lane, and home again; in the repository's own work tree, or in a linked one.
async fn travels(committed: &[Step], changed: &[Step], by_lane: &[Step], linked: bool) {
    let world = World::new();
    let repository = world.repository("user");
    change(&repository, committed);
    git(&repository, &["add", "-A"]);
    git(&repository, &["commit", "-q", "--allow-empty", "-m", "drawn"]);
    let user = if linked {
        git(&repository, &["worktree", "add", "-q", "-b", "side", "../linked"]);
        world.path("linked")
    } else {
        repository.clone()
    };
    change(&user, changed);
    let before = metadata(&repository.join(".git"));
    let (taken, lane) = world.begin(&user).await;
    assert_eq!(taken.snapshot.summary.unseen, [], "all of it travels");
    let (mine, theirs) = (tree(&user), tree(&lane.worktree.root));
    assert!(mine == theirs, "not as it was: {}", difference(&mine, &theirs));
    let status = ["status", "--porcelain", "-z"];
    assert_eq!(git(&lane.worktree.root, &status), git(&user, &["--no-optional-locks", "status", "--porcelain", "-z"]));
    change(&lane.worktree.root, by_lane);
    let result = world.result(&taken, &lane).await;
    world.applies(&user, &taken, &result, result.changes.len()).await;
    let (mine, theirs) = (tree(&user), tree(&lane.worktree.root));
    assert!(mine == theirs, "not as the lane left it: {}", difference(&mine, &theirs));
    assert!(metadata(&repository.join(".git")) == before, "the repository was touched");
}

fn difference(mine: &crate::world::Tree, theirs: &crate::world::Tree) -> String {
    let one = |from: &crate::world::Tree, other: &crate::world::Tree| {
        let lacking = from.iter().filter(|(path, seen)| other.get(*path) != Some(seen));
        lacking.map(|(path, seen)| format!("{:?} {}", path.escape_ascii().to_string(), seen.0)).collect::<Vec<_>>()
    };
    format!("here {:?}, there {:?}", one(mine, theirs), one(theirs, mine))
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]
    #[test]
    fn any_tree_travels_as_it_is_and_any_change_comes_home(
        committed in vec(step(), 0..20),
        changed in vec(step(), 0..12),
        by_lane in vec(step(), 0..12),
        linked in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(travels(&committed, &changed, &by_lane, linked));
    }
}
