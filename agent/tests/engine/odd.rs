//! Working directories in unusual places, and repositories that are spread over the disk.

use std::path::{Path, PathBuf};

use agent::container::identity::{Owner, UserMapping, choose};
use agent::container::prepare::{PrepareError, prepare};
use agent::descriptor::Mode;
use agent::doctor::{self, State};
use agent::ids::AttemptId;
use agent::worktree::{self, git::Git};

use crate::fixture::{Lane, Which, git, on_every_engine, repository, run};

on_every_engine! {
    a_repository_spread_over_the_disk_works_inside = spread;
    unusual_paths_are_mounted_where_they_are = unusual_paths;
}

const LOOK: &str =
    "git log --oneline | grep -c first && git status --porcelain && git diff --stat && git fsck --no-progress 2>&1";

/// Alternates, a separate Git directory, a submodule, and a `.git` file that leads through a link.
async fn spread(which: Which) {
    let uid = which.natural_owner();
    let mut lane = Lane::new(which).await;
    let base = lane.directory("repos", uid);
    let main = base.join("main");
    repository(&main);
    let shared = base.join("shared");
    git(&base, &["clone", "-q", "--shared", main.to_str().unwrap(), shared.to_str().unwrap()]);
    let separate = base.join("separate");
    let elsewhere = base.join("elsewhere.git");
    let flag = format!("--separate-git-dir={}", elsewhere.display());
    git(&base, &["clone", "-q", &flag, main.to_str().unwrap(), separate.to_str().unwrap()]);
    let parent = base.join("parent");
    repository(&parent);
    git(&parent, &["-c", "protocol.file.allow=always", "submodule", "add", "-q", main.to_str().unwrap(), "sub"]);
    git(&parent, &["commit", "-q", "-m", "with a submodule"]);
    let linked = base.join("linked");
    git(&main, &["worktree", "add", "-q", "--no-track", "-b", "l", linked.to_str().unwrap()]);
    std::os::unix::fs::symlink(&main, base.join("alias")).unwrap();
    let through_link = format!("gitdir: {}/alias/.git/worktrees/linked\n", base.display());
    std::fs::write(linked.join(".git"), through_link).unwrap();
    lane.give(&base, uid);
    for cwd in [shared, separate, parent.join("sub"), parent.clone(), linked] {
        lane.attempt = AttemptId::generate();
        let plan = lane.plan(&cwd, Mode::IsolatedWrite).await;
        let (code, text) = lane.script(&plan, LOOK).await;
        assert_eq!((code, text.contains("missing")), (0, false), "{}: {text}", cwd.display());
        assert!(text.starts_with('1'), "{}: {text}", cwd.display());
        lane.attempt = AttemptId::generate();
        let evil = "for git in .git sub/.git; do [ -e $git ] || continue; rm -rf $git 2>/dev/null; [ -e $git ] || echo VIOLATION; done";
        let (_, text) = lane.script(&plan, evil).await;
        assert!(!text.contains("VIOLATION"), "{}: {text}", cwd.display());
    }
}

async fn unusual_paths(which: Which) {
    let uid = which.natural_owner();
    let mut lane = Lane::new(which).await;
    let mut places: Vec<(PathBuf, Option<tempfile::TempDir>)> =
        vec![(lane.directory("with blank: and 'quote'", uid), None), (lane.directory("-dash/ünïcode", uid), None)];
    let in_tmp = tempfile::Builder::new().prefix("laneyard-engine-").tempdir_in("/tmp").unwrap();
    places.push((in_tmp.path().to_owned(), Some(in_tmp)));
    if which != Which::Rootless {
        let in_root = tempfile::Builder::new().prefix("laneyard-engine-").tempdir_in("/root").unwrap();
        places.push((in_root.path().to_owned(), Some(in_root)));
    }
    for (cwd, _guard) in &places {
        repository(cwd);
        lane.give(cwd, uid);
        lane.attempt = AttemptId::generate();
        let plan = lane.plan(cwd, Mode::IsolatedWrite).await;
        let (code, text) = lane.script(&plan, "pwd && git status --porcelain && echo x > new && echo done").await;
        assert_eq!(code, 0, "{}: {text}", cwd.display());
        assert_eq!(text.lines().next(), cwd.to_str(), "{text}");
        assert_eq!(std::fs::read_to_string(cwd.join("new")).unwrap(), "x\n");
    }
}

#[tokio::test]
async fn root_without_capabilities_is_the_fallback_and_a_finding() {
    let engine = Which::Docker.open().await;
    let root = Owner { uid: 0, gid: 0 };
    let user = Owner { uid: 1234, gid: 1235 };
    let identity = choose(engine.info(), root, root, true, false).unwrap();
    assert_eq!((identity.uid, identity.mapping), (0, UserMapping::PowerlessRoot));
    // An ordinary agent on root's directory lends nobody root's rights.
    let identity = choose(engine.info(), root, user, true, true).unwrap();
    assert_eq!((identity.uid, identity.gid, identity.mapping), (1234, 1235, UserMapping::Direct));

    let lane = Lane::new(Which::Docker).await;
    let cwd = lane.directory("wt", 0);
    let plan = lane.plan(&cwd, Mode::IsolatedWrite).await;
    let prepared = lane.prepare(&plan);
    let mut spec = lane.spec(&plan, &prepared, "echo x > new; id -u; echo ready; exec sleep 600").await;
    spec.identity = choose(engine.info(), root, root, true, false).unwrap();
    spec.mounts = plan.mounts.clone();
    let id = lane.engine.create(&spec).await.unwrap();
    lane.engine.start(&id).await.unwrap();
    let running = crate::fixture::Running { engine: lane.engine.clone(), id, spec };
    running.printed("ready").await;
    let (_, report) = lane.engine.isolation(&running.id, &running.spec).await.unwrap();
    assert_eq!(report.violations(), []);
    assert_eq!(report.kernel.map(|kernel| kernel.effective_capabilities), Some(0));
    assert!(report.findings.iter().any(|finding| finding.name == "runs-as-powerless-root"));
    assert_eq!(Owner::of(&cwd.join("new")).unwrap(), root);
}

