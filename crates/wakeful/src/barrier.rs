// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Barrier`].

use core::fmt;
use core::mem::transmute;
use core::sync::atomic::AtomicU32;

use linux::Linux;
use sync::barrier::{BWakeful, RawBarrierDynamic};

/// A point that threads pass together: 24 bytes.
///
/// The interface is that of [`std::sync::Barrier`], and parties may join and leave. Who waits gives the
/// processor to the program's other threads, and sleeps where other programs would take it instead;
/// `sync::barrier::BWakeful` underneath says how it tells.
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
pub struct Barrier(BWakeful<Linux>);

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
        Self(unsafe { transmute::<[AtomicU32; 6], BWakeful<Linux>>(words) })
    }

    /// Waits until as many threads have come as there are parties. Then it can be used again at once. Where
    /// more threads come than there are parties, those that are too many are the first of the next group.
    pub fn wait(&self) -> BarrierWaitResult {
        BarrierWaitResult(self.0.wait())
    }

    /// Adds a party, which is waited for from now on.
    ///
    /// # Panics
    /// If there are [`Barrier::MOST_PARTIES`] already.
    pub fn join(&self) {
        assert!(self.0.join(), "a barrier takes at most 12,287 parties");
    }

    /// Arrives for a party without waiting, and takes it out: from the next round on there is one less. To
    /// be called by a thread that the barrier counts on; where no party is left it does nothing.
    pub fn arrive_and_drop(&self) {
        self.0.arrive_and_drop();
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}
