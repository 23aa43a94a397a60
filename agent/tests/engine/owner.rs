//! Whose files a lane writes, and what it sees of Git.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use agent::container::Access;
use agent::container::identity::UserMapping;
use agent::descriptor::Mode;
use agent::worktree::git::Git;
use agent::worktree::nonce::{self, Nonce};
use agent::worktree::{Kind, Pointer, ownership};

use crate::fixture::{Lane, Which, git, on_every_engine, ordinary_uid, repository};

on_every_engine! {
    written_files_belong_to_the_worktrees_owner = natural_owner;
    git_works_and_its_metadata_cannot_be_written_in_every_kind_of_worktree = kinds;
    a_reader_cannot_write = reader;
    hooks_and_monitors_of_the_repository_never_run = hooks;
    the_nonce_is_read_back_and_leaves_no_trace = nonce_read_back;
}

const WRITE: &str = "mkdir -p d && echo x > d/new && echo more >> existing && chmod 755 existing && id -u";

async fn natural_owner(which: Which) {
    writes_as(which, which.natural_owner()).await;
}

#[tokio::test]
async fn files_of_an_ordinary_users_worktree_stay_theirs_on_docker() {
    writes_as(Which::Docker, ordinary_uid()).await;
}

#[tokio::test]
async fn files_of_an_ordinary_users_worktree_stay_theirs_on_podman() {
    writes_as(Which::Podman, ordinary_uid()).await;
}

async fn writes_as(which: Which, uid: u32) {
    let lane = Lane::new(which).await;
    let cwd = lane.directory("wt", uid);
    std::fs::write(cwd.join("existing"), "x").unwrap();
    run_mode(&cwd, "0700");
    lane.give(&cwd, uid);
    let plan = lane.plan(&cwd, Mode::IsolatedWrite).await;
    let before = ownership::baseline(&Git::new(), &plan).await.unwrap();
    let began = SystemTime::now();
    let (code, text) = lane.script(&plan, WRITE).await;
    assert_eq!(code, 0, "{text}");
    assert_ne!(text.trim(), "0", "the lane is an unprivileged user");
    for name in ["d", "d/new", "existing"] {
        assert_eq!(cwd.join(name).metadata().unwrap().uid(), uid, "{name}");
    }
    assert_eq!(ownership::check(&Git::new(), &plan, &before, began).await.unwrap(), None);
    assert!(!lane.attempt_dir.join("mounts").exists(), "helper mounts are gone after the start");
    // The check can fail.
    std::fs::write(cwd.join("foreign"), "x").unwrap();
    lane.give(&cwd.join("foreign"), uid + 1);
    let finding = ownership::check(&Git::new(), &plan, &before, began).await.unwrap().unwrap();
    assert!(finding.detail.contains("/foreign`"), "{finding:?}");
}

fn run_mode(path: &Path, mode: &str) {
    crate::fixture::run("chmod", &[mode, path.to_str().unwrap()]);
}

#[tokio::test]
async fn a_worktree_of_somebody_else_is_refused_by_name_on_a_rootless_engine() {
    let lane = Lane::new(Which::Rootless).await;
    let cwd = lane.directory("wt", 0);
    let plan = lane.plan(&cwd, Mode::IsolatedWrite).await;
    let error =
        agent::container::prepare::prepare(lane.engine.info(), &plan, &lane.attempt_dir, &lane.run_dir).unwrap_err();
    assert!(error.to_string().contains("belongs to uid 0"), "{error}");
}

#[tokio::test]
async fn helper_mounts_of_a_killed_agent_are_found_and_detached() {
    let lane = Lane::new(Which::Docker).await;
    let cwd = lane.directory("wt", 0);
    std::fs::write(cwd.join("kept"), "x").unwrap();
    let plan = lane.plan(&cwd, Mode::IsolatedWrite).await;
    let prepared = lane.prepare(&plan);
    assert_eq!(prepared.identity.mapping, UserMapping::Idmapped);
    std::mem::forget(prepared);
    let table = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(table().contains(lane.attempt_dir.to_str().unwrap()));
    agent::container::prepare::sweep_mounts(&lane.attempt_dir);
    assert!(!table().contains(lane.attempt_dir.to_str().unwrap()));
    assert!(cwd.join("kept").exists(), "only the mounts went away");
}

