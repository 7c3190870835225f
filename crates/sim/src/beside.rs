// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program of parallel loops, and what runs beside it: section 4 of Uemura and Kan, *A Two-level Processor
//! Scheduling Scheme for Shared-memory Multiprocessors* (Mitsubishi Electric).
//!
//! Microthreads are those of section 3. Helpers wait until the first thread tells them of a loop. All run a
//! block of it each, and meet behind it. Both waits are at one barrier of the catalogue; the paper's spins.
//! The loops compute their real result once. Then and later an iteration takes the time of its operations.
//! Their data use no cache here.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use apps::{Digest, LoopApp, Loops};
use catalog::{BarrierEntry, BarrierVisitor};
use platform::Platform;
use serde::{Deserialize, Serialize};
use sync::barrier::RawBarrier;

use crate::engine::engine;
use crate::platform::{Sim, over, progressed, vary, work_ns};
use crate::world::{Placed, World};

/// The program that is measured, executed as many times as the workload has rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// A two-dimensional FFT, 64 x 1024.
    Fft,
    /// A matrix product, 300 x 300.
    Matrix,
}

/// What runs beside it. Each is there all the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Processes that compute and then wait for a disk, in turns.
    Compiling {
        /// Computing.
        compute_ms: f64,
        /// Waiting.
        wait_ms: f64,
    },
    /// A parallel program of so many threads, which meet at a barrier that spins.
    Computing {
        /// Between two barriers.
        compute_ms: f64,
    },
}

impl Measured {
    fn app(self) -> LoopApp {
        match self {
            Self::Fft => LoopApp::Fft { rows: 64, columns: 1024 },
            Self::Matrix => LoopApp::Matrix { size: 300 },
        }
    }
}

/// The program that is to be loaded; see [`crate::Program::Beside`].
pub(crate) struct Beside<'a> {
    pub world: &'a mut World,
    pub measured: Measured,
    pub load: Load,
    pub count: u32,
    pub threads: u32,
    pub rounds: u64,
    pub vary: f64,
}

/// The body of a loop, while it runs.
type Body = *const dyn Fn(usize);

/// What the microthreads of a program share, beside their barrier. Looking at it costs nothing: it stands
/// for what a real one reads from the line of the barrier.
struct Gang<B: RawBarrier<Sim> + 'static> {
    barrier: Placed<B>,
    places: Placed<[B::Place]>,
    threads: u32,
    app: LoopApp,
    /// The loop's iterations and body; none of either, and the helpers go home.
    job: Cell<Option<(usize, Body)>>,
    /// The real result is not yet there.
    computes: Cell<bool>,
}

impl<B: RawBarrier<Sim> + 'static> Gang<B>
where
    B::Place: 'static,
{
    fn meet(&self, index: u32, member: &mut B::Member) {
        // SAFETY: the barrier and its places stay; index and member are this thread's own.
        unsafe { self.barrier.wait(self.places.get(), index, member) };
    }

    /// A microthread's block of the loop.
    fn part(&self, index: u32, (iterations, body): (usize, Body)) {
        // SAFETY: the current machine, and its running thread.
        let operation_ns = unsafe { (*engine()).memory.hit_ns() };
        let at = |index: u32| iterations * index as usize / self.threads as usize;
        for iteration in at(index)..at(index + 1) {
            if self.computes.get() {
                // SAFETY: who runs the loop waits for all parts, and keeps the body until then.
                unsafe { (*body)(iteration) };
            }
            work_ns(self.app.operations(iterations) * operation_ns);
        }
    }

    fn help(&self, index: u32) {
        let mut member = B::Member::default();
        loop {
            self.meet(index, &mut member);
            let Some(job) = self.job.get() else { return };
            self.part(index, job);
            self.meet(index, &mut member);
        }
    }
}

/// The first thread's view of it.
struct First<'a, B: RawBarrier<Sim> + 'static> {
    gang: &'a Gang<B>,
    member: RefCell<B::Member>,
}

impl<B: RawBarrier<Sim> + 'static> Loops for First<'_, B>
where
    B::Place: 'static,
{
    fn run(&self, iterations: usize, body: &(impl Fn(usize) + Sync)) {
        let body: *const (dyn Fn(usize) + '_) = body;
        // SAFETY: only the lifetime changes. The body is used until the second meeting, behind which it goes.
        let job = (iterations, unsafe { std::mem::transmute::<*const (dyn Fn(usize) + '_), Body>(body) });
        let member = &mut *self.member.borrow_mut();
        self.gang.job.set(Some(job));
        self.gang.meet(0, member);
        self.gang.part(0, job);
        self.gang.meet(0, member);
        self.gang.job.set(None);
    }
}

impl BarrierVisitor<Sim> for Beside<'_> {
    type Output = Digest;

    fn visit<B: RawBarrier<Sim> + 'static>(self, _: &'static BarrierEntry) -> Digest
    where
        B::Place: 'static,
        B::Member: 'static,
    {
        let Self { world, measured, load, count, threads, rounds, vary } = self;
        let program = world.add_app();
        let gang = Rc::new(Gang {
            barrier: world.place(B::new(threads)),
            places: world.place_all((0..B::places(threads)).map(|_| B::Place::default())),
            threads,
            app: measured.app(),
            job: Cell::new(None),
            computes: Cell::new(true),
        });
        let loaded = Rc::new(RefCell::new(measured.app().load()));
        let (first, result) = (gang.clone(), loaded.clone());
        world.spawn(program, move || {
            let loops = First { gang: &*first, member: RefCell::default() };
            for _ in 0..rounds {
                loaded.borrow_mut().run(&loops);
                first.computes.set(false);
                progressed(1);
            }
            over();
        });
        for index in 1..threads {
            let gang = gang.clone();
            world.spawn(program, move || gang.help(index));
        }
        match load {
            Load::Compiling { compute_ms, wait_ms } => {
                for _ in 0..count {
                    let app = world.add_app();
                    world.spawn(app, move || compile(compute_ms * 1e6, wait_ms * 1e6, vary));
                }
            }
            Load::Computing { compute_ms } if count > 0 => compute(world, count, compute_ms * 1e6, vary),
            Load::Computing { .. } => {}
        }
        Box::new(move || result.try_borrow().map_or(0, |it| it.digest()))
    }
}

fn compile(compute_ns: f64, wait_ns: f64, by: f64) {
    loop {
        work_ns(compute_ns * vary(by));
        Sim::nap((wait_ns * vary(by)) as u64);
    }
}

/// The parallel program of the load: always the barrier of the paper's microthreads.
fn compute(world: &mut World, threads: u32, compute_ns: f64, by: f64) {
    type Barrier = sync::barrier::CSpin<Sim>;
    let app = world.add_app();
    let barrier = world.place(<Barrier as RawBarrier<Sim>>::new(threads));
    let places = <Barrier as RawBarrier<Sim>>::places(threads);
    let places = world.place_all((0..places).map(|_| Default::default()));
    for index in 0..threads {
        world.spawn(app, move || {
            let mut member = Default::default();
            loop {
                work_ns(compute_ns * vary(by));
                // SAFETY: the barrier and its places stay; index and member are this thread's own.
                unsafe { RawBarrier::<Sim>::wait(&*barrier, places.get(), index, &mut member) };
            }
        });
    }
}
