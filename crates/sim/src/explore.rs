// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exploration: who goes on after each shared access is chosen, not computed, so that every preemption can
//! be tried.
//!
//! The machine has one processor, and an explorer in the place of its quanta. Before each shared access of
//! the running thread, and where it pauses, sleeps or ends, is a *step*. By default a thread goes on until
//! it pauses, sleeps or ends, and then the one that has waited longest. A *schedule* is the list of steps
//! at which it is otherwise, printed as `step:thread,...`: with it [`replay`] does the same again, on any
//! host.
//!
//! All is as on a real machine with one processor: who does not run is preempted, and the arena says so
//! (unless the hints lie); a thread that wishes not to be preempted is warned once, and then preempted;
//! deadlines pass in virtual time, in which a pause is long.
//!
//! What it cannot find: faults of memory orderings (accesses happen one after the other), and a node that
//! is used after its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use platform::{Atomic, AtomicInt, Ordering::*, Platform, RunState, Wish};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use sync::barrier::RawBarrier;
use sync::mutex::RawMutex;
use sync::rwlock::RawRwLock;

use crate::chance::below;
use crate::engine::{self, Engine};
use crate::explorer::{Change, Explorer, Policy};
use crate::machine::{Machine, Queue};
#[cfg(doc)]
use crate::platform::Explored;
use crate::platform::fail;
use crate::run::resume;
use crate::setting::{Hints, Setting};
use crate::thread::{NOBODY, State};
use crate::world::{Placed, World};

/// How schedules are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// At each step, one time in eight, anybody.
    Random {
        /// So many schedules.
        runs: u64,
    },
    /// By priorities, which change at so many random steps (probabilistic concurrency testing, Burckhardt
    /// et al., ASPLOS 2010).
    Pct {
        /// So many schedules.
        runs: u64,
        /// Changes, plus 1.
        depth: u32,
    },
    /// All schedules that differ from the default at so many steps, those that differ at fewer first.
    Bounded {
        /// So many steps.
        changes: usize,
        /// So many schedules at most.
        runs: u64,
    },
}

/// What to explore.
#[derive(Clone, Copy, Debug)]
pub struct Exploration {
    /// How.
    pub strategy: Strategy,
    /// What the kernel tells.
    pub hints: Hints,
    /// Steps after which a run counts as endless.
    pub steps: u64,
    /// Of all that is random.
    pub seed: u64,
}

impl Default for Exploration {
    fn default() -> Self {
        Self { strategy: Strategy::Random { runs: 1000 }, hints: Hints::True, steps: 100_000, seed: 1 }
    }
}

/// A schedule under which a program fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How.
    pub what: String,
    /// For [`replay`].
    pub schedule: String,
    /// Which run it was, from 1.
    pub run: u64,
}

/// What came of an exploration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Schedules tried.
    pub runs: u64,
    /// Steps of all of them.
    pub steps: u64,
    /// All that were to be tried have been.
    pub complete: bool,
    /// The first that fails.
    pub failure: Option<Failure>,
}

impl Engine {
    /// Lets the explorer choose who goes on. False if nobody can.
    fn choose(&mut self) -> bool {
        let running = self.processors[0].thread;
        let queue: Vec<usize> = self.waiting.queues[0].iter().copied().collect();
        let now = self.tally.end;
        let mut explorer = self.explorer.take().expect("exploring");
        let goes_on = if running != NOBODY {
            let mut ready = queue.clone();
            ready.push(running);
            let chosen = explorer.choose(running, &ready, None);
            if chosen != running {
                let it = &mut self.threads[running];
                if self.rules.honours && it.wish != Wish::Preemptable && !it.warning {
                    it.warning = true;
                } else {
                    self.stop(0, now);
                    self.threads[running].state = State::Ready;
                    self.tell(running, 0, RunState::Preempted, now);
                    self.waiting.queues[0].push_back(running);
                    self.waiting.queues[0].retain(|&thread| thread != chosen);
                    self.start(0, chosen, now);
                }
            }
            true
        } else if let Some(&first) = queue.first() {
            let paused = queue.last().copied().filter(|_| queue.len() > 1);
            let chosen = explorer.choose(first, &queue, paused);
            self.waiting.queues[0].retain(|&thread| thread != chosen);
            self.waiting.idle = 0;
            self.start(0, chosen, now);
            true
        } else {
            false
        };
        if explorer.steps > explorer.most {
            self.fail(format!("no end after {} steps", explorer.most));
        }
        self.explorer = Some(explorer);
        goes_on
    }
}