/// Main repository, its subdirectory, a linked worktree with an absolute and one with a relative pointer.
async fn kinds(which: Which) {
    let uid = which.natural_owner();
    let lane = Lane::new(which).await;
    let base = lane.directory("repos", uid);
    let main = base.join("main");
    repository(&main);
    std::fs::create_dir(main.join("sub")).unwrap();
    std::fs::write(main.join("sub/file"), "x").unwrap();
    let absolute = base.join("absolute");
    let relative = base.join("relative");
    git(&main, &["worktree", "add", "-q", "--no-track", "-b", "a", absolute.to_str().unwrap()]);
    let relative_possible = std::process::Command::new("git")
        .args([
            "-C",
            main.to_str().unwrap(),
            "-c",
            "safe.directory=*",
            "worktree",
            "add",
            "-q",
            "--relative-paths",
            "-b",
            "r",
        ])
        .arg(&relative)
        .output()
        .unwrap()
        .status
        .success();
    if !relative_possible {
        // Git before 2.48 reads relative pointers and cannot make them.
        git(&main, &["worktree", "add", "-q", "--no-track", "-b", "r", relative.to_str().unwrap()]);
        std::fs::write(relative.join(".git"), "gitdir: ../main/.git/worktrees/relative\n").unwrap();
    }
    lane.give(&base, uid);
    let mut lane = lane;
    for (cwd, kind) in
        [(main.clone(), "main"), (main.join("sub"), "sub"), (absolute, "absolute"), (relative, "relative")]
    {
        for mode in [Mode::IsolatedWrite, Mode::ReadOnly] {
            lane.attempt = agent::ids::AttemptId::generate();
            let plan = lane.plan(&cwd, mode).await;
            match (kind, &plan.kind) {
                ("main" | "sub", Kind::Repository { .. }) => {}
                ("absolute", Kind::Linked { pointer, .. }) => assert_eq!(*pointer, Pointer::Absolute),
                ("relative", Kind::Linked { pointer, .. }) => assert_eq!(*pointer, Pointer::Relative),
                other => panic!("{other:?}"),
            }
            assert_eq!(plan.is_subdirectory(), kind == "sub");
            inside(&lane, &plan, kind, mode).await;
        }
    }
    // The siblings are still good afterwards.
    assert!(!git(&main, &["worktree", "list", "--porcelain"]).contains("prunable"));
    assert_eq!(git(&main, &["status", "--porcelain", "tracked"]), "");
    git(&main, &["fsck", "--no-progress"]);
}

async fn inside(lane: &Lane, plan: &agent::worktree::WorktreePlan, kind: &str, mode: Mode) {
    let writes = mode == Mode::IsolatedWrite;
    if writes {
        assert!(
            plan.mounts.iter().any(|mount| mount.target == plan.root.join(".git") && mount.access == Access::ReadOnly)
        );
    }
    let script = r#"
        set -e
        top=$(git rev-parse --show-toplevel); common=$(git rev-parse --path-format=absolute --git-common-dir)
        git log --oneline | grep -c first; git status --porcelain >/dev/null; git diff >/dev/null
        [ "$(cat $top/tracked)" = one ]
        set +e
        (echo x > written) 2>/dev/null && echo wrote && rm written
        (echo x >> $common/HEAD) 2>/dev/null && echo "VIOLATION head"
        (: > $common/refs/heads/evil) 2>/dev/null && echo "VIOLATION ref"
        (: > $common/hooks/pre-commit) 2>/dev/null && echo "VIOLATION hook"
        git -c core.hooksPath=/tmp add . 2>/dev/null && [ -n "$(git status --porcelain)" ] && echo "VIOLATION add"
        git update-ref refs/heads/evil HEAD 2>/dev/null && echo "VIOLATION update-ref"
        git config evil.key x 2>/dev/null && echo "VIOLATION config"
        git gc --prune=now 2>/dev/null; git worktree prune 2>/dev/null
        mv $top/.git $top/elsewhere 2>/dev/null && echo "VIOLATION mv"
        rm -rf $top/.git 2>/dev/null; [ -e $top/.git ] || echo "VIOLATION rm"
        ln $common/HEAD $top/link 2>/dev/null && echo "VIOLATION link"
        git log --oneline | grep -c first
    "#;
    let (code, text) = lane.script(plan, script).await;
    assert_eq!(code, 0, "{kind} {mode:?}: {text}");
    assert!(!text.contains("VIOLATION") && !text.contains("dubious"), "{kind} {mode:?}: {text}");
    assert_eq!(text.contains("wrote"), writes, "{kind} {mode:?}: {text}");
    assert_eq!(text.lines().filter(|line| *line == "1").count(), 2, "{kind} {mode:?}: {text}");
}

