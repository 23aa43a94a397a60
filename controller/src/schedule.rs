//! Which waiting attempt goes to which worker: pure and deterministic. Knows nothing of time.
//!
//! The submitter who holds the fewest places is served first (the one who waits longest among equals), each in order of
//! submission. A panel's lanes are placed
//! all at once; while a complete panel waits for places, nothing younger takes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use agent::ids::{AttemptId, InstanceId, WorkerId};

use crate::core::Core;
use crate::core::attempt::Attempt;
use crate::core::worker::Worker;
use crate::event::Order;

/// An attempt and the worker that should be offered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub attempt: AttemptId,
    pub worker: WorkerId,
}

/// What an attempt waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody ever registered.
    NoWorker,
    /// No worker carries the label.
    NoLabel { label: String },
    /// No worker has the instance.
    NoInstance { instance: InstanceId },
    /// Those that could take it are silent or draining.
    Away,
    /// Every suitable worker is full.
    Full { used: u32, capacity: u32 },
    /// The instance runs as many attempts as it may.
    InstanceBusy { instance: InstanceId },
    /// Other lanes of its panel are not here yet.
    PanelIncomplete { here: u32, size: u32 },
    /// Its panel needs more places at once than are free.
    PanelWaits { size: u32 },
    /// A place is free; it is about to be offered, or others are served first.
    Turn,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWorker => f.write_str("no worker is registered: start laneyard-agent on a host with an engine"),
            Self::NoLabel { label } => write!(f, "no worker carries the label {label}"),
            Self::NoInstance { instance } => write!(f, "no worker has the instance {instance}"),
            Self::Away => f.write_str("every suitable worker is unreachable or draining"),
            Self::Full { used, capacity } => {
                write!(f, "all suitable workers are full: {used} of {capacity} places used")
            }
            Self::InstanceBusy { instance } => write!(f, "instance {instance} is at its limit"),
            Self::PanelIncomplete { here, size } => write!(f, "{here} of {size} lanes of its panel are here"),
            Self::PanelWaits { size } => write!(f, "its panel needs {size} places at once"),
            Self::Turn => f.write_str("next in turn"),
        }
    }
}

/// Free places during one round of planning.
struct Room<'a> {
    core: &'a Core,
    free: BTreeMap<&'a WorkerId, u32>,
    /// Attempts per worker and instance.
    instances: BTreeMap<(&'a WorkerId, &'a InstanceId), u32>,
    /// Workers kept for a panel that waits.
    kept: BTreeSet<&'a WorkerId>,
}

impl<'a> Room<'a> {
    fn new(core: &'a Core, resting: &dyn Fn(&WorkerId) -> bool) -> Self {
        let mut room = Self { core, free: BTreeMap::new(), instances: BTreeMap::new(), kept: BTreeSet::new() };
        for (id, worker) in core.workers() {
            let open = !worker.lost && !worker.draining && !resting(id);
            room.free.insert(id, if open { worker.free() } else { 0 });
            for attempt in worker.placed.iter().filter_map(|attempt| core.attempt(*attempt)) {
                if let Some(instance) = attempt.order.as_ref().and_then(|order| order.instance.as_ref()) {
                    *room.instances.entry((id, instance)).or_default() += 1;
                }
            }
        }
        room
    }

    /// The suitable worker with the most free places; the first by name among equals.
    fn best(
        &self,
        attempt: AttemptId,
        order: &Order,
        avoid: &dyn Fn(AttemptId, &WorkerId) -> bool,
    ) -> Option<&'a WorkerId> {
        let mut best: Option<(&WorkerId, u32)> = None;
        for (id, worker) in self.core.workers() {
            let free = self.free.get(id).copied().unwrap_or(0);
            let fits = free > 0
                && !self.kept.contains(id)
                && suits(worker, order)
                && !self.instance_busy(id, worker, order)
                && !avoid(attempt, id);
            if fits && best.is_none_or(|(_, most)| free > most) {
                best = Some((id, free));
            }
        }
        best.map(|(id, _)| id)
    }

    fn instance_busy(&self, id: &'a WorkerId, worker: &'a Worker, order: &Order) -> bool {
        let Some(wanted) = &order.instance else { return false };
        let Some(facts) = worker.facts.instances.iter().find(|facts| facts.instance == *wanted) else { return false };
        self.instances.get(&(id, &facts.instance)).copied().unwrap_or(0) >= facts.concurrency
    }

    fn take(&mut self, worker: &'a WorkerId, order: &'a Order) {
        if let Some(free) = self.free.get_mut(worker) {
            *free = free.saturating_sub(1);
        }
        if let Some(instance) = &order.instance {
            *self.instances.entry((worker, instance)).or_default() += 1;
        }
    }
}

