// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs on the machine: the papers' synthetic programs, and any program that is given as closures.

use serde::{Deserialize, Serialize};

use apps::{App, Digest};

use crate::activations::{self, Job, Kind};
use crate::app::Loading;
use crate::beside::{Beside, Load, Measured};
use crate::delegated::{Delegated, Touches};
use crate::lost;
use crate::platform::{Sim, clock_ns, fail, passed, random, vary, work_ns};
use crate::printed::{self, PRINTED};
use crate::setting::Setting;
use crate::world::World;
use catalog::{BarrierEntry, BarrierVisitor, Entry, MutexVisitor, RwLockVisitor};
use platform::{Atomic, Ordering::*, Platform};
use sync::barrier::RawBarrier;
use sync::mutex::RawMutex;
use sync::rwlock::RawRwLock;

/// What each thread does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// A critical section, then work outside (TR 1994, section 5.2; ICPP 2001, section 5).
    Mutex {
        /// A mutex of the catalogue.
        lock: String,
        /// Length of the section.
        critical_ns: f64,
        /// Length of the work outside.
        outside_ns: f64,
    },
    /// The same with a reader-writer lock (TR 1994, section 5.3).
    RwLock {
        /// A reader-writer lock of the catalogue.
        lock: String,
        /// Length of the section.
        critical_ns: f64,
        /// Length of the work outside.
        outside_ns: f64,
        /// Of 100 sections, so many write.
        writers_percent: f64,
    },
    /// Work, then a barrier (TR 1994, section 5.4).
    Barrier {
        /// A barrier of the catalogue.
        barrier: String,
        /// Length of the work between two barriers.
        outside_ns: f64,
    },
    /// Sections over data that all share, which another thread may run ([`crate::Path`] says what they
    /// cost). Threads are clients; the server of a lock that needs one is one more.
    Delegated {
        /// A delegating lock of the catalogue, or a mutex.
        lock: String,
        /// What a section touches.
        touches: Touches,
        /// Length of the work outside.
        outside_ns: f64,
        /// The processor that is left to the server; clients have the others, in their order.
        server: u32,
    },
    /// Threads of one of the kinds that *Scheduler Activations* compares.
    Threads {
        /// Which.
        kind: Kind,
        /// What they do.
        job: Job,
    },
    /// Parallel loops on microthreads, and a load of other programs (Uemura and Kan, section 4). Threads are
    /// the microthreads, the first of them the program's own. The simulation ends with the program.
    Beside {
        /// The program.
        measured: Measured,
        /// The barrier at which microthreads begin a loop and end it.
        barrier: String,
        /// What runs beside it.
        load: Load,
        /// So many processes of it, or threads.
        count: u32,
    },
    /// Quicksort with a lock ([`apps::App::Quicksort`]; TR 1994, section 5.2).
    Quicksort {
        /// A mutex of the catalogue.
        lock: String,
        /// Numbers to sort.
        elements: u32,
        /// A range of at most so many is sorted by one thread, without the lock.
        #[serde(default = "small", skip_serializing_if = "is_small")]
        small: u32,
    },
    /// Cholesky factorization with locks ([`apps::App::Cholesky`]; TR 1994, section 5.2).
    Cholesky {
        /// A mutex of the catalogue.
        lock: String,
        /// Levels of the columns' tree.
        levels: u32,
        /// Rows of the block that a number stands for.
        #[serde(default = "number", skip_serializing_if = "is_number")]
        block: u32,
    },
    /// The same, a column an owner ([`apps::App::FanOut`]; ICPP 2001, section 5).
    FanOut {
        /// A mutex of the catalogue.
        lock: String,
        /// Levels of the columns' tree.
        levels: u32,
        /// Rows of the block that a number stands for.
        block: u32,
    },
    /// Gaussian elimination with a barrier ([`apps::App::Gauss`]; TR 1994, section 5.4).
    Gauss {
        /// A barrier of the catalogue.
        barrier: String,
        /// Equations.
        rows: u32,
    },
    /// LU factorization with a barrier ([`apps::App::Lu`]; ICPP 2001, section 5).
    Lu {
        /// A barrier of the catalogue.
        barrier: String,
        /// Blocks a side.
        blocks: u32,
    },
    /// The light in a room, with locks ([`apps::App::Radiosity`]; ICPP 2001, section 5).
    Radiosity {
        /// A mutex of the catalogue.
        lock: String,
        /// Patches a side of each wall.
        side: u32,
    },
}