async fn reader(which: Which) {
    let lane = Lane::new(which).await;
    let cwd = lane.directory("wt", which.natural_owner());
    let plan = lane.plan(&cwd, Mode::ReadOnly).await;
    let (_, text) = lane.script(&plan, "(: > file) 2>&1; mkdir d 2>&1; ls -A").await;
    assert!(text.contains("Read-only file system"), "{text}");
    assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 0);
}

async fn hooks(which: Which) {
    let uid = which.natural_owner();
    let lane = Lane::new(which).await;
    let base = lane.directory("repos", uid);
    let main = base.join("main");
    repository(&main);
    let marker = main.join("marker");
    let script = base.join("evil");
    std::fs::write(&script, format!("#!/bin/sh\n: > {}\n", marker.display())).unwrap();
    run_mode(&script, "0755");
    let evil = script.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.sshCommand",
        "credential.helper",
        "filter.f.clean",
        "filter.f.process",
        "diff.external",
        "core.pager",
    ] {
        git(&main, &["config", key, evil]);
    }
    git(&main, &["config", "filter.f.required", "true"]);
    git(&main, &["config", "remote.origin.url", "https://me:s3cret@host.test/x.git"]);
    for hook in ["post-index-change", "post-checkout", "pre-commit", "reference-transaction", "fsmonitor-watchman"] {
        std::fs::copy(&script, main.join(".git/hooks").join(hook)).unwrap();
    }
    std::fs::write(main.join(".gitattributes"), "* filter=f\n").unwrap();
    std::fs::write(main.join("tracked"), "two\n").unwrap();
    lane.give(&base, uid);
    let plan = lane.plan(&main, Mode::IsolatedWrite).await;
    ownership::baseline(&Git::new(), &plan).await.unwrap();
    assert!(!marker.exists(), "something of the repository ran on the host");
    let asked = "git status --porcelain; git diff --stat; git log -1; git remote -v; cat .git/config; ls .git/hooks";
    let (_, text) = lane.script(&plan, asked).await;
    assert!(!marker.exists(), "something of the repository ran inside: {text}");
    assert!(!text.contains("s3cret") && !text.contains("pre-commit"), "{text}");
    assert!(text.contains("https://host.test/x.git"), "{text}");
    let named = plan.findings.iter().find(|finding| finding.name == "git-config-redacted").unwrap();
    assert!(named.detail.contains("remote.origin.url") && !named.detail.contains("s3cret"), "{named:?}");
    assert!(git(&main, &["config", "remote.origin.url"]).contains("s3cret"), "the original is untouched");
}

async fn nonce_read_back(which: Which) {
    let lane = Lane::new(which).await;
    let cwd = lane.directory("wt", which.natural_owner());
    for mode in [Mode::ReadOnly, Mode::IsolatedWrite] {
        let mut lane_again = Lane::new(which).await;
        lane_again.attempt = agent::ids::AttemptId::generate();
        let plan = lane_again.plan(&cwd, mode).await;
        let nonce = Nonce::write(&plan, &lane_again.attempt_dir).unwrap();
        let path: PathBuf = nonce.path().to_owned();
        let (code, text) = lane_again.script(&plan, &format!("echo $(cat {})", path.display())).await;
        assert_eq!(code, 0, "{text}");
        nonce.check(Some(text.trim_end().as_bytes())).unwrap();
        nonce.check(Some(b"else")).unwrap_err();
        let error = nonce.check(None).unwrap_err().to_string();
        assert!(error.contains(cwd.to_str().unwrap()), "{error}");
        nonce.remove();
        assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 0);
        // A killed agent's file is found by its record.
        std::mem::forget(Nonce::write(&plan, &lane_again.attempt_dir).unwrap());
        assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 1);
        nonce::remove_stale(&lane_again.attempt_dir);
        assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 0);
    }
    drop(lane);
}
