//! Ended attempts that retention takes away.

use agent::ids::AttemptId;

use super::{Effects, Now, World, commit};
use crate::event::Event;

/// Forgets an ended attempt. False if something still needs it.
pub fn on_forget(world: &mut World, effects: &mut Effects, now: Now, id: AttemptId) -> bool {
    let may = world.core.may_forget(id);
    if may {
        commit(world, effects, now, Event::Forgotten { attempt: id });
    }
    may
}
