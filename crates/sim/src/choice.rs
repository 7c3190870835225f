// SPDX-License-Identifier: MIT OR Apache-2.0
//! An experiment: programs for whom the processor server chooses (`wakeful run --cpus auto`), with what it
//! learns by looking at their processor time, by equal shares, and without any partitions.
//!
//! Each program runs rounds of 80 ms of work: a serial part, then a loop that its team shares out. The team
//! is that of `sync`, of as many as the program's partition has processors when the loop begins. What counts
//! is the work of all programs together, as in Uemura and Kan's question about the total system throughput.

use std::cell::Cell;
use std::rc::Rc;

use platform::{Atomic, AtomicInt, Ordering::Relaxed, Platform};
use sync::team::{Job, Kind, Place, RawTeam, Wakeful};

use crate::platform::{Sim, progressed, vary, work_ns};
use crate::{Asks, Machine, Placed, Results, Server, Setting, Word, World, simulate_with};

/// BOUND: work of a round; some of them fit between two looks of the server.
const ROUND_NS: f64 = 80e6;
/// As the server.
const LOOK_MS: f64 = 1000.0;
/// By how much parts of a loop differ.
const VARY: f64 = 0.05;

/// A kind of program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// In a table.
    pub name: &'static str,
    /// Of its work so much is serial.
    serial: f64,
    /// Members of its team at most.
    parallelism: u32,
    /// It sleeps for so long after each round, in work of a round.
    sleeps: f64,
    /// Its helpers spin between loops for some quanta, before they sleep.
    spins: bool,
}

impl Model {
    /// Do its threads spin while they wait?
    pub fn spins(&self) -> bool {
        self.spins
    }
}

const SCALES: Model = Model { name: "scales", serial: 0.0, parallelism: u32::MAX, sleeps: 0.0, spins: false };

/// All kinds; the first one scales.
pub const MODELS: &[Model] = &[
    SCALES,
    Model { name: "10% serial", serial: 0.1, ..SCALES },
    Model { name: "half serial", serial: 0.5, ..SCALES },
    Model { name: "half, spins", serial: 0.5, spins: true, ..SCALES },
    Model { name: "one thread", parallelism: 1, ..SCALES },
    Model { name: "three threads", parallelism: 3, ..SCALES },
    Model { name: "waits", sleeps: 0.5, ..SCALES },
];

/// Who divides the processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divided {
    /// Nobody: all programs run on all processors.
    Not,
    /// The server, which never looks: equal shares.
    Equally,
    /// The server, which looks once a second.
    ByUse,
}

/// What came of a mix of programs.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Processors that all programs together have worked on, on the average, waiting excluded.
    pub total: f64,
    /// Each program's.
    pub each: Vec<f64>,
    /// Times that processors were moved.
    pub moves: u64,
    /// Why the simulation ended early, if it did.
    pub failure: Option<String>,
}

/// All pairs of the kinds whose threads sleep while they wait, or else those with one that spins. A kind is
/// in a pair with itself, too.
pub fn pairs(spin: bool) -> Vec<Vec<Model>> {
    let first = MODELS.iter().enumerate();
    let all = first.flat_map(|(at, &one)| MODELS[at..].iter().map(move |&other| vec![one, other]));
    all.filter(|pair| pair.iter().any(|model| model.spins) == spin).collect()
}

/// Runs these programs for so many seconds of virtual time.
pub fn run(machine: &Machine, programs: &[Model], divided: Divided, seconds: f64, seed: u64) -> Outcome {
    let asks = vec![Asks::Auto; programs.len()];
    let look_ms = if divided == Divided::ByUse { LOOK_MS } else { 0.0 };
    let server = (divided != Divided::Not).then_some(Server { asks, look_ms });
    let setting = Setting { server, limit_ms: seconds * 1e3, ..Setting::default() };
    let threads = machine.processors.count.value;
    let results = simulate_with(machine, &setting, seed, 0, |world| {
        programs.iter().for_each(|&model| load(world, model, threads));
    });
    outcome(&results, programs.len())
}

fn outcome(results: &Results, programs: usize) -> Outcome {
    let of = |program| {
        let those = results.threads.iter().filter(|thread| thread.instance == program);
        those.map(|thread| thread.work_ms).sum::<f64>() / results.elapsed_ms
    };
    let each: Vec<f64> = (0..programs).map(of).collect();
    Outcome { total: each.iter().sum(), each, moves: results.repartitions, failure: results.failure.clone() }
}

/// A loop: the team's job, and how long each part is.
#[repr(C)]
struct Parts {
    job: Job,
    each_ns: Cell<f64>,
}

/// # Safety
/// `job` is the first field of [`Parts`].
unsafe fn part(job: *const Job, _: u32) -> bool {
    // SAFETY: as the caller promises.
    let each_ns = unsafe { (*job.cast::<Parts>()).each_ns.get() };
    work_ns(each_ns * vary(VARY));
    true
}

fn load(world: &mut World, model: Model, threads: u32) {
    let members = model.parallelism.min(threads);
    match model.spins {
        false => load_sleeping(world, model, members),
        true => load_spinning(world, model, members),
    }
}