/// A block of Cholesky factorization that is a number.
fn number() -> u32 {
    1
}

fn is_number(block: &u32) -> bool {
    *block == number()
}

fn small() -> u32 {
    apps::SMALL
}

fn is_small(range: &u32) -> bool {
    *range == small()
}

impl Program {
    /// The lock or barrier, and its kind.
    pub fn lock(&self) -> (&'static str, &str) {
        match self {
            Self::Mutex { lock, .. }
            | Self::Quicksort { lock, .. }
            | Self::Cholesky { lock, .. }
            | Self::FanOut { lock, .. }
            | Self::Radiosity { lock, .. } => ("mutex", lock),
            Self::Threads { .. } => ("kind of thread", ""),
            Self::RwLock { lock, .. } => ("reader-writer lock", lock),
            Self::Delegated { lock, .. } => ("delegating lock or mutex", lock),
            Self::Barrier { barrier, .. }
            | Self::Beside { barrier, .. }
            | Self::Gauss { barrier, .. }
            | Self::Lu { barrier, .. } => ("barrier", barrier),
        }
    }

    /// As a program of the crate `apps`, with its lock or barrier.
    pub fn app(&self) -> Option<(App, &str)> {
        match *self {
            Self::Quicksort { ref lock, elements, small } => Some((App::Quicksort { elements, small }, lock)),
            Self::Cholesky { ref lock, levels, block } => Some((App::Cholesky { levels, block }, lock)),
            Self::FanOut { ref lock, levels, block } => Some((App::FanOut { levels, block }, lock)),
            Self::Gauss { ref barrier, rows } => Some((App::Gauss { rows }, barrier)),
            Self::Lu { ref barrier, blocks } => Some((App::Lu { blocks }, barrier)),
            Self::Radiosity { ref lock, side } => Some((App::Radiosity { side }, lock)),
            _ => None,
        }
    }
}

/// A program, how often, and among whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// What each thread does.
    pub program: Program,
    /// Threads of each instance.
    pub threads: u32,
    /// Turns of each thread.
    pub rounds: u64,
    /// By which fraction lengths vary.
    pub vary: f64,
    /// Identical programs side by side, which share nothing but the processors.
    pub instances: u32,
    /// The surroundings.
    pub setting: Setting,
}

impl Workload {
    /// The synthetic program for locks of TR 1994, section 5.2, at a multiprogramming level: one thread a
    /// processor, bound to it, and `level - 1` foreign processes a processor. `ratio` is that of outside to
    /// critical, 14 on the SGI and 65 on the KSR.
    pub fn tr_lock(lock: &str, processors: u32, level: f64, ratio: f64, rounds: u64) -> Self {
        // The paper does not tell the length.
        let critical_ns = 20_000.0;
        Self {
            program: Program::Mutex { lock: lock.into(), critical_ns, outside_ns: critical_ns * ratio },
            threads: processors,
            rounds,
            vary: 0.2,
            instances: 1,
            setting: Setting { foreign: level - 1.0, bound: true, ..Setting::default() },
        }
    }

    /// The lock microbenchmark of ICPP 2001, section 5, at a degree of multiprogramming: so many instances
    /// of four threads. 1,000 and 1,500 updates of cached memory, both varied by 10 %.
    pub fn icpp_lock(lock: &str, degree: u32) -> Self {
        let program = Program::Mutex {
            lock: lock.into(),
            critical_ns: 1_000.0 * Self::UPDATE_NS,
            outside_ns: 1_500.0 * Self::UPDATE_NS,
        };
        Self {
            program,
            threads: 4,
            rounds: 32 * 1024,
            vary: 0.1,
            instances: degree,
            setting: Setting { limit_ms: 600_000.0, ..Setting::default() },
        }
    }

    /// The barrier microbenchmark of ICPP 2001, section 5: the working phase and a barrier.
    pub fn icpp_barrier(barrier: &str, degree: u32) -> Self {
        let program = Program::Barrier { barrier: barrier.into(), outside_ns: 1_500.0 * Self::UPDATE_NS };
        Self { program, ..Self::icpp_lock("", degree) }
    }