/// Labels and instance only; says nothing of free places.
fn suits(worker: &Worker, order: &Order) -> bool {
    let labels = order.labels.iter().all(|(key, value)| worker.facts.labels.get(key) == Some(value));
    let instance = order
        .instance
        .as_ref()
        .is_none_or(|wanted| worker.facts.instances.iter().any(|facts| facts.instance == *wanted));
    labels && instance
}

type Lane<'a> = (AttemptId, &'a Order);

/// Lanes that are placed together.
struct Group<'a> {
    lanes: Vec<Lane<'a>>,
    complete: bool,
    /// Journal entry of its first lane's submission.
    since: u64,
}

/// Plans offers. `resting` names workers that get nothing just now, `avoid` pairs that must not meet again so soon.
#[must_use]
pub fn plan(
    core: &Core,
    resting: &dyn Fn(&WorkerId) -> bool,
    avoid: &dyn Fn(AttemptId, &WorkerId) -> bool,
) -> Vec<Placement> {
    // Cheap ways out first: this runs after every change of a large fleet.
    let open =
        |(id, worker): (&WorkerId, &Worker)| !worker.lost && !worker.draining && worker.free() > 0 && !resting(id);
    if core.waiting() == 0 || !core.workers().iter().any(open) {
        return Vec::new();
    }
    let mut room = Room::new(core, resting);
    let mut lines = lines(core);
    let mut shares: BTreeMap<&str, u32> = core.shares().iter().map(|(name, share)| (name.as_str(), *share)).collect();
    let mut placements = Vec::new();
    // Each round serves the first group of the submitter with the fewest places, or sets it aside.
    while let Some(next) = lines
        .iter()
        .filter(|(_, line)| !line.is_empty())
        .min_by_key(|(name, line)| (shares.get(*name).copied().unwrap_or(0), line.front().map(|group| group.since)))
        .map(|(name, _)| *name)
    {
        let Some(group) = lines.get_mut(next).and_then(std::collections::VecDeque::pop_front) else { break };
        if !group.complete {
            continue;
        }
        let mut taken = Vec::new();
        for (attempt, order) in &group.lanes {
            if let Some(worker) = room.best(*attempt, order, avoid) {
                room.take(worker, order);
                taken.push((*attempt, worker, *order));
            }
        }
        if taken.len() == group.lanes.len() {
            *shares.entry(next).or_default() += u32::try_from(taken.len()).unwrap_or(u32::MAX);
            placements
                .extend(taken.into_iter().map(|(attempt, worker, _)| Placement { attempt, worker: worker.clone() }));
        } else {
            undo(&mut room, &taken);
            if group.lanes.len() > 1 {
                keep_for(&mut room, &group);
            }
        }
    }
    placements
}

fn undo<'a>(room: &mut Room<'a>, taken: &[(AttemptId, &'a WorkerId, &'a Order)]) {
    for (_, worker, order) in taken {
        *room.free.entry(worker).or_default() += 1;
        if let Some(instance) = &order.instance
            && let Some(count) = room.instances.get_mut(&(*worker, instance))
        {
            *count -= 1;
        }
    }
}

/// Keeps every worker that the panel could use, unless the panel is larger than all of them together: such a panel
/// never starts, and must not stop the others.
fn keep_for<'a>(room: &mut Room<'a>, group: &Group<'a>) {
    let core = room.core;
    let suitable: BTreeSet<&WorkerId> = core
        .workers()
        .iter()
        .filter(|(_, worker)| {
            !worker.lost && !worker.draining && group.lanes.iter().any(|(_, order)| suits(worker, order))
        })
        .map(|(id, _)| id)
        .collect();
    let places: u64 =
        suitable.iter().filter_map(|id| core.worker(id)).map(|worker| u64::from(worker.facts.capacity)).sum();
    if places >= group.lanes.len() as u64 {
        room.kept.extend(suitable);
    }
}