/// A round of the first thread, whose loop `share` runs, in parts of so many ns each, on so many members.
fn round(model: Model, members: u32, share: impl FnOnce(u32, f64)) {
    work_ns(ROUND_NS * model.serial);
    let members = Sim::processors().clamp(1, members);
    share(members, ROUND_NS * (1.0 - model.serial) / f64::from(members));
    progressed(1);
    if model.sleeps > 0.0 {
        Sim::nap((ROUND_NS * model.sleeps) as u64);
    }
}

/// The default team.
fn load_sleeping(world: &mut World, model: Model, members: u32) {
    let app = world.add_app();
    let team: Placed<Wakeful<Sim>> = world.place(RawTeam::<Sim>::new());
    let places: Placed<[Place<Sim>]> = world.place_all((1..members).map(|_| Place::default()));
    let parts = Rc::new(Parts { job: Job { run: part }, each_ns: Cell::new(0.0) });
    world.spawn(app, move || {
        loop {
            round(model, members, |members, each_ns| {
                parts.each_ns.set(each_ns);
                // SAFETY: one caller; the job is `parts`, which lives as long as this thread, and the places
                // stay.
                unsafe { team.run(&places[..members as usize - 1], &raw const parts.job) };
            });
        }
    });
    for at in 1..members {
        // SAFETY: one thread a place.
        world.spawn(app, move || unsafe { team.serve(&places[at as usize - 1], at, Kind::Free, |_| ()) });
    }
}

/// Uemura and Kan's microthreads: as many as there are processors, and all spin.
struct Spinning {
    /// Turned for each loop.
    go: Word<u32>,
    /// Parts that are not done.
    left: Word<u32>,
    /// Members now; the others sleep here.
    members: Word<u32>,
}

fn load_spinning(world: &mut World, model: Model, most: u32) {
    let app = world.add_app();
    let it = Spinning { go: Atomic::new(0), left: Atomic::new(0), members: Atomic::new(1) };
    let team = world.place(it);
    let each = Rc::new(Cell::new(0.0));
    let parts = each.clone();
    world.spawn(app, move || {
        loop {
            round(model, most, |members, each_ns| {
                each.set(each_ns);
                if team.members.swap(members, Relaxed) != members {
                    Sim::wake(&team.members, u32::MAX);
                }
                team.left.store(members, Relaxed);
                team.go.fetch_add(1, Relaxed);
                work_ns(each_ns * vary(VARY));
                team.left.fetch_sub(1, Relaxed);
                while team.left.load(Relaxed) != 0 {
                    Sim::pause();
                }
            });
        }
    });
    for index in 1..most {
        let each = parts.clone();
        world.spawn(app, move || {
            let mut seen = 0;
            loop {
                let members = team.members.load(Relaxed);
                let go = team.go.load(Relaxed);
                if index >= members {
                    Sim::wait(&team.members, members, None);
                    seen = team.go.load(Relaxed);
                } else if go == seen {
                    Sim::pause();
                } else {
                    seen = go;
                    work_ns(each.get() * vary(VARY));
                    team.left.fetch_sub(1, Relaxed);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine::named("epyc-64").unwrap().with_processors(8)
    }

    fn gain(programs: &[Model], seconds: f64) -> f64 {
        let total = |divided| {
            let outcome = run(&machine(), programs, divided, seconds, 1);
            assert_eq!(outcome.failure, None);
            outcome.total
        };
        total(Divided::ByUse) / total(Divided::Equally)
    }

    #[test]
    fn equal_shares_are_equal_and_one_processor_is_everybodys() {
        let it = run(&machine(), &[SCALES, SCALES, SCALES], Divided::Equally, 2.0, 1);
        assert!(it.each.iter().all(|&each| (1.8..3.1).contains(&each)), "{it:?}");
        assert!((6.5..7.1).contains(&it.total), "{it:?}");
    }

    #[test]
    fn one_that_scales_and_one_that_does_not() {
        let half = MODELS.iter().find(|it| it.name == "half serial").unwrap();
        let gain = gain(&[SCALES, *half], 20.0);
        assert!(gain >= 1.15, "{gain}");
    }

    /// Some of them; `WAKEFUL_LONG=1` takes all.
    #[test]
    fn no_pair_loses() {
        let long = std::env::var_os("WAKEFUL_LONG").is_some_and(|value| value == "1");
        let all = pairs(false);
        assert!(all.len() >= 20);
        for pair in all.iter().step_by(if long { 1 } else { 6 }) {
            let gain = gain(pair, if long { 60.0 } else { 12.0 });
            assert!(gain >= 0.98, "{gain}: {pair:?}");
        }
    }

    /// Who spins while it waits looks as if it worked, and gets what others give up.
    #[test]
    fn a_program_that_spins_is_not_seen_through() {
        let pairs = pairs(true);
        let pair = pairs.iter().find(|pair| pair[0].name == "half serial").unwrap();
        let gain = gain(pair, 12.0);
        assert!((0.8..1.0).contains(&gain), "{gain}");
    }
}
