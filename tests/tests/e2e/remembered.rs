//! What a command remembers of the engine from the last one is used, and never believed.

use serde_json::{Value, json};
use tests::world::{Cli, Ended, Engine, World};

on_engines!(
    [docker podman]
    a_lane_starts_on_what_is_remembered,
    a_container_that_was_made_for_another_engine_is_made_again,
    a_lane_is_not_refused_for_what_is_only_remembered;

    [docker]
    a_damaged_memory_is_written_anew;
);

const IMAGE: &str = "laneyard-test/fake-claude:current";

fn lane(world: &World) -> Ended {
    world.lane(Cli::Claude).prompt("go").flag("--image", IMAGE).run()
}

/// Runs a lane, changes what is remembered, and runs another one.
fn after_remembering(engine: Engine, field: &str, wrong: Value) -> (World, Value) {
    let world = World::on(engine);
    lane(&world).assert("complete", 0);
    let file = world.state().join("engine.json");
    let right: Value = serde_json::from_slice(&std::fs::read(&file).expect("it is remembered")).unwrap();
    let mut changed = right.clone();
    assert_ne!(changed[field], wrong, "the engine says something else");
    changed[field] = wrong;
    std::fs::write(&file, changed.to_string()).unwrap();
    let ended = lane(&world);
    ended.assert("complete", 0);
    let now: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(now[field], right[field], "it is remembered anew");
    (world, ended.receipt["container"]["engine"].clone())
}

fn made_again(world: &World) -> usize {
    let attempt = world.attempts().pop().expect("two attempts");
    world.journal(&attempt).iter().filter(|line| line["entry"] == "container-intent").count()
}

fn a_lane_starts_on_what_is_remembered(engine: Engine) {
    let world = World::on(engine);
    let first = lane(&world);
    let second = lane(&world);
    second.assert("complete", 0);
    assert_eq!(first.receipt["container"]["engine"], second.receipt["container"]["engine"]);
    assert_eq!(made_again(&world), 1, "the container is made once");
    world.assert_nothing_left();
}

fn a_container_that_was_made_for_another_engine_is_made_again(engine: Engine) {
    let (world, told) = after_remembering(engine, "operatingSystem", json!("Plan 9"));
    assert_eq!(told["kind"], if engine == Engine::Docker { "docker" } else { "podman" });
    assert_eq!(made_again(&world), 2);
    world.assert_nothing_left();
}

fn a_lane_is_not_refused_for_what_is_only_remembered(engine: Engine) {
    let (world, _) = after_remembering(engine, "arch", json!("riscv64"));
    world.assert_nothing_left();
}

fn a_damaged_memory_is_written_anew(engine: Engine) {
    let world = World::on(engine);
    lane(&world).assert("complete", 0);
    let file = world.state().join("engine.json");
    std::fs::write(&file, b"{\"kind\":\"dock").unwrap();
    lane(&world).assert("complete", 0);
    assert!(serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).is_ok());
}
