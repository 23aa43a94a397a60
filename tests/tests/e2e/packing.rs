//! A controller that takes its time to pack what a worker needs: whoever waits sees how far it is.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tests::until::until;
use tests::world::{Cli, Engine, World};

use super::fleet::Fleet;

/// A git that packs as with a very large repository: it says how far it is, as the real one does, and goes on when `gate`
/// is there.
fn slow_git(dir: &Path, gate: &Path) {
    let path = std::env::var_os("PATH").unwrap();
    let real = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|path| path.is_file()).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' pack-objects '*)\n\
         printf 'Enumerating objects: 100, done.\\nCompressing objects:  40%% (40/100)\\r' >&2\n\
         while [ ! -e '{}' ]; do sleep 0.1; done;;\nesac\nexec '{}' \"$@\"\n",
        gate.display(),
        real.display()
    );
    std::fs::write(dir.join("git"), script).unwrap();
    std::fs::set_permissions(dir.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn whoever_waits_for_a_pack_of_the_controller_sees_how_far_it_is() {
    let world = World::on(Engine::Docker);
    world.repository();
    let (programs, gate) = (world.directory("programs"), world.path("gate"));
    slow_git(&programs, &gate);
    let fleet = Fleet::with_programs(&world, &programs);
    let running = fleet.lane(Cli::Claude).word("--verbose").says("packed").start();
    let far = "fetching the snapshot, its pack is made: 40 of 100 objects compressed";
    until("the client says how far it is", Duration::from_secs(60), || {
        let said = running.stderr();
        if said.contains(far) { Ok(()) } else { Err(said) }
    });
    let attempt = running.attempt();
    let logged = world.run(["logs".to_owned(), attempt].into_iter().chain(fleet.place()));
    assert!(String::from_utf8_lossy(&logged.stdout).contains(far), "{logged:?}");
    std::fs::write(&gate, "").unwrap();
    let ended = running.wait();
    ended.assert("complete", 0);
    assert_eq!(ended.answer(), "packed");
    fleet.end();
}