/// # Safety
/// As for [`crate::run::run`].
unsafe fn run(this: *mut Engine) {
    // SAFETY: as for `run::run`.
    unsafe {
        (*this).boot();
        loop {
            let it = &mut *this;
            if it.waiting.live == 0 || it.tally.failure.is_some() {
                break;
            }
            let timer = it.timers.next();
            if let Some(time) = timer
                && (time <= it.tally.end
                    || it.waiting.queues[0].is_empty() && it.processors[0].thread == NOBODY)
            {
                let (time, timer) = it.timers.pop().expect("just seen");
                it.tally.end = it.tally.end.max(time);
                it.fire(timer, time);
                continue;
            }
            if !it.choose() {
                it.fail("nobody can go on".into());
            }
            if it.tally.failure.is_none() {
                let now = it.processors[0].resume.max(it.tally.end);
                resume(this, 0, now);
            }
        }
        (*this).close();
    }
}

struct Outcome {
    what: Option<String>,
    explorer: Explorer,
}

/// One processor, where a pause is as long as a fiftieth of the naps of our locks.
fn machine() -> Machine {
    let mut machine = Machine::named("sgi-challenge-11").expect("it comes with the crate").with_processors(1);
    machine.processors.pause_ns.value = 50_000.0;
    machine
}

fn one(machine: &Machine, exploration: &Exploration, policy: Policy, build: &dyn Fn(&mut World)) -> Outcome {
    let setting = Setting { hints: exploration.hints, queue: Some(Queue::Global), ..Setting::default() };
    let mut engine = Engine::new(machine, &setting, 1);
    engine.explorer = Some(Explorer::new(policy, exploration.steps));
    let this: *mut Engine = &mut *engine;
    let result = engine::with(this, || {
        catch_unwind(AssertUnwindSafe(|| {
            build(&mut World(this));
            // SAFETY: `build` has ended, and nobody else knows the machine.
            unsafe { run(this) };
        }))
    });
    let panicked = result.err().map(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        format!("panicked: {}", text.unwrap_or("?"))
    });
    // A panic in the middle of a choice takes the explorer along; its schedule is lost, not the fact.
    let explorer = engine.explorer.take().unwrap_or_else(|| Explorer::new(Policy::Told(Vec::new()), 0));
    Outcome { what: panicked.or_else(|| engine.tally.failure.clone()), explorer }
}

fn print(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "-".into();
    }
    changes.iter().map(|(step, thread)| format!("{step}:{thread}")).collect::<Vec<_>>().join(",")
}

fn parse(schedule: &str) -> Option<Vec<Change>> {
    if schedule == "-" {
        return Some(Vec::new());
    }
    let change = |text: &str| {
        let (step, thread) = text.split_once(':')?;
        Some((step.parse().ok()?, thread.parse().ok()?))
    };
    schedule.split(',').map(change).collect()
}

/// Tries schedules of the program that `build` loads, until one fails or all have been tried.
pub fn explore(exploration: &Exploration, build: impl Fn(&mut World)) -> Report {
    let machine = machine();
    let mut report = Report { runs: 0, steps: 0, complete: false, failure: None };
    let mut try_one = |policy: Policy| {
        let Outcome { what, explorer } = one(&machine, exploration, policy, &build);
        report.runs += 1;
        report.steps += explorer.steps;
        if let Some(what) = what {
            let schedule = print(&explorer.changes);
            report.failure.get_or_insert(Failure { what, schedule, run: report.runs });
            return None;
        }
        Some(explorer)
    };
    let random =
        |run: u64| Pcg64Mcg::seed_from_u64(exploration.seed.wrapping_mul(0x9e37_79b9).wrapping_add(run));
    let complete = match exploration.strategy {
        Strategy::Random { runs } => (0..runs).all(|run| try_one(Policy::Random(random(run))).is_some()),
        Strategy::Pct { runs, depth } => {
            // Steps that a run has, from the last one.
            let mut length = 100;
            (0..runs).all(|run| {
                let mut random = random(run);
                let changes = (1..depth).map(|_| below(&mut random, length)).collect();
                let policy = Policy::Pct { random, priorities: Vec::new(), changes, least: 1 << 32 };
                try_one(policy).map(|explorer| length = explorer.steps.max(1)).is_some()
            })
        }
        Strategy::Bounded { changes, runs } => {
            let mut front: std::collections::VecDeque<Vec<Change>> = [Vec::new()].into();
            let mut left = runs;
            loop {
                let Some(schedule) = front.pop_front() else { break true };
                if left == 0 {
                    break false;
                }
                left -= 1;
                let Some(explorer) = try_one(Policy::Told(schedule.clone())) else { break false };
                if schedule.len() == changes {
                    continue;
                }
                let from = schedule.last().map_or(0, |&(step, _)| step + 1);
                for (step, &others) in explorer.others.iter().enumerate().skip(from as usize) {
                    for thread in (0..64).filter(|thread| others >> thread & 1 != 0) {
                        let mut next = schedule.clone();
                        next.push((step as u64, thread));
                        front.push_back(next);
                    }
                }
            }
        }
    };
    report.complete = complete;
    report
}