    /// An update of cached memory on a Pentium Pro of 200 MHz: 1.5 cycles. Derived: at degree 1, 0.07 s are
    /// 6.89 %, so that 32 times 4,096 sections of 1,000 updates, one after the other, take about 1 s. (If
    /// that were one of the 32 executions, an update would take 50 cycles.)
    const UPDATE_NS: f64 = 7.75;

    /// The synthetic program for barriers of TR 1994, section 5.4: no work between them.
    pub fn tr_barrier(barrier: &str, threads: u32, rounds: u64) -> Self {
        Self {
            program: Program::Barrier { barrier: barrier.into(), outside_ns: 0.0 },
            threads,
            rounds,
            vary: 0.0,
            instances: 1,
            setting: Setting::default(),
        }
    }
}

struct Mutexes<'a> {
    world: &'a mut World,
    workload: &'a Workload,
    critical_ns: f64,
    outside_ns: f64,
}

impl MutexVisitor<Sim> for Mutexes<'_> {
    type Output = ();

    fn visit<L: RawMutex<Sim> + 'static>(self, _: &'static Entry) {
        let Self { world, workload, critical_ns, outside_ns } = self;
        let (rounds, by) = (workload.rounds, workload.vary);
        for _ in 0..workload.instances {
            let app = world.add_app();
            let lock = world.place(L::new());
            let inside = world.place(<Sim as Platform>::AtomicU32::new(0));
            for _ in 0..workload.threads {
                let node = world.place(L::Node::default());
                let place = std::ptr::from_ref(lock.get()).addr();
                world.spawn(app, move || {
                    for _ in 0..rounds {
                        let begin = clock_ns();
                        lost::wants(place);
                        // SAFETY: the node is this thread's, in use once at a time, and stays where it is.
                        unsafe { lock.lock(node.get()) };
                        let waited = clock_ns() - begin;
                        lost::has(place);
                        if inside.swap(1, Relaxed) != 0 {
                            fail("two threads are in the critical section".into());
                        }
                        work_ns(critical_ns * vary(by));
                        inside.store(0, Relaxed);
                        lost::frees(place);
                        // SAFETY: locked above with this node.
                        unsafe { lock.unlock(node.get()) };
                        lost::freed(place);
                        passed(waited);
                        work_ns(outside_ns * vary(by));
                    }
                });
            }
        }
    }
}

struct RwLocks<'a> {
    world: &'a mut World,
    workload: &'a Workload,
    critical_ns: f64,
    outside_ns: f64,
    writers_percent: f64,
}

impl RwLockVisitor<Sim> for RwLocks<'_> {
    type Output = ();

    fn visit<L: RawRwLock<Sim> + 'static>(self, _: &'static Entry) {
        let Self { world, workload, critical_ns, outside_ns, writers_percent } = self;
        let (rounds, by) = (workload.rounds, workload.vary);
        for _ in 0..workload.instances {
            let app = world.add_app();
            let lock = world.place(L::new());
            let writer = world.place(<Sim as Platform>::AtomicU32::new(0));
            for _ in 0..workload.threads {
                let node = world.place(L::Node::default());
                let place = std::ptr::from_ref(lock.get()).addr();
                world.spawn(app, move || {
                    for _ in 0..rounds {
                        let writes = (random(1_000_000) as f64) < writers_percent * 1e4;
                        let begin = clock_ns();
                        lost::wants(place);
                        // SAFETY: the node is this thread's, in use once at a time, and stays where it is.
                        unsafe { if writes { lock.write(node.get()) } else { lock.read(node.get()) } }
                        let waited = clock_ns() - begin;
                        lost::has(place);
                        if writes && writer.swap(1, Relaxed) != 0 || !writes && writer.load(Relaxed) != 0 {
                            fail("a writer is not alone".into());
                        }
                        work_ns(critical_ns * vary(by));
                        if writes {
                            writer.store(0, Relaxed);
                        } else if writer.load(Relaxed) != 0 {
                            fail("a writer is not alone".into());
                        }
                        lost::frees(place);
                        // SAFETY: locked above in this way with this node.
                        unsafe {
                            if writes { lock.unlock_write(node.get()) } else { lock.unlock_read(node.get()) }
                        }
                        lost::freed(place);
                        passed(waited);
                        work_ns(outside_ns * vary(by));
                    }
                });
            }
        }
    }
}

