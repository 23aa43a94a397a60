use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use agent::snapshot::result::{self, Outcome, ResultTree};
use agent::snapshot::{Cache, History, Lease, Options, Place, Snapshot, Taken, Worktree, materialize, take, transfer};
use agent::worktree::git::Git;

pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) client: Cache,
    pub(crate) worker: Cache,
}

/// A file as seen without following it: kind and executable bit, content.
pub(crate) type Tree = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cache = |name| Cache::open(&dir.path().join(name), 1 << 30, &Git::new()).unwrap();
        let (client, worker) = (cache("client"), cache("worker"));
        Self { dir, client, worker }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// A repository with one commit on `main`.
    pub(crate) fn repository(&self, name: &str) -> PathBuf {
        self.repository_as(name, &[])
    }

    /// The same, made with these words.
    pub(crate) fn repository_as(&self, name: &str, words: &[&str]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        git(&path, &[&["init", "-q", "-b", "main"], words].concat());
        write(&path, b"README", b"hello\n");
        write(&path, b"src/main.c", b"int main;\n");
        git(&path, &["add", "-A"]);
        git(&path, &["commit", "-q", "-m", "first"]);
        path
    }

    pub(crate) async fn take(&self, dir: &Path) -> Taken {
        take(&self.client, dir, &Options::default()).await.unwrap()
    }

    /// Sends a snapshot to the worker and checks it out there.
    pub(crate) async fn lane(&self, taken: &Taken, name: &str) -> Lane {
        let lease = self.worker.lease(&taken.snapshot.project, taken.snapshot.format).unwrap();
        let parcel = transfer::Parcel::snapshot(&taken.snapshot).unwrap();
        self::send(&taken.lease, &parcel, &lease, History::Full).await;
        let snapshot = Snapshot::load(&lease, taken.snapshot.id().unwrap()).await.unwrap();
        let place = Place { work_tree: self.path(name), private: self.path(&format!("{name}.private")), owner: None };
        let worktree = materialize(&lease, &snapshot, &place).await.unwrap();
        Lane { lease, snapshot, worktree }
    }

    /// A snapshot, and a lane that starts from it.
    pub(crate) async fn begin(&self, dir: &Path) -> (Taken, Lane) {
        let taken = self.take(dir).await;
        let lane = self.lane(&taken, "lane").await;
        (taken, lane)
    }

    /// Applies a result that changes so many paths of `dir`.
    pub(crate) async fn applies(&self, dir: &Path, taken: &Taken, result: &ResultTree, paths: usize) {
        let outcome = result::apply(&self.client, dir, &taken.snapshot, result).await.unwrap();
        assert!(matches!(outcome, Outcome::Applied { paths: found } if found == paths), "{outcome:?}, not {paths}");
    }

    /// Collects on the worker and brings the result back.
    pub(crate) async fn result(&self, taken: &Taken, lane: &Lane) -> ResultTree {
        let collected = result::collect(&lane.lease, &lane.worktree, &lane.snapshot).await.unwrap();
        let parcel = transfer::Parcel::result(&lane.snapshot, &collected);
        send(&lane.lease, &parcel, &taken.lease, History::Full).await;
        let loaded = ResultTree::load(&taken.lease, &taken.snapshot, &collected.id).await.unwrap();
        assert_eq!(loaded, collected, "both sides must judge alike");
        loaded
    }
}

pub(crate) struct Lane {
    pub(crate) lease: Lease,
    pub(crate) snapshot: Snapshot,
    pub(crate) worktree: Worktree,
}

/// Bytes that were sent.
pub(crate) async fn send(from: &Lease, parcel: &transfer::Parcel, to: &Lease, history: History) -> u64 {
    let offer = transfer::offer(from, parcel).await.unwrap();
    let have = transfer::answer(to, &offer).await.unwrap();
    let packed = transfer::pack(from, parcel, &have, history).await.unwrap();
    let bytes = packed.ticket.bytes;
    let reader = packed.reader(transfer::arrived(to, &packed.ticket)).await.unwrap();
    transfer::receive(to, &packed.ticket, reader).await.unwrap();
    packed.delivered(from).unwrap();
    bytes
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn at(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(name))
}