#[tokio::test]
async fn directories_that_would_show_private_things_are_refused_by_name() {
    let lane = Lane::new(Which::Docker).await;
    let git = Git::new();
    let private = lane.attempt_dir.clone();
    let state = lane.base.path().join("state");
    let refused = async |cwd: &Path| {
        let forbidden = [state.clone()];
        worktree::plan(&git, cwd, Mode::ReadOnly, &private, &forbidden).await.unwrap_err().to_string()
    };
    for cwd in ["/", "/etc", "/proc/self/fdinfo", "/usr"] {
        assert!(refused(Path::new(cwd)).await.contains("cannot be a lane's"), "{cwd}");
    }
    assert!(refused(&private).await.contains("private"));
    assert!(refused(lane.base.path()).await.contains("private"), "a parent shows it as well");
    assert!(refused(&lane.base.path().join("absent")).await.contains("cannot be opened"));
    let file = lane.base.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(refused(&file).await.contains("not a directory"));
    let run_dir = Path::new("/run");
    let plan_of = |cwd: &'static str| worktree::plan(&git, Path::new(cwd), Mode::ReadOnly, &private, &[]);
    if run_dir.join("docker").is_dir() {
        // Below /run but without a socket of the engine: allowed; with one: not.
        plan_of("/run/docker").await.unwrap();
    }
    let plan = plan_of("/var/lib/docker").await.unwrap();
    let error = prepare(lane.engine.info(), &plan, &private, &lane.run_dir).unwrap_err();
    assert!(matches!(error, PrepareError::EngineStorage { .. }), "{error}");
}

#[tokio::test]
async fn broken_and_hostile_repositories_are_named() {
    let lane = Lane::new(Which::Docker).await;
    let base = lane.directory("repos", 0);
    let plan = async |cwd: &Path| worktree::plan(&Git::new(), cwd, Mode::ReadOnly, &lane.attempt_dir, &[]).await;
    let broken = base.join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join(".git"), "gitdir: /nowhere/at/all\n").unwrap();
    let text = plan(&broken).await.unwrap_err().to_string();
    assert!(text.contains("cannot be resolved") && text.contains("/nowhere/at/all"), "{text}");
    let main = base.join("main");
    repository(&main);
    let text = plan(&main.join(".git")).await.unwrap_err().to_string();
    assert!(text.contains("Git's own metadata"), "{text}");
    // The configuration of a repository must not choose what is mounted.
    git(&main, &["config", "core.worktree", base.to_str().unwrap()]);
    let text = plan(&main).await.unwrap_err().to_string();
    assert!(text.contains("cannot be resolved"), "{text}");
    git(&main, &["config", "--unset", "core.worktree"]);
    // An alternate that is no object directory is not mounted.
    std::fs::write(main.join(".git/objects/info/alternates"), "/etc\n").unwrap();
    let plan = plan(&main).await.unwrap();
    assert!(!plan.mounts.iter().any(|mount| mount.source.starts_with("/etc")), "{:?}", plan.mounts);
    assert!(plan.findings.iter().any(|finding| finding.name == "alternate-not-mounted"));
}

#[tokio::test]
async fn the_doctor_says_what_it_saw_and_what_to_do() {
    let lane = Lane::new(Which::Docker).await;
    let cwd = lane.directory("wt", 0);
    let mut config = doctor::Config {
        engine: Some(lane.engine.info().address.parse().unwrap()),
        around: agent::container::discover::Surroundings::from_env(),
        state_dir: lane.base.path().join("state"),
        cwd: Some(cwd),
        images: vec![
            ("codex".parse().unwrap(), "laneyard/codex:current".parse().unwrap()),
            ("devin".parse().unwrap(), "laneyard/devin:absent".parse().unwrap()),
        ],
    };
    let checks = doctor::run(&config).await;
    let of = |name: &str| checks.iter().filter(|check| check.name == name).collect::<Vec<_>>();
    for name in
        ["engine", "engine-api", "limits", "seccomp", "clock", "git", "disk-state", "worktree", "root-worktrees"]
    {
        assert!(!of(name).is_empty(), "{name} is missing in {checks:#?}");
    }
    assert_eq!((of("image")[0].state, of("image")[1].state), (State::Ok, State::Warn));
    assert!(of("image")[1].remedy.contains("images/build --only devin"));
    assert!(checks.iter().all(|check| check.state == State::Ok || !check.remedy.is_empty()), "{checks:#?}");
    assert_eq!(run("findmnt", &["-rn", "-o", "TARGET"]).matches("laneyard-doctor-").count(), 0);
    config.engine = Some("/nowhere.sock".parse().unwrap());
    let checks = doctor::run(&config).await;
    assert_eq!((checks[0].name, checks[0].state), ("engine", State::Fail));
    assert!(checks[0].saw.contains("/nowhere.sock") && !checks[0].remedy.is_empty(), "{checks:?}");
}
