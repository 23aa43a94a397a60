//! How containers end, and what is left.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::container::cause::{Cause, ContainerEnd, End, Evidence, Kill, cause};
use agent::container::cgroup::GroupState;
use agent::container::teardown::{Stopped, remove_proven, stop};
use agent::container::{ContainerState, Delivered, EngineError, sweep};
use agent::descriptor::Mode;
use agent::ids::AttemptId;

use crate::fixture::{Lane, Running, Which, on_every_engine};

on_every_engine! {
    a_removed_container_is_proven_gone = proven;
    a_container_that_ignores_term_is_killed = ladder;
    exit_codes_pass_through_and_a_repeated_create_makes_no_second_container = codes;
    the_sweep_removes_only_what_is_ours_and_over = swept;
    asking_for_an_absent_container_says_gone = gone;
}

async fn sleeper(lane: &Lane, which: Which, script: &str) -> Running {
    let cwd = lane.directory("wt", which.natural_owner());
    let plan = lane.plan(&cwd, Mode::ReadOnly).await;
    let running = lane.start(&plan, script).await;
    running.printed("ready").await;
    running
}

async fn proven(which: Which) {
    let lane = Lane::new(which).await;
    let running = sleeper(&lane, which, "sleep 1000 & (sleep 1000 &) ; echo ready; wait").await;
    let cgroup = running.cgroup().await;
    let proof = remove_proven(&lane.engine, &running.id, cgroup.as_ref()).await;
    assert!(proof.removed && proof.proven(), "{proof:?}");
    if which != Which::Rootless {
        assert_eq!(proof.processes, Some(GroupState::Gone), "{proof:?}");
    }
    lane.engine.remove(&running.id).await.unwrap();
    assert_eq!(lane.engine.list(&lane.owner).await.unwrap(), []);
}

async fn ladder(which: Which) {
    let lane = Lane::new(which).await;
    let running = sleeper(&lane, which, r#"trap "" TERM INT; echo ready; while :; do sleep 1; done"#).await;
    let how = stop(&lane.engine, &running.id, Duration::from_millis(300)).await.unwrap();
    assert_eq!(how, Stopped::AfterKill);
    assert_eq!(stop(&lane.engine, &running.id, Duration::from_secs(1)).await.unwrap(), Stopped::ByItself);
    let evidence = Evidence {
        provider: None,
        container: container_end(&lane.engine.inspect(&running.id).await.unwrap().state),
        oom_kills: None,
        ours: Some(Kill::Deadline),
    };
    assert_eq!(cause(&evidence), Cause::OurDeadline);
}

fn container_end(state: &ContainerState) -> ContainerEnd {
    match state {
        ContainerState::Exited { code, oom_killed, .. } => {
            ContainerEnd::Exited { code: *code, oom_killed: *oom_killed }
        }
        ContainerState::Created | ContainerState::Running { .. } => ContainerEnd::Running,
    }
}

async fn codes(which: Which) {
    let lane = Lane::new(which).await;
    let cwd = lane.directory("wt", which.natural_owner());
    let plan = lane.plan(&cwd, Mode::ReadOnly).await;
    let mut prepared = lane.prepare(&plan);
    let spec = lane.spec(&plan, &prepared, "exit 42").await;
    let id = lane.engine.create(&spec).await.unwrap();
    let again = lane.engine.create(&spec).await.unwrap();
    assert_eq!(id, again);
    assert_eq!(lane.engine.inspect(&id).await.unwrap().state, ContainerState::Created);
    lane.engine.start(&id).await.unwrap();
    prepared.release();
    let running = Running { engine: lane.engine.clone(), id, spec };
    let ended = running.ended().await;
    assert!(matches!(ended, ContainerState::Exited { code: 42, oom_killed: false, .. }), "{ended:?}");
    assert_eq!(lane.engine.signal(&running.id, "SIGKILL").await.unwrap(), Delivered::NotRunning);
    // An ended container is still ours to be found.
    let found = lane.engine.list(&lane.owner).await.unwrap();
    assert_eq!((found.len(), found[0].running, found[0].labels.attempt), (1, false, lane.attempt));
}

async fn swept(which: Which) {
    let mut lane = Lane::new(which).await;
    let stranger = Lane::new(which).await;
    let over = sleeper(&lane, which, "echo ready; exec sleep 1000").await;
    lane.attempt = AttemptId::generate();
    let open = sleeper(&lane, which, "echo ready; exec sleep 1000").await;
    let foreign = sleeper(&stranger, which, "echo ready; exec sleep 1000").await;
    let swept = sweep::containers(&lane.engine, &lane.owner, &BTreeSet::from([lane.attempt])).await.unwrap();
    let ids = |list: &[agent::container::Found]| list.iter().map(|found| found.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&swept.removed), std::slice::from_ref(&over.id));
    assert_eq!(ids(&swept.kept), std::slice::from_ref(&open.id));
    assert!(swept.failed.is_empty());
    assert!(lane.engine.inspect(&over.id).await.unwrap_err().is_gone());
    assert!(
        lane.engine.inspect(&foreign.id).await.unwrap().state.pid().is_some(),
        "a stranger's container was touched"
    );
}

