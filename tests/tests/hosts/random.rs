//! A few hundred steps of a seed: lanes, cuts, bad lines, kills, cancels. `LANEYARD_SEED` and `LANEYARD_STEPS` choose
//! another walk or a longer one; a failure names its seed.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use tests::hosts::{Fleet, FleetOptions, Lane, WORKERS};

/// Steps in CI.
const STEPS: u32 = 300;
/// Lanes that may be open at once: the machine under this test is small.
const OPEN: usize = 4;

/// What may happen next.
#[derive(Debug)]
enum Step {
    Lane,
    Cut(&'static str),
    Mend(&'static str),
    Lose(&'static str, u8),
    Slow(&'static str, Option<u32>),
    Kill(&'static str),
    Restart(&'static str),
    Cancel,
    Rest,
}

/// SplitMix64: the whole walk follows from the seed.
struct Walk(u64);

impl Walk {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn pick(&mut self, of: &[&'static str]) -> &'static str {
        of[usize::try_from(self.next(of.len() as u64)).unwrap()]
    }

    fn step(&mut self) -> Step {
        const HOSTS: [&str; 4] = ["controller", WORKERS[0], WORKERS[1], "client"];
        const PROGRAMS: [&str; 3] = ["controller", WORKERS[0], WORKERS[1]];
        // Faults are mended more often than made: a fleet that is always down shows nothing.
        match self.next(24) {
            0..=4 => Step::Lane,
            5 => Step::Cut(self.pick(&HOSTS)),
            6..=9 => Step::Mend(self.pick(&HOSTS)),
            10 => Step::Lose(self.pick(&HOSTS), u8::try_from(self.next(40)).unwrap()),
            11..=12 => Step::Lose(self.pick(&HOSTS), 0),
            13 => Step::Slow(self.pick(&HOSTS), Some(256)),
            14..=15 => Step::Slow(self.pick(&HOSTS), None),
            16 => Step::Kill(self.pick(&PROGRAMS)),
            17..=20 => Step::Restart(self.pick(&PROGRAMS)),
            21 => Step::Cancel,
            _ => Step::Rest,
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_random_walk_of_faults_loses_nothing_and_runs_nothing_twice() {
    let seed = number("LANEYARD_SEED").unwrap_or(20_261_130);
    let steps = number("LANEYARD_STEPS").map_or(STEPS, |steps| u32::try_from(steps).unwrap());
    let mut walk = Walk(seed);
    let mut fleet = Fleet::start(FleetOptions::default());
    let mut down = BTreeSet::new();
    let mut lanes: Vec<Lane> = Vec::new();
    let mut taken = Vec::new();
    for _ in 0..steps {
        let step = walk.step();
        match &step {
            Step::Lane => {
                let open = lanes.iter_mut().map(Lane::is_over).filter(|over| !over).count();
                // A client that finds no controller at its start is refused, which is no lane.
                if open < OPEN && !down.contains("controller") {
                    let name = format!("answer {}", lanes.len());
                    lanes.push(fleet.lane(&[json!({"text": name})], &[]));
                }
            }
            Step::Cut(host) => fleet.host(host).cut(),
            Step::Mend(host) => fleet.host(host).mend(),
            Step::Lose(host, percent) => fleet.host(host).lose(*percent),
            Step::Slow(host, rate) => fleet.host(host).slow(*rate),
            Step::Kill(program) => {
                if down.insert(*program) {
                    fleet.kill(program);
                }
            }
            Step::Restart(program) => {
                if down.remove(program) {
                    fleet.restart(program);
                }
            }
            Step::Cancel => {
                if let Some(lane) = lanes.last() {
                    lane.signal(Signal::SIGINT);
                }
            }
            // Time passes, as part of the walk: faults must meet attempts in every state.
            Step::Rest => std::thread::sleep(Duration::from_millis(walk.next(1_200))),
        }
        taken.push(step);
    }
    eprintln!("seed {seed}, {steps} steps: {taken:?}");
    for host in ["controller", WORKERS[0], WORKERS[1], "client"] {
        fleet.host(host).mend();
        fleet.host(host).lose(0);
        fleet.host(host).slow(None);
    }
    for program in down {
        fleet.restart(program);
    }
    let mut delivered = 0;
    for (number, lane) in lanes.iter_mut().enumerate() {
        match lane.wait() {
            Some(0) => {
                delivered += 1;
                assert_eq!(fleet.model.count(&lane.id).invocations, 1, "lane {number}");
            }
            Some(130) => assert_eq!(lane.receipt()["status"], "cancelled", "{}", lane.stderr()),
            // The signal came before the client could handle any: it had taken nothing yet.
            None => assert_eq!(fleet.model.count(&lane.id).invocations, 0, "{}", lane.stderr()),
            // Refused, because the controller could not be reached: then nothing was taken and nothing ran.
            Some(64) => assert_eq!(fleet.model.count(&lane.id).invocations, 0, "{}", lane.stderr()),
            // The worker itself could not reach the model, and the provider said so.
            Some(70) => assert_eq!(lane.receipt()["status"], "child-failed", "{}", lane.stderr()),
            other => panic!("lane {number} ended with {other:?}: {:#}\n{}", lane.receipt(), lane.stderr()),
        }
    }
    fleet.assert_settled();
    eprintln!("{delivered} of {} lanes were delivered", lanes.len());
    assert!(delivered > 0, "a walk in which nothing was delivered shows nothing: seed {seed}");
}
