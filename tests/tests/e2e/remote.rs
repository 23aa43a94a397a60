//! Lanes on a worker that does not have the caller's files: the directory travels as a snapshot, a writer's result comes
//! back, and nothing of the caller's repository is touched.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::noise::noise;
use tests::until::until;
use tests::world::{Cli, Engine, Lane, Mode, World};

use super::fleet::Fleet;

/// A repository that only its client sees, at a path where everybody else finds an empty directory.
struct Home<'w> {
    world: &'w World,
    files: PathBuf,
    place: PathBuf,
}

impl<'w> Home<'w> {
    fn new(world: &'w World) -> Self {
        let (files, place) = (world.directory("files"), world.directory("place"));
        let home = Self { world, files, place };
        home.git(&["init", "--quiet", "--initial-branch", "main"]);
        home.write("README.md", b"# far away\n");
        home.write("src/old.c", b"int main;\n");
        home.write("src/gone.c", b"int gone;\n");
        home.write("big.bin", &noise(300_000));
        home.commit("first");
        home.git(&["checkout", "--quiet", "-b", "topic"]);
        home.write("src/old.c", b"int main(void);\n");
        home.commit("second");
        home.write("untracked", b"not committed\n");
        home
    }

    fn git(&self, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(arguments).current_dir(&self.files);
        let output = command.output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "--quiet", "-m", message]);
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.files.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.files.join(name)).ok()
    }

    fn lane(&self, fleet: &Fleet<'w>, cli: Cli) -> Lane<'w> {
        fleet.lane(cli).apart(&self.files, &self.place)
    }

    /// A command of the client's machine.
    fn run(&self, fleet: &Fleet<'_>, words: &[&str]) -> Output {
        self.world.laneyard_apart(&self.files, &self.place).args(words).args(fleet.place()).output().unwrap()
    }

    /// The repository's own files, byte by byte.
    fn metadata(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.files.join(".git")];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.insert(path.clone(), std::fs::read(path).unwrap());
                }
            }
        }
        found
    }

    /// Nobody but the client ever had the files at their path.
    fn assert_apart(&self) {
        assert_eq!(std::fs::read_dir(&self.place).unwrap().count(), 0, "the worker's side of the path stays empty");
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Kept worktrees and fetched snapshots of attempts that are over.
fn worktrees(world: &World) -> Vec<String> {
    world.attempts().into_iter().filter(|id| world.attempt(id).join("worktree").exists()).collect()
}

#[test]
fn a_reader_sees_files_and_history_and_the_second_lane_fetches_only_what_is_new() {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    let before = home.metadata();
    let fleet = Fleet::start(&world);
    let look = "pwd; cat README.md untracked; git log --format=%s; git diff --stat main...HEAD; git status --short; \
                touch here 2>&1; touch .git/here 2>&1; git commit --allow-empty -m x 2>&1 | tail -1";
    let ended = home.lane(&fleet, Cli::Codex).step(Cli::Codex.shell(look)).says("{{last_result}}").run();
    ended.assert("complete", 0);
    let answer = ended.answer();
    for expected in
        [&*home.place.to_string_lossy(), "# far away", "not committed", "second", "first", "src/old.c", "?? untracked"]
    {
        assert!(answer.contains(expected), "`{expected}` is not in: {answer}");
    }
    assert!(answer.matches("Read-only file system").count() >= 2, "nothing can be changed: {answer}");
    let worktree = &ended.receipt["worktree"];
    assert_eq!((&worktree["kind"], &worktree["access"]), (&json!("snapshot"), &json!("read-only")), "{worktree:#}");
    let first = worktree["fetchedBytes"].as_u64().unwrap();
    assert!(first > 300_000, "the whole directory was fetched: {worktree:#}");
    assert!(ended.receipt.get("result").is_none(), "a reader leaves no result");

    home.write("README.md", b"# far away, changed\n");
    let again = home.lane(&fleet, Cli::Claude);
    let file = home.place.join("README.md").display().to_string();
    let again = again.step(json!({"tool": "Read", "input": {"file_path": file}})).says("{{last_result}}").run();
    again.assert("complete", 0);
    assert!(again.answer().contains("far away, changed"), "{}", again.answer());
    let second = again.receipt["worktree"]["fetchedBytes"].as_u64().unwrap();
    assert!(second > 0 && second < 3_000, "only the difference was fetched: {second} bytes after {first}");
    assert_eq!(home.metadata(), before, "nothing in .git was touched");
    home.assert_apart();
    fleet.end();
    assert!(worktrees(&world).is_empty(), "readers keep nothing");
}

#[test]
fn what_a_writer_changed_comes_home_and_git_is_not_touched() {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    std::fs::write(home.files.join(OsStr::from_bytes(b"od\xffd\nname '\"")), "odd\n").unwrap();
    symlink("README.md", home.files.join("link")).unwrap();
    let before = home.metadata();
    let fleet = Fleet::start(&world);
    let work = "echo more >> README.md; git mv -f src/old.c src/new.c 2>/dev/null || mv src/old.c src/new.c; rm src/gone.c; \
                chmod +x untracked; ln -s README.md second-link; rm link; ln -s untracked link; \
                head -c 5000 big.bin > part.bin; mkdir -p a/b; printf 'x' > \"$(printf 'a/b/n\\303\\244me \\n\\047')\"; \
                printf more >> \"$(printf 'od\\377d\\nname \\047\\042')\"; rm big.bin";
    let lane = home.lane(&fleet, Cli::Codex).mode(Mode::Writer);
    let ended = lane.step(Cli::Codex.shell(work)).says("done").run();
    ended.assert("complete", 0);
    let result = &ended.receipt["result"];
    assert_eq!((&result["outcome"], &result["keptBy"]), (&json!("applied"), &json!("controller")), "{result:#}");
    assert_eq!(home.read("README.md").unwrap(), b"# far away\nmore\n");
    assert_eq!(home.read("src/new.c").unwrap(), b"int main(void);\n");
    for gone in ["src/old.c", "src/gone.c", "big.bin"] {
        assert!(home.read(gone).is_none(), "{gone}");
    }
    assert_eq!(home.files.join("untracked").metadata().unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(std::fs::read_link(home.files.join("second-link")).unwrap(), Path::new("README.md"));
    assert_eq!(std::fs::read_link(home.files.join("link")).unwrap(), Path::new("untracked"));
    assert_eq!(home.read("part.bin").unwrap(), &noise(300_000)[..5000]);
    assert_eq!(home.read("a/b/näme \n'").unwrap(), b"x");
    let odd = std::fs::read(home.files.join(OsStr::from_bytes(b"od\xffd\nname '\""))).unwrap();
    assert_eq!(odd, b"odd\nmore");
    assert_eq!(home.metadata(), before, "nothing in .git was touched");
    home.assert_apart();
    fleet.end();
    assert!(worktrees(&world).is_empty(), "what came home is not kept");
}

#[test]
fn a_writer_on_rootful_podman_brings_its_changes_home_and_names_what_git_ignores() {
    let world = World::on(Engine::Podman);
    let home = Home::new(&world);
    home.write(".gitignore", b"*.log\n");
    let before = home.metadata();
    let fleet = Fleet::start(&world);
    let work = "echo more >> README.md; rm src/gone.c; mkdir -p a/b; echo x > a/b/new; chmod +x untracked; echo t > trace.log; \
                git commit -qam mine 2>/dev/null; id -u > owner";
    for (cli, lines) in [(Cli::Codex, 1), (Cli::Claude, 2)] {
        let work = if lines == 1 { work } else { "echo more >> README.md; echo t > trace.log" };
        let ended = home.lane(&fleet, cli).mode(Mode::Writer).step(cli.shell(work)).says("done").run();
        ended.assert("complete", 0);
        let result = &ended.receipt["result"];
        assert_eq!((&result["outcome"], &result["keptBy"]), (&json!("applied"), &json!("controller")), "{result:#}");
        assert_eq!((&result["ignored"], &result["ignoredInAll"]), (&json!(["trace.log"]), &json!(1)), "{result:#}");
        assert_eq!(home.read("README.md").unwrap(), ["# far away\n", &"more\n".repeat(lines)].concat().as_bytes());
        assert!(!home.files.join(".claude").exists(), "what the CLI makes for itself stays away");
    }
    assert!(home.read("src/gone.c").is_none() && home.read("trace.log").is_none());
    assert_eq!(home.read("a/b/new").unwrap(), b"x\n");
    assert_eq!(home.files.join("untracked").metadata().unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(home.metadata(), before, "nothing in .git was touched");
    home.assert_apart();
    fleet.end();
    assert!(worktrees(&world).is_empty(), "what came home is not kept");
}

#[test]
fn a_result_whose_ground_moved_stays_an_artifact_until_somebody_settles_it() {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    let fleet = Fleet::start(&world);
    let work = Cli::Codex.shell("echo theirs > README.md; echo new > fresh");
    let lane = home.lane(&fleet, Cli::Codex).mode(Mode::Writer);
    let mut running = lane.step(work).step(json!({"text": "done", "hold": "gate"})).start();
    running.until_asked();
    home.write("src/gone.c", b"int mine;\n");
    world.model.release("gate");
    let ended = running.wait();
    ended.assert("child-failed", 70);
    assert!(ended.output.is_none());
    let result = &ended.receipt["result"];
    assert_eq!((&result["outcome"], &result["conflicts"]), (&json!("conflict"), &json!(["src/gone.c"])), "{result:#}");
    assert_eq!(ended.receipt["failurePhase"], "postprocess");
    assert_eq!(home.read("README.md").unwrap(), b"# far away\n", "nothing was written");
    assert!(home.read("fresh").is_none());
    let attempt = ended.receipt["attempt"].as_str().unwrap().to_owned();
    let message = ended.receipt["error"]["message"].as_str().unwrap();
    assert!(message.contains(&format!("laneyard result apply {attempt}")), "{message}");

    let shown = home.run(&fleet, &["result", "show", &attempt, "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{}", text(&shown)));
    assert_eq!(
        shown["changes"],
        json!([{"path": "README.md", "change": "changed"}, {"path": "fresh", "change": "added"}])
    );
    let patch = home.run(&fleet, &["result", "export", &attempt]);
    assert!(String::from_utf8_lossy(&patch.stdout).contains("+theirs"), "{}", text(&patch));
    let refused = home.run(&fleet, &["result", "apply", &attempt]);
    assert_eq!(refused.status.code(), Some(65), "{}", text(&refused));
    assert!(text(&refused).contains("src/gone.c"));
    home.write("src/gone.c", b"int gone;\n");
    let applied = home.run(&fleet, &["result", "apply", &attempt, "--json"]);
    assert!(applied.status.success(), "{}", text(&applied));
    assert_eq!(home.read("README.md").unwrap(), b"theirs\n");
    assert_eq!(home.read("fresh").unwrap(), b"new\n");
    fleet.end();
}

#[test]
fn a_link_out_of_the_worktree_is_refused_and_named() {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    let fleet = Fleet::start(&world);
    let work = Cli::Codex.shell("ln -s /etc/passwd way-out; echo fine > fine");
    let ended = home.lane(&fleet, Cli::Codex).mode(Mode::Writer).step(work).says("done").run();
    ended.assert("child-failed", 70);
    let result = &ended.receipt["result"];
    assert_eq!(result["outcome"], "refused", "{result:#}");
    assert!(result["refused"][0].as_str().unwrap().contains("way-out"), "{result:#}");
    assert!(home.read("fine").is_none() && home.read("way-out").is_none());
    fleet.end();
}

#[test]
fn what_no_result_carries_stays_on_the_worker_until_it_is_released() {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    let fleet = Fleet::start(&world);
    let lane = |work: &str| {
        let lane = home.lane(&fleet, Cli::Codex).mode(Mode::Writer).step(Cli::Codex.shell(work));
        lane.says("done").run()
    };
    let made = lane("git init -q nested; echo y > nested/y");
    made.assert("complete", 0);
    let result = &made.receipt["result"];
    assert_eq!(result["outcome"], "applied", "{result:#}");
    assert!(result["repositories"][0].as_str().unwrap().contains("nested/.git"), "{result:#}");
    assert_eq!(home.read("nested/y").unwrap(), b"y\n");
    let refused = lane("mkdir -p w/.GIT; echo odd > w/.GIT/config");
    refused.assert("child-failed", 70);
    assert_eq!(refused.receipt["result"]["outcome"], "refused", "{:#}", refused.receipt["result"]);
    for (ended, file) in [(&made, "nested/.git/HEAD"), (&refused, "w/.GIT/config")] {
        let place = &ended.receipt["result"]["worktree"];
        assert_eq!(place["worker"], "w1", "{place:#}");
        assert!(Path::new(place["path"].as_str().unwrap()).join(file).exists(), "{file}");
        let attempt = ended.receipt["attempt"].as_str().unwrap();
        let shown = text(&home.run(&fleet, &["result", "show", attempt]));
        assert!(shown.contains(&format!("laneyard result release {attempt}")), "{shown}");
        assert!(home.run(&fleet, &["result", "release", attempt]).status.success());
    }
    until("the worktrees go", Duration::from_secs(60), || {
        let left = worktrees(&world);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    fleet.end();
}

#[test]
fn a_failed_writers_worktree_stays_on_the_worker_until_it_is_released() {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    let fleet = Fleet::start(&world);
    let work = Cli::Codex.shell("echo half > half-done");
    let lane = home.lane(&fleet, Cli::Codex).mode(Mode::Writer);
    let mut running = lane.step(work).step(json!({"text": "never", "hold": "gate"})).start();
    running.until_asked();
    until("the lane has written", tests::world::LIMIT, || {
        let written = worktrees(&world).iter().any(|id| world.attempt(id).join("worktree/half-done").exists());
        if written { Ok(()) } else { Err(world.attempts()) }
    });
    running.signal(Signal::SIGINT);
    let ended = running.wait();
    ended.assert("cancelled", 130);
    world.model.release("gate");
    assert_eq!(ended.receipt["result"]["outcome"], "not-applied", "{:#}", ended.receipt["result"]);
    assert!(home.read("half-done").is_none());
    let attempt = ended.receipt["attempt"].as_str().unwrap().to_owned();
    assert_eq!(worktrees(&world), std::slice::from_ref(&attempt));
    let shown = home.run(&fleet, &["result", "show", &attempt]);
    assert!(text(&shown).contains("half-done"), "{}", text(&shown));
    let released = home.run(&fleet, &["result", "release", &attempt]);
    assert!(released.status.success(), "{}", text(&released));
    until("the worktree goes", Duration::from_secs(60), || {
        let left = worktrees(&world);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    fleet.end();
}

#[test]
fn lanes_of_one_directory_that_start_together_do_not_get_into_each_others_way() {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    let fleet = Fleet::start(&world);
    let look = || Cli::Codex.shell("cat README.md");
    let start = |_| home.lane(&fleet, Cli::Codex).step(look()).says("{{last_result}}").start();
    let running: Vec<_> = (0..3).map(start).collect();
    for lane in running {
        let ended = lane.wait();
        ended.assert("complete", 0);
        assert!(ended.answer().contains("# far away"), "{}", ended.answer());
    }
    fleet.end();
    assert!(worktrees(&world).is_empty());
}

#[test]
fn a_directory_that_cannot_stand_at_its_own_path_is_refused_before_anything_exists() {
    let world = World::on(Engine::Docker);
    let fleet = Fleet::start(&world);
    let ended = fleet.lane(Cli::Codex).cwd("/usr/share").says("never").run();
    assert_eq!((ended.code, ended.output.as_ref(), &ended.receipt), (Some(64), None, &Value::Null), "{}", ended.stderr);
    assert!(ended.stderr.contains("/usr is the image's own inside the container"), "{}", ended.stderr);
}

/// One test for each point at which the agent is killed.
macro_rules! agent_killed {
    ($($name:ident = $point:literal),+ $(,)?) => {
        $(#[test] fn $name() { agent_killed_at($point); })+
    };
}

agent_killed!(
    the_agent_dies_when_it_begins_to_fetch = "after:fetching",
    the_agent_dies_when_it_begins_to_write_the_worktree = "after:materializing",
    the_agent_dies_before_the_worktree_is_recorded = "before:materialized",
    the_agent_dies_when_the_worktree_is_whole = "after:materialized",
    the_agent_dies_before_the_result_is_recorded = "before:collected",
    the_agent_dies_when_the_result_is_collected = "after:collected",
    the_agent_dies_before_the_kept_result_is_recorded = "before:result-kept",
    the_agent_dies_when_the_result_is_kept = "after:result-kept",
);

fn agent_killed_at(point: &str) {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    let before = home.metadata();
    let mut fleet = Fleet::with_fault(&world, Some(point));
    let work = Cli::Codex.shell("echo more >> README.md; rm src/gone.c");
    let running = home.lane(&fleet, Cli::Codex).mode(Mode::Writer).step(work).says("done").start();
    fleet.restart_agent();
    let ended = running.wait();
    ended.assert("complete", 0);
    assert_eq!(ended.count.invocations, 1, "{point}");
    assert_eq!(ended.receipt["result"]["outcome"], "applied", "{point}: {:#}", ended.receipt["result"]);
    assert_eq!(home.read("README.md").unwrap(), b"# far away\nmore\n");
    assert!(home.read("src/gone.c").is_none());
    assert_eq!(home.metadata(), before, "nothing in .git was touched");
    fleet.end();
    assert!(worktrees(&world).is_empty(), "{point}");
}

#[test]
fn a_writer_survives_agent_and_controller_and_its_killed_client_takes_the_result_later() {
    let world = World::on(Engine::Docker);
    let home = Home::new(&world);
    let mut fleet = Fleet::start(&world);
    let work = Cli::Codex.shell("echo more >> README.md");
    let lane = home.lane(&fleet, Cli::Codex).mode(Mode::Writer);
    let mut running = lane.step(work).step(json!({"text": "done", "hold": "gate"})).start();
    running.until_asked();
    let attempt = running.attempt();
    running.signal(Signal::SIGKILL);
    let killed = running.wait_killed();
    fleet.kill_and_restart();
    world.model.release("gate");
    let attached = home.run(&fleet, &["attach", &attempt]);
    assert!(attached.status.success(), "{}", text(&attached));
    let ended = killed.again();
    assert_eq!((ended.status(), ended.answer().as_str()), ("complete", "done"), "{:#}", ended.receipt);
    assert_eq!(ended.receipt["result"]["outcome"], "applied");
    assert_eq!(home.read("README.md").unwrap(), b"# far away\nmore\n");
    assert_eq!(ended.count.invocations, 1);
    fleet.end();
}