async fn gone(which: Which) {
    let engine = which.open().await;
    let absent = agent::container::ContainerId::new("0".repeat(64));
    assert!(engine.inspect(&absent).await.unwrap_err().is_gone());
    assert!(matches!(engine.start(&absent).await, Err(EngineError::Gone { .. })));
    assert!(matches!(engine.signal(&absent, "SIGTERM").await, Err(EngineError::Gone { .. })));
    assert!(matches!(engine.wait(&absent).await, Err(EngineError::Gone { .. })));
    engine.remove(&absent).await.unwrap();
}

/// PID 1 stands for the supervisor, its child for the provider.
async fn oom(which: Which, script: &str) -> (Running, Option<u64>, String) {
    let mut lane = Lane::new(which).await;
    lane.limits.memory = 64 << 20;
    let running = sleeper(&lane, which, script).await;
    running.printed("ended").await;
    let kills = running.cgroup().await.and_then(|cgroup| cgroup.oom_kills());
    let text = lane.engine.log_tail(&running.id).await.unwrap();
    (running, kills, text)
}

async fn oom_is_named(which: Which) {
    let (_running, kills, text) = oom(which, "echo ready; tail /dev/zero; echo ended $?; exec sleep 1000").await;
    assert!(text.contains("ended 137"), "{text}");
    assert!(kills.is_some_and(|count| count > 0), "{kills:?}");
    let evidence =
        Evidence { provider: Some(End::Signaled(9)), container: ContainerEnd::Running, oom_kills: kills, ours: None };
    assert_eq!(cause(&evidence), Cause::Oom);
}

async fn oom_of_a_child_is_another_cause(which: Which) {
    let script = "echo ready; sh -c 'tail /dev/zero; exit 0'; echo ended $?; exec sleep 1000";
    let (_running, kills, text) = oom(which, script).await;
    assert!(text.contains("ended 0"), "{text}");
    let evidence =
        Evidence { provider: Some(End::Exited(0)), container: ContainerEnd::Running, oom_kills: kills, ours: None };
    assert_eq!(cause(&evidence), Cause::OomOfChild);
}

async fn kill_from_outside(which: Which) {
    let lane = Lane::new(which).await;
    let running = sleeper(&lane, which, "echo ready; sleep 1000 & wait $!; exit $?").await;
    let cgroup = running.cgroup().await;
    let kills = cgroup.as_ref().and_then(agent::container::cgroup::Cgroup::oom_kills);
    assert_eq!(lane.engine.signal(&running.id, "SIGKILL").await.unwrap(), Delivered::Sent);
    let container = container_end(&running.ended().await);
    assert_eq!(container, ContainerEnd::Exited { code: 137, oom_killed: false });
    assert_eq!(cause(&Evidence { provider: None, container, oom_kills: kills, ours: None }), Cause::ExternalKill);
}

async fn pids(which: Which) {
    let lane = Lane::new(which).await;
    let cwd = lane.directory("wt", which.natural_owner());
    let plan = lane.plan(&cwd, Mode::ReadOnly).await;
    let bomb = "perl -e 'my $n = 0; for (1..200) { my $p = fork; last unless defined $p; if (!$p) { sleep 100; exit } $n++ } print \"made $n\\n\"'";
    let (_, text) = lane.script(&plan, bomb).await;
    let made: u32 = text.split_whitespace().last().unwrap().parse().unwrap();
    assert!(made < 64, "{text}");
}

/// Engines that apply limits here: rootless on cgroup v1 does not, and says so (see the profile's tests).
macro_rules! where_limits_hold {
    ($($name:ident = $check:ident;)+) => {
        mod limits_on_docker { $( #[tokio::test] async fn $name() { super::$check(crate::fixture::Which::Docker).await; } )+ }
        mod limits_on_podman { $( #[tokio::test] async fn $name() { super::$check(crate::fixture::Which::Podman).await; } )+ }
    };
}
where_limits_hold! {
    a_provider_killed_for_memory_is_an_oom = oom_is_named;
    a_child_killed_for_memory_is_told_apart = oom_of_a_child_is_another_cause;
    a_kill_from_outside_is_told_apart = kill_from_outside;
    the_process_limit_holds = pids;
}