struct Barriers<'a> {
    world: &'a mut World,
    workload: &'a Workload,
    outside_ns: f64,
}

impl BarrierVisitor<Sim> for Barriers<'_> {
    type Output = ();

    fn visit<B: RawBarrier<Sim> + 'static>(self, _: &'static BarrierEntry)
    where
        B::Place: 'static,
        B::Member: 'static,
    {
        let Self { world, workload, outside_ns } = self;
        let (rounds, by, threads) = (workload.rounds, workload.vary, workload.threads);
        for _ in 0..workload.instances {
            let app = world.add_app();
            let barrier = world.place(B::new(threads));
            let places = world.place_all((0..B::places(threads)).map(|_| B::Place::default()));
            // Turns begun by each, for all to see at no cost.
            let turns = std::rc::Rc::new(std::cell::RefCell::new(vec![0u64; threads as usize]));
            for index in 0..threads {
                let turns = turns.clone();
                let place = std::ptr::from_ref(barrier.get()).addr();
                world.spawn(app, move || {
                    let mut member = B::Member::default();
                    for round in 1..=rounds {
                        work_ns(outside_ns * vary(by));
                        turns.borrow_mut()[index as usize] = round;
                        let begin = clock_ns();
                        lost::comes(place);
                        // SAFETY: the barrier and its places stay; index and member are this thread's own.
                        unsafe { barrier.wait(places.get(), index, &mut member) };
                        let waited = clock_ns() - begin;
                        lost::goes(place);
                        if turns.borrow().iter().any(|&turn| turn != round && turn != round + 1) {
                            fail("a barrier let a thread go on before all had come".into());
                        }
                        passed(waited);
                    }
                });
            }
        }
    }
}

impl Workload {
    /// What is to be done, in the unit in which threads count what they have done.
    pub(crate) fn wanted(&self) -> u64 {
        let (threads, instances) = (u64::from(self.threads), u64::from(self.instances));
        match self.program.app() {
            Some((app, _)) if app.has_barriers() => app.parts() * threads * instances,
            Some((app, _)) => app.parts() * instances,
            None if matches!(self.program, Program::Threads { .. } | Program::Beside { .. }) => self.rounds,
            None => threads * instances * self.rounds,
        }
    }

    /// Puts the program into the world, and returns what computes the digests, if it has any. `None` if the
    /// catalogue has no such name.
    pub(crate) fn build(&self, world: &mut World) -> Option<Vec<Digest>> {
        if let Some((app, lock)) = self.program.app() {
            let load = |world: &mut World| {
                let mut host = Loading::new(world);
                if lock == PRINTED.name && !app.has_barriers() {
                    return printed::visit_mutex::<Sim, _>(lock, app.loader(&mut host, self.threads));
                }
                app.load(&mut host, lock, self.threads)
            };
            return (0..self.instances).map(|_| load(world)).collect();
        }
        if let Program::Threads { kind, job } = self.program {
            activations::load(world, kind, job, self.threads, self.rounds, self.vary);
            return Some(Vec::new());
        }
        if let Program::Beside { measured, ref barrier, load, count } = self.program {
            let (threads, rounds) = (self.threads, self.rounds);
            let program = Beside { world, measured, load, count, threads, rounds, vary: self.vary };
            return catalog::visit_barrier::<Sim, _>(barrier, program).map(|digest| vec![digest]);
        }
        if let Some((lock, program)) = Delegated::of(world, self) {
            return program.load(lock).map(|()| Vec::new());
        }
        let built = match self.program {
            Program::Mutex { ref lock, critical_ns, outside_ns } => printed::visit_mutex::<Sim, _>(
                lock,
                Mutexes { world, workload: self, critical_ns, outside_ns },
            ),
            Program::RwLock { ref lock, critical_ns, outside_ns, writers_percent } => {
                catalog::visit_rwlock::<Sim, _>(
                    lock,
                    RwLocks { world, workload: self, critical_ns, outside_ns, writers_percent },
                )
            }
            Program::Barrier { ref barrier, outside_ns } => {
                catalog::visit_barrier::<Sim, _>(barrier, Barriers { world, workload: self, outside_ns })
            }
            _ => unreachable!("the others are of the crate apps"),
        };
        built.map(|()| Vec::new())
    }
}