/// Each submitter's groups in order of submission.
fn lines(core: &Core) -> BTreeMap<&str, std::collections::VecDeque<Group<'_>>> {
    let mut lines: BTreeMap<&str, std::collections::VecDeque<Group<'_>>> = BTreeMap::new();
    let mut panels: BTreeMap<(&str, &str), Vec<Lane<'_>>> = BTreeMap::new();
    for (id, attempt) in core.queue() {
        if let Some((order, seat)) = panel_of(attempt) {
            panels.entry((&order.submitter, &seat.id)).or_default().push((id, order));
        }
    }
    for (id, attempt) in core.queue() {
        let Some(order) = attempt.order.as_deref() else { continue };
        let line = lines.entry(&order.submitter).or_default();
        match &order.panel {
            None => line.push_back(Group { lanes: vec![(id, order)], complete: true, since: attempt.submitted_seq }),
            // The group stands where its first lane stands.
            Some(seat) => {
                if let Some(lanes) = panels.remove(&(order.submitter.as_str(), seat.id.as_str())) {
                    let here = lanes.len() + gone(core, order);
                    let complete = here >= usize::try_from(seat.size).unwrap_or(usize::MAX);
                    line.push_back(Group { lanes, complete, since: attempt.submitted_seq });
                }
            }
        }
    }
    lines
}

fn panel_of(attempt: &Attempt) -> Option<(&Order, &agent::wire::attempt::PanelSeat)> {
    let order = attempt.order.as_deref()?;
    Some((order, order.panel.as_ref()?))
}

/// Lanes of the same panel that have left the queue. One of them may wait again: it then starts alone.
fn gone(core: &Core, order: &Order) -> usize {
    let Some(seat) = &order.panel else { return 0 };
    core.panel(&order.submitter, &seat.id)
        .iter()
        .filter(|id| core.attempt(**id).is_some_and(|a| !matches!(a.state, crate::core::attempt::State::Queued)))
        .count()
}

/// Why an attempt still waits.
#[must_use]
pub fn reason(core: &Core, id: AttemptId) -> Reason {
    let Some(order) = core.attempt(id).and_then(|attempt| attempt.order.as_deref()) else { return Reason::Turn };
    if core.workers().is_empty() {
        return Reason::NoWorker;
    }
    for (key, value) in &order.labels {
        if !core.workers().values().any(|worker| worker.facts.labels.get(key) == Some(value)) {
            return Reason::NoLabel { label: format!("{key}={value}") };
        }
    }
    let suitable: Vec<(&WorkerId, &Worker)> =
        core.workers().iter().filter(|(_, worker)| suits(worker, order)).collect();
    if suitable.is_empty() {
        return match &order.instance {
            Some(instance) => Reason::NoInstance { instance: instance.clone() },
            None => Reason::NoLabel { label: "set that it asks for".to_owned() },
        };
    }
    if let Some(seat) = &order.panel {
        let here = u32::try_from(core.panel(&order.submitter, &seat.id).len()).unwrap_or(u32::MAX);
        if here < seat.size {
            return Reason::PanelIncomplete { here, size: seat.size };
        }
    }
    let open: Vec<_> = suitable.into_iter().filter(|(_, worker)| !worker.lost && !worker.draining).collect();
    if open.is_empty() {
        return Reason::Away;
    }
    let capacity: u32 = open.iter().map(|(_, worker)| worker.facts.capacity).sum();
    let free: u32 = open.iter().map(|(_, worker)| worker.free()).sum();
    if free == 0 {
        return Reason::Full { used: capacity, capacity };
    }
    if let Some(instance) = &order.instance {
        let room = Room::new(core, &|_| false);
        if open.iter().all(|(id, worker)| room.instance_busy(id, worker, order)) {
            return Reason::InstanceBusy { instance: instance.clone() };
        }
    }
    match &order.panel {
        Some(seat) if seat.size > free => Reason::PanelWaits { size: seat.size },
        _ => Reason::Turn,
    }
}
