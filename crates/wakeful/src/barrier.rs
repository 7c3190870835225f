// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Barrier`].

use core::fmt;
use core::mem::transmute;
use core::sync::atomic::{AtomicU32, Ordering::*};

use linux::Linux;
use platform::{Blocks, Platform};
use sync::barrier::{BWakeful, Combined};

/// A point that threads pass together: 128 bytes.
///
/// The interface is that of [`std::sync::Barrier`], and parties may join and leave. Who waits gives the
/// processor to the program's other threads, and sleeps where other programs would take it instead;
/// `sync::barrier::BWakeful` underneath says how it tells. With 32 parties and processors or more, threads
/// arrive in a tree of the processors' clusters.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use wakeful::Barrier;
///
/// static BARRIER: Barrier = Barrier::new(3);
/// static CAME: AtomicUsize = AtomicUsize::new(0);
///
/// std::thread::scope(|scope| {
///     for _ in 0..3 {
///         scope.spawn(|| {
///             CAME.fetch_add(1, Relaxed);
///             if BARRIER.wait().is_leader() {
///                 println!("all {} are here", CAME.load(Relaxed));
///             }
///             assert_eq!(CAME.load(Relaxed), 3);
///         });
///     }
/// });
/// ```
///
/// # Joining and leaving
///
/// ```
/// use wakeful::Barrier;
///
/// let barrier = Barrier::new(1);
/// std::thread::scope(|scope| {
///     for rounds in 1..=3 {
///         // For the thread that is about to start: from now on it is waited for.
///         barrier.join();
///         let barrier = &barrier;
///         scope.spawn(move || {
///             for _ in 1..rounds {
///                 barrier.wait();
///             }
///             barrier.arrive_and_drop();
///         });
///     }
///     for _ in 1..=3 {
///         barrier.wait();
///     }
/// });
/// assert!(barrier.wait().is_leader()); // nobody else is left
/// ```
#[repr(C, align(64))]
pub struct Barrier {
    one: BWakeful<Linux>,
    /// What follows is on another line, of ours alone: who arrives looks at it first.
    apart: [u32; 10],
    /// The number of the block where the barrier is; [`HERE`], [`UNDECIDED`], or [`deciding`].
    place: AtomicU32,
}

/// The barrier is in its own words.
const HERE: u32 = 0;
/// The first to come decides.
const UNDECIDED: u32 = u32::MAX;
/// It does so. A forked child, into which it did not come along, is another generation of eight.
fn deciding() -> u32 {
    DECIDING + Linux::generation()
}
/// What [`deciding`] is at least; greater than a block's number.
const DECIDING: u32 = u32::MAX - 8;
/// BOUND: parties from which on there may be a tree. Fewer fill no four nodes of eight.
const MANY: u32 = 32;

