//! What must hold after every entry, for tests of every kind to call.

use super::Core;
use super::attempt::State;

impl Core {
    /// Checks that queue, places and shares say the same as the attempts.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut shares = std::collections::BTreeMap::<String, u32>::new();
        for (id, attempt) in &self.attempts {
            let queued = self.queue.contains(&(attempt.submitted_seq, *id));
            if queued != matches!(attempt.state, State::Queued) {
                return Err(format!("{id}: in the queue: {queued}, but {:?}", attempt.state));
            }
            let places = self.workers.iter().filter(|(_, worker)| worker.placed.contains(id)).count();
            match &attempt.state {
                State::Held { worker, interrupted: true, .. } if !self.workers.contains_key(worker) => {
                    if places != 0 {
                        return Err(format!("{id}: its worker was removed, and {places} others have it"));
                    }
                }
                State::Offered { worker, generation, .. } | State::Held { worker, generation, .. } => {
                    *shares.entry(attempt.submitter().to_owned()).or_default() += 1;
                    let here = self.workers.get(worker).is_some_and(|worker| worker.placed.contains(id));
                    if places != 1 || !here {
                        return Err(format!("{id}: {places} leases, on its worker: {here}"));
                    }
                    if generation.0 > attempt.generation {
                        return Err(format!("{id}: lease of generation {} above its newest", generation.0));
                    }
                }
                State::Queued | State::Ended { .. } if places != 0 => {
                    return Err(format!("{id}: {places} leases in state {:?}", attempt.state));
                }
                State::Queued | State::Ended { .. } => {}
            }
        }
        if shares != self.shares {
            return Err(format!("shares are {:?}, should be {shares:?}", self.shares));
        }
        Ok(())
    }
}
