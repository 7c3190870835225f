// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real programs of TR 1994, sections 5.2 and 5.4, and of ICPP 2001, section 5, written once: Quicksort,
//! Cholesky and Radiosity with locks, Gaussian elimination and LU with barriers.
//!
//! A program sees a [`Host`], which gives it memory and threads, and a lock or a barrier of the catalogue.
//! [`Threads`] is the host that is real; the simulator brings another. What a program computes is the same
//! on each of them, whatever the lock and whoever comes first: its [digest](App::load) says so.
//!
//! Beside them [`LoopApp`]: the programs of Uemura and Kan, made of loops, over whatever runs those.
//!
//! The papers' inputs are not in their text; [`App`] says what is taken instead.

mod cholesky;
mod fan_out;
mod gauss;
mod loops;
mod lu;
mod quicksort;
mod radiosity;

pub use loops::{LoadedLoops, LoopApp, Loops, Sequential};
pub use quicksort::SMALL;

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use catalog::{BarrierEntry, BarrierVisitor, Entry, MutexVisitor};
use platform::{Atomic, Ordering::*, Platform};
use sync::barrier::RawBarrier;
use sync::mutex::RawMutex;

/// Where a program runs.
pub trait Host: 'static {
    /// What locks and words are made of.
    type Platform: Platform;
    /// Memory that the threads share.
    type Shared<T: Send + Sync + 'static>: Clone + Deref<Target = [T]> + Send + 'static;

    /// Moves values to where the threads share them.
    fn share<T: Send + Sync + 'static>(&mut self, values: Vec<T>) -> Self::Shared<T>;
    /// A thread, which runs when all is loaded.
    fn spawn(&mut self, body: impl FnOnce() + Send + 'static);
    /// The running thread has computed: so many arithmetic operations beside its accesses to shared words.
    /// For hosts on which time does not pass by itself.
    fn computed(operations: u32);
    /// So many of [`App::parts`] are done.
    fn done(parts: u32);
    /// The running thread has come so far with the lock or barrier at this address. For hosts that want to
    /// know what is waited for.
    fn waits(_: Step, _: usize) {}
}

/// How far a thread has come with a lock, or at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It begins to wait for the lock.
    Wants,
    /// It has it.
    Has,
    /// It begins to give it back.
    Frees,
    /// It has done so.
    Freed,
    /// It comes to the barrier.
    Comes,
    /// It goes on.
    Goes,
}

/// A program and the size of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum App {
    /// Sorts so many numbers: ranges to sort are on a stack under one lock.
    Quicksort {
        /// Numbers.
        elements: u32,
        /// A range of at most so many is sorted by one thread, without the lock: see [`SMALL`].
        small: u32,
    },
    /// Factors a sparse matrix: columns that wait for nothing are in a queue under one lock, and each
    /// column has a lock under which others are subtracted from it, as in SPLASH. The columns' dependences
    /// form a binary tree of so many levels, four columns a node (SPLASH's input matrices have such trees,
    /// of irregular shape).
    Cholesky {
        /// Levels of the tree, from 1 to 10.
        levels: u32,
        /// Each number stands for a block of so many rows and columns, and counts its operations. With 1 it
        /// is a number.
        block: u32,
    },
    /// The same, but each column has an owner, dealt by turns, which alone changes it. A finished column is
    /// put into the queues of those that it concerns, each under a lock, as in SPLASH-2.
    FanOut {
        /// Levels of the tree, from 1 to 10.
        levels: u32,
        /// As for [`App::Cholesky`].
        block: u32,
    },
    /// Solves so many equations, by row operations without pivoting; a barrier behind each column. Rows are
    /// dealt to the threads by turns.
    Gauss {
        /// Equations.
        rows: u32,
    },
    /// Factors a dense matrix into a lower and an upper triangular one, block by block; two barriers a step.
    Lu {
        /// Blocks a side, each of 16 x 16.
        blocks: u32,
    },
    /// Computes the light in a room: tasks are in queues, one a thread, each under a lock. Whose own queue
    /// is empty steals from the others. Each patch has a lock under which light is added to it.
    Radiosity {
        /// Each of the room's six walls has so many patches a side.
        side: u32,
    },
}