/// What [`Barrier::wait`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for one of the threads that passed the barrier together, whichever it is.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// Parties at most.
    pub const MOST_PARTIES: usize = BWakeful::<Linux>::MOST_PARTIES as usize;

    /// A barrier for so many threads; 0 counts as 1.
    ///
    /// # Panics
    /// If `parties` is more than [`Barrier::MOST_PARTIES`].
    #[must_use]
    pub const fn new(parties: usize) -> Self {
        assert!(parties <= Self::MOST_PARTIES, "a barrier takes at most 12,287 parties");
        let [a, b, c, d, e, f] = BWakeful::<Linux>::words(parties as u32);
        let words = [
            AtomicU32::new(a),
            AtomicU32::new(b),
            AtomicU32::new(c),
            AtomicU32::new(d),
            AtomicU32::new(e),
            AtomicU32::new(f),
        ];
        // SAFETY: a `BWakeful` is these words in this order (and a marker of no size), as `words` says.
        let one = unsafe { transmute::<[AtomicU32; 6], BWakeful<Linux>>(words) };
        let place = if parties as u32 >= MANY { UNDECIDED } else { HERE };
        Self { one, apart: [0; 10], place: AtomicU32::new(place) }
    }

    #[inline]
    fn barrier(&self) -> Combined<'_, Linux> {
        // ORDER: Acquire, pairs with `decide`; publishes the barrier there.
        match self.place.load(Acquire) {
            HERE => self.one.alone(),
            number @ ..DECIDING => self.at(number),
            _ => self.at(self.decide()),
        }
    }

    fn at(&self, number: u32) -> Combined<'_, Linux> {
        // SAFETY: `decide` has put it there, and gives it back if another was first.
        match (number, unsafe { Combined::at(number) }) {
            (1.., Some(barrier)) => barrier,
            _ => self.one.alone(),
        }
    }

    /// Before anybody has come: a tree, if it is of use and there is a block for it.
    #[cold]
    #[inline(never)]
    fn decide(&self) -> u32 {
        let parties = self.one.parties();
        self.decide_by(|| Combined::<Linux>::placed(parties).map_or(HERE, |(number, _)| number))
    }

    /// The first to come does, and the others wait for it: each would take a block. In a forked child it is
    /// the first there, whoever was about to in the parent. A block that one had taken is lost to the child.
    fn decide_by(&self, place: impl FnOnce() -> u32) -> u32 {
        let ours = deciding();
        loop {
            // ORDER: Acquire, as in `barrier`.
            match self.place.load(Acquire) {
                number @ ..DECIDING => return number,
                now if now == ours => Linux::yield_now(),
                now => {
                    if self.place.compare_exchange(now, ours, Relaxed, Relaxed).is_ok() {
                        let number = place();
                        // ORDER: Release, pairs with `barrier`.
                        self.place.store(number, Release);
                        return number;
                    }
                }
            }
        }
    }

    /// Waits until as many threads have come as there are parties. Then it can be used again at once. Where
    /// more threads come than there are parties, those that are too many are the first of the next group.
    pub fn wait(&self) -> BarrierWaitResult {
        BarrierWaitResult(self.barrier().wait())
    }

    /// Adds a party, which is waited for from now on.
    ///
    /// # Panics
    /// If there are [`Barrier::MOST_PARTIES`] already. With a tree, those count that have left in this round.
    pub fn join(&self) {
        assert!(self.barrier().join(), "a barrier takes at most 12,287 parties");
    }

    /// Arrives for a party without waiting, and takes it out: from the next round on there is one less. To
    /// be called by a thread that the barrier counts on; where no party is left it does nothing.
    pub fn arrive_and_drop(&self) {
        self.barrier().arrive_and_drop();
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        match *self.place.get_mut() {
            HERE | DECIDING.. => {}
            number => Linux::give_block(number),
        }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::AtomicU32;
    use std::thread;

    /// As on a machine with many processors: with a tree, which machines with fewer have no use for.
    #[test]
    fn many_threads_in_a_tree() {
        const THREADS: usize = 40;
        for round in 0..20 {
            let barrier = Barrier::new(THREADS);
            let blocks = AtomicU32::new(0);
            let block = || {
                blocks.fetch_add(1, Relaxed);
                Combined::<Linux>::placed_with(5, THREADS as u32).expect("there are blocks").0
            };
            // All come at once to a barrier whose place nobody has decided.
            thread::scope(|scope| {
                (0..4).for_each(|_| _ = scope.spawn(|| assert!(barrier.decide_by(block) < DECIDING)));
            });
            assert_eq!(blocks.into_inner(), 1);
            let (came, leaders) = (AtomicU32::new(0), AtomicU32::new(0));
            thread::scope(|scope| {
                for index in 0..THREADS {
                    let (barrier, came, leaders) = (&barrier, &came, &leaders);
                    scope.spawn(move || {
                        for episode in 1..=10 + round {
                            came.fetch_add(1, Relaxed);
                            leaders.fetch_add(u32::from(barrier.wait().is_leader()), Relaxed);
                            assert!(came.load(Relaxed) >= episode * THREADS as u32);
                            barrier.wait();
                        }
                        if index % 2 == 0 {
                            barrier.arrive_and_drop();
                        } else {
                            (0..3).for_each(|_| _ = barrier.wait());
                        }
                    });
                }
            });
            assert_eq!(leaders.into_inner(), 10 + round);
        }
    }

    /// A thread is about to decide, and the process forks: in the child that thread will never be done.
    #[test]
    fn a_forked_child_decides_again() {
        let barrier = Barrier::new(32);
        let (begun, forked) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        let block = || Combined::<Linux>::placed_with(4, 32).map_or(HERE, |it| it.0);
        thread::scope(|scope| {
            scope.spawn(|| {
                barrier.decide_by(|| {
                    begun.wait();
                    forked.wait();
                    block()
                })
            });
            begun.wait();
            assert!(barrier.place.load(Relaxed) >= DECIDING);
            // SAFETY: the child takes a block, which needs no lock of another's, and leaves by _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above; a child that hangs is ended by the alarm, and that counts as a failure.
                unsafe {
                    libc::alarm(60);
                    libc::_exit(i32::from(!(1..DECIDING).contains(&barrier.decide_by(block))));
                }
            }
            let mut status = 0;
            // SAFETY: our child, and a valid pointer.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            forked.wait();
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:x}");
        });
        assert!((1..DECIDING).contains(&barrier.place.load(Relaxed)), "the parent has decided, too");
    }

    /// There are 1,023 blocks: who goes leaves its own to others.
    #[test]
    fn blocks_are_given_back() {
        for round in 0..2_100 {
            let barrier = Barrier::new(32);
            let number = barrier.decide_by(|| Combined::<Linux>::placed_with(4, 32).map_or(HERE, |it| it.0));
            assert!((1..DECIDING).contains(&number), "{round}");
        }
    }
}