/// Runs the program under a printed schedule; how it fails, if it does. `exploration` is that which printed
/// it.
///
/// # Panics
/// If it is no schedule.
pub fn replay(exploration: &Exploration, schedule: &str, build: impl Fn(&mut World)) -> Option<String> {
    let changes =
        parse(schedule).unwrap_or_else(|| panic!("\"{schedule}\" is no schedule: give step:thread,... or -"));
    one(&machine(), exploration, Policy::Told(changes), &build).what
}

/// A number that loses an update if two threads are at it.
fn bump<P: Platform>(number: Placed<P::AtomicU32>) {
    let before = number.load(Relaxed);
    number.store(before + 1, Relaxed);
}

/// `P` in what follows is [`Explored`], or something twisted around it. So many threads enter the lock's
/// section so many times each; one is alone, and nobody is left behind.
pub fn mutex<P: Platform, L: RawMutex<P> + 'static>(threads: u32, rounds: u32) -> impl Fn(&mut World) {
    move |world| {
        let app = world.add_app();
        let lock = world.place(L::new());
        let number = world.place(P::AtomicU32::new(0));
        let done = world.place(P::AtomicU32::new(0));
        for _ in 0..threads {
            let node = world.place(L::Node::default());
            world.spawn(app, move || {
                for _ in 0..rounds {
                    // SAFETY: the node is this thread's, in use once at a time, and stays where it is.
                    unsafe { lock.lock(node.get()) };
                    bump::<P>(number);
                    // SAFETY: locked above with this node.
                    unsafe { lock.unlock(node.get()) };
                }
                if done.fetch_add(1, Relaxed) + 1 == threads && number.load(Relaxed) != threads * rounds {
                    fail("an update got lost: two threads held the lock at once".into());
                }
            });
        }
    }
}

/// So many threads read, and every second one writes; a writer is alone.
pub fn rwlock<P: Platform, L: RawRwLock<P> + 'static>(threads: u32, rounds: u32) -> impl Fn(&mut World) {
    move |world| {
        let app = world.add_app();
        let lock = world.place(L::new());
        let (first, second) = (world.place(P::AtomicU32::new(0)), world.place(P::AtomicU32::new(0)));
        for index in 0..threads {
            let node = world.place(L::Node::default());
            world.spawn(app, move || {
                for _ in 0..rounds {
                    // SAFETY: the node is this thread's, in use once at a time, and stays where it is; each
                    // is released as it was acquired.
                    unsafe {
                        if index % 2 == 0 {
                            lock.write(node.get());
                            bump::<P>(first);
                            bump::<P>(second);
                            if first.load(Relaxed) != second.load(Relaxed) {
                                fail("two writers held the lock at once".into());
                            }
                            lock.unlock_write(node.get());
                        } else {
                            lock.read(node.get());
                            if first.load(Relaxed) != second.load(Relaxed) {
                                fail("a reader held the lock together with a writer".into());
                            }
                            lock.unlock_read(node.get());
                        }
                    }
                }
            });
        }
    }
}

/// So many threads wait so many times; nobody goes on before all have come, and one of each episode is the
/// serial one.
pub fn barrier<P: Platform, B: RawBarrier<P> + 'static>(threads: u32, episodes: u32) -> impl Fn(&mut World)
where
    B::Place: 'static,
    B::Member: 'static,
{
    move |world| {
        let app = world.add_app();
        let barrier = world.place(B::new(threads));
        let places = world.place_all((0..B::places(threads)).map(|_| B::Place::default()));
        let turns = Rc::new(std::cell::RefCell::new(vec![0u32; threads as usize]));
        let serial = Rc::new(std::cell::Cell::new(0));
        for index in 0..threads {
            let (turns, serial) = (turns.clone(), serial.clone());
            world.spawn(app, move || {
                let mut member = B::Member::default();
                for episode in 1..=episodes {
                    turns.borrow_mut()[index as usize] = episode;
                    // SAFETY: the barrier and its places stay; index and member are this thread's own.
                    let is_serial = unsafe { barrier.wait(places.get(), index, &mut member) };
                    serial.set(serial.get() + u32::from(is_serial));
                    if turns.borrow().iter().any(|&turn| turn != episode && turn != episode + 1) {
                        fail("a thread went on before all had come".into());
                    }
                    if serial.get() > episode + 1 {
                        fail("two threads of an episode were told that they are the serial one".into());
                    }
                }
                turns.borrow_mut()[index as usize] = episodes + 1;
                if turns.borrow().iter().all(|&turn| turn == episodes + 1) && serial.get() != episodes {
                    fail(format!("{} threads were the serial one in {episodes} episodes", serial.get()));
                }
            });
        }
    }
}