pub(crate) fn write(dir: &Path, name: &[u8], bytes: &[u8]) {
    let path = at(dir, name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

pub(crate) fn executable(dir: &Path, name: &[u8]) {
    std::fs::set_permissions(at(dir, name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Every kind of file and name that can be in a work tree, none of it committed.
pub(crate) fn uglify(dir: &Path) {
    write(dir, b"a b/c d", b"blanks\n");
    write(dir, b"new\nline/fi\nle", b"line feeds\n");
    write(dir, b"quo\"te's\\", b"quotes\n");
    write(dir, b"tab\there", b"tab\n");
    write(dir, b"\xff\xfe/\x80", b"no utf-8\n");
    write(dir, "ünïcødé/日本".as_bytes(), b"unicode\n");
    write(dir, b"-rf", b"dash\n");
    write(dir, b":(top)magic*?[x]", b"magic\n");
    write(dir, b"crlf.txt", b"one\r\ntwo\r\n");
    write(dir, b"binary", &(0..=255).cycle().take(70_000).collect::<Vec<u8>>());
    write(dir, b"empty", b"");
    write(dir, b"run.sh", b"#!/bin/sh\n");
    executable(dir, b"run.sh");
    symlink("run.sh", dir.join("link")).unwrap();
    symlink("no/such/thing", dir.join("dangling")).unwrap();
    symlink(OsStr::from_bytes(b"\xff"), dir.join("odd-target")).unwrap();
    std::fs::create_dir_all(dir.join("hollow/inner")).unwrap();
    std::fs::create_dir_all(dir.join("src/hollow too")).unwrap();
    std::fs::create_dir(dir.join(":(magic)hollow")).unwrap();
}

/// What is on disk below `dir`, without Git's directory at the top.
pub(crate) fn tree(dir: &Path) -> Tree {
    let mut all = Tree::new();
    let mut open = vec![dir.to_owned()];
    while let Some(here) = open.pop() {
        for entry in std::fs::read_dir(&here).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().as_os_str().as_bytes().to_vec();
            if name == b".git" {
                continue;
            }
            let meta = path.symlink_metadata().unwrap();
            let seen = if meta.is_symlink() {
                ("link".to_owned(), std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else if meta.is_dir() {
                open.push(path);
                ("directory".to_owned(), Vec::new())
            } else {
                (format!("file {}", meta.mode() & 0o100 != 0), std::fs::read(&path).unwrap())
            };
            all.insert(name, seen);
        }
    }
    all
}

/// Sets every time below to one long ago: whatever is touched later shows.
pub(crate) fn age(dir: &Path) {
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        if path.symlink_metadata().unwrap().is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        std::fs::File::open(&path).unwrap().set_modified(long_ago).unwrap();
    }
}

/// Git's directory, byte by byte, with times of change.
pub(crate) fn metadata(git_dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let mut all = BTreeMap::new();
    let mut open = vec![git_dir.to_owned()];
    while let Some(here) = open.pop() {
        for entry in std::fs::read_dir(&here).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let bytes = if meta.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            all.insert(path, (bytes, meta.mtime(), meta.mtime_nsec()));
        }
    }
    all
}

/// Paths that a result changes.
pub(crate) fn changed(result: &ResultTree) -> Vec<String> {
    names(result.changes.iter().map(|change| &change.path))
}

pub(crate) fn names<T: ToString>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(|item| item.to_string()).collect()
}

/// The one project of a store.
pub(crate) fn project(store: &Path) -> PathBuf {
    let mut dirs = std::fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let project = dirs.next().expect("a project");
    assert!(dirs.next().is_none(), "more than one");
    project
}

/// The objects of a project's repository, by name.
pub(crate) fn objects(project: &Path) -> Vec<String> {
    let listed = Command::new("git")
        .args(["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"])
        .env("GIT_DIR", project.join("repository.git"))
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
}

/// Names of the private directories in a project.
pub(crate) fn scratch(project: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(project.join("tmp")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}