/// A function that tells, when all threads have ended, what they have computed.
pub type Digest = Box<dyn FnOnce() -> u32>;

impl App {
    /// How much there is to do in all, in the unit of [`Host::done`].
    pub fn parts(&self) -> u64 {
        match *self {
            Self::Quicksort { elements, .. } => elements.into(),
            Self::Cholesky { levels, .. } | Self::FanOut { levels, .. } => cholesky::columns(levels) as u64,
            Self::Gauss { rows } => rows.saturating_sub(1).into(),
            Self::Lu { blocks } => blocks.into(),
            Self::Radiosity { side } => radiosity::tasks(side),
        }
    }

    /// Has it barriers? All threads do each of its parts then, so that each counts it.
    pub fn has_barriers(&self) -> bool {
        matches!(self, Self::Gauss { .. } | Self::Lu { .. })
    }

    /// Loads the program for so many threads, with this lock or barrier of the catalogue; `None` if there
    /// is none of the name.
    pub fn load<H: Host>(self, host: &mut H, lock: &str, threads: u32) -> Option<Digest> {
        let loader = self.loader(host, threads);
        if self.has_barriers() {
            catalog::visit_barrier::<H::Platform, _>(lock, loader)
        } else {
            catalog::visit_mutex::<H::Platform, _>(lock, loader)
        }
    }

    /// The same for a mutex that is not of the catalogue: it visits that, for an app that has locks.
    pub fn loader<H: Host>(self, host: &mut H, threads: u32) -> Loader<'_, H> {
        Loader { app: self, host, threads: threads.max(1) }
    }

    /// The digest, computed by one thread in the simplest way.
    pub fn expected(self) -> u32 {
        match self {
            Self::Quicksort { elements, .. } => quicksort::expected(elements),
            Self::Cholesky { levels, .. } | Self::FanOut { levels, .. } => cholesky::expected(levels),
            Self::Gauss { rows } => gauss::expected(rows),
            Self::Lu { blocks } => lu::expected(blocks),
            Self::Radiosity { side } => radiosity::expected(side),
        }
    }
}

/// Loads a program with the lock or barrier that it visits.
pub struct Loader<'a, H> {
    app: App,
    host: &'a mut H,
    threads: u32,
}

impl<H: Host> MutexVisitor<H::Platform> for Loader<'_, H> {
    type Output = Digest;

    fn visit<L: RawMutex<H::Platform> + 'static>(self, _: &'static Entry) -> Digest {
        match self.app {
            App::Quicksort { elements, small } => {
                quicksort::load::<H, L>(self.host, self.threads, elements, small)
            }
            App::Cholesky { levels, block } => cholesky::load::<H, L>(self.host, self.threads, levels, block),
            App::FanOut { levels, block } => fan_out::load::<H, L>(self.host, self.threads, levels, block),
            App::Radiosity { side } => radiosity::load::<H, L>(self.host, self.threads, side),
            App::Gauss { .. } | App::Lu { .. } => unreachable!("has a barrier"),
        }
    }
}

impl<H: Host> BarrierVisitor<H::Platform> for Loader<'_, H> {
    type Output = Digest;

    fn visit<B: RawBarrier<H::Platform> + 'static>(self, _: &'static BarrierEntry) -> Digest
    where
        B::Place: 'static,
        B::Member: 'static,
    {
        match self.app {
            App::Gauss { rows } => gauss::load::<H, B>(self.host, self.threads, rows),
            App::Lu { blocks } => lu::load::<H, B>(self.host, self.threads, blocks),
            _ => unreachable!("has a lock"),
        }
    }
}

/// A barrier at which all threads of a program meet.
struct Meeting<H: Host, B: RawBarrier<H::Platform> + 'static>
where
    B::Place: 'static,
{
    barrier: H::Shared<B>,
    places: H::Shared<B::Place>,
    threads: u32,
}

