//! A stand-in for the claude CLI whose behaviour is a shell script in the prompt, for what the real one never does on
//! command. It is named as a stand-in, and only tests of misbehaviour and of the container's inside use it. The program is
//! `tests/images/scripted-claude`; `tests/images/build` makes its image, and `tests/run` copies that to every engine.

use tests::world::{Cli, Lane, World};

const IMAGE: &str = "laneyard-test/scripted-claude:current";

/// A lane of the stand-in.
pub(crate) fn lane<'w>(world: &'w World, script: &str) -> Lane<'w> {
    world.lane(Cli::Claude).flag("--image", IMAGE).prompt(format!("SCRIPT<<\n{script}\n>>SCRIPT\n"))
}