impl<H: Host, B: RawBarrier<H::Platform> + 'static> Meeting<H, B>
where
    B::Place: 'static,
    B::Member: 'static,
{
    fn share(host: &mut H, threads: u32) -> Self {
        let barrier = host.share(vec![B::new(threads)]);
        let places = host.share((0..B::places(threads)).map(|_| B::Place::default()).collect());
        Self { barrier, places, threads }
    }

    /// Starts the threads. Each has its number, and a call that waits for the others.
    fn spawn(self, host: &mut H, body: impl Fn(u32, &mut dyn FnMut()) + Clone + Send + 'static) {
        for index in 0..self.threads {
            let (barrier, places, body) = (self.barrier.clone(), self.places.clone(), body.clone());
            host.spawn(move || {
                let mut member = B::Member::default();
                body(index, &mut || {
                    let at = std::ptr::from_ref(&barrier[0]).addr();
                    H::waits(Step::Comes, at);
                    // SAFETY: the barrier and its places stay; index and member are this thread's own.
                    unsafe { barrier[0].wait(&places, index, &mut member) };
                    H::waits(Step::Goes, at);
                });
            });
        }
    }
}

/// A place in line for a lock, where its lock's other waiters see it.
struct Place<N>(N);

// SAFETY: what others see of a node they see through the lock's protocol, which is made for that; the rest
// is the thread's own.
unsafe impl<N> Send for Place<N> {}
// SAFETY: as above.
unsafe impl<N> Sync for Place<N> {}

type Word<H> = <<H as Host>::Platform as Platform>::AtomicU32;

fn words<H: Host>(values: impl Iterator<Item = u32>) -> Vec<Word<H>> {
    values.map(Atomic::new).collect()
}

/// Locks, and a place in line for one thread at a time at one of them.
struct Locked<H: Host, L: RawMutex<H::Platform> + 'static> {
    locks: H::Shared<L>,
    places: H::Shared<Place<L::Node>>,
    index: usize,
}

impl<H: Host, L: RawMutex<H::Platform> + 'static> Locked<H, L> {
    /// One for each thread.
    fn share(host: &mut H, locks: usize, threads: u32) -> Vec<Self> {
        let locks = host.share((0..locks).map(|_| L::new()).collect());
        // Each on lines of its own.
        (0..threads)
            .map(|_| Self {
                locks: locks.clone(),
                places: host.share(vec![Place(L::Node::default())]),
                index: 0,
            })
            .collect()
    }

    /// With this lock.
    fn with<R>(&self, lock: usize, body: impl FnOnce() -> R) -> R {
        let (lock, node) = (&self.locks[lock], &self.places[self.index].0);
        let at = std::ptr::from_ref(lock).addr();
        H::waits(Step::Wants, at);
        // SAFETY: the place is this thread's, who is at one lock at a time, and stays where it is.
        unsafe { lock.lock(node) };
        H::waits(Step::Has, at);
        let result = body();
        H::waits(Step::Frees, at);
        // SAFETY: locked above with this node.
        unsafe { lock.unlock(node) };
        H::waits(Step::Freed, at);
        result
    }
}

/// FNV-1a over words.
fn digest(values: impl Iterator<Item = u32>) -> u32 {
    values.fold(0x811c_9dc5, |hash, value| (hash ^ value).wrapping_mul(0x0100_0193).rotate_left(5))
}

fn digest_of<H: Host>(words: H::Shared<Word<H>>) -> Digest {
    Box::new(move || digest(words.iter().map(|word| word.load(Relaxed))))
}

/// A linear congruential generator; its upper bits.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }
}

/// Threads of the operating system.
pub struct Threads<P> {
    bodies: Vec<Box<dyn FnOnce() + Send>>,
    platform: PhantomData<P>,
}

impl<P> Default for Threads<P> {
    fn default() -> Self {
        Self { bodies: Vec::new(), platform: PhantomData }
    }
}

impl<P> Threads<P> {
    /// Runs what has been loaded, to its end.
    pub fn run(self) {
        std::thread::scope(|scope| {
            for body in self.bodies {
                scope.spawn(body);
            }
        });
    }
}

impl<P: Platform> Host for Threads<P> {
    type Platform = P;
    type Shared<T: Send + Sync + 'static> = Arc<[T]>;

    fn share<T: Send + Sync + 'static>(&mut self, values: Vec<T>) -> Arc<[T]> {
        values.into()
    }

    fn spawn(&mut self, body: impl FnOnce() + Send + 'static) {
        self.bodies.push(Box::new(body));
    }

    fn computed(_: u32) {}

    fn done(_: u32) {}
}
