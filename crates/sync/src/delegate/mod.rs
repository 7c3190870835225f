// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delegated critical sections: a thread that comes to a lock may have another thread run its section.
//!
//! The thread that asks is a *client*, what it asks for is a *request*: a function and its argument. The
//! thread that runs requests of others is the *combiner*, or the *server* where that is all that it does.
//! So data that the lock protects stay in one processor's cache while the clients change.

mod cc_synch;
mod d_wakeful;
mod dsm_synch;
mod flat_combining;
mod oyama;
mod rcl;

pub use cc_synch::CcSynch;
pub use d_wakeful::{Ask, DWakeful, Left, Outcome};
pub use dsm_synch::DsmSynch;
pub use flat_combining::FlatCombining;
pub use oyama::Oyama;
pub use rcl::{Rcl, RclAsk, RclLock, RclServer, Serving};

use platform::{Atomic, Deadline, Ordering::*, Platform, ThreadId};

use crate::mutex::{Native, RawMutex};

/// A critical section without its environment: the function and [`Request::context`] make a closure.
pub type Section = unsafe fn(*mut ());

/// A lock that runs sections on behalf of those who come to it.
pub trait RawDelegate<P: Platform>: Send + Sync {
    /// It runs no section unless a thread is in [`RawDelegate::serve`].
    const SERVED: bool = false;

    /// A free lock.
    fn new() -> Self;

    /// Runs `section(context)` once, while no other section of this lock runs, and returns when it has
    /// ended. What the caller did before, the section sees; what the section did, the caller and all later
    /// sections see.
    ///
    /// # Safety
    /// The section may be run by another thread. It does not unwind. It does not come to this lock. It waits
    /// for nothing that another thread has yet to do, except to end a section, or to release a lock that all
    /// take in the same order: the other thread may be the one that runs it.
    ///
    /// The lock outlives all calls of its functions, of all threads: who runs a section may still be in the
    /// lock when the section's caller returns.
    unsafe fn run(&self, section: Section, context: *mut ());

    /// Runs sections until [`RawDelegate::close`]. False if the calling thread cannot serve: it is one
    /// without an id ([`Platform::register`]), or in a forked child, where a section has forked.
    fn serve(&self) -> bool {
        true
    }

    /// Ends [`RawDelegate::serve`], for good. Nobody is in `run`, or will be.
    fn close(&self) {}
}

/// A delegating lock that can give up waiting, and can be held as a mutex is.
pub trait RawDelegateTimed<P: Platform>: RawDelegate<P> {
    /// As [`RawDelegate::run`], unless the deadline passes before the section begins: then it returns false,
    /// and the section has not run and will not. A section that has begun is waited for.
    ///
    /// # Safety
    /// As for [`RawDelegate::run`].
    unsafe fn run_until(&self, section: Section, context: *mut (), deadline: Deadline) -> bool;

    /// Waits until no section runs. None runs from then on until [`RawDelegateTimed::unlock`].
    ///
    /// # Safety
    /// The caller is in no section of this lock.
    unsafe fn lock(&self);

    /// Ends what [`RawDelegateTimed::lock`] began. It may run sections of others before.
    ///
    /// # Safety
    /// The calling thread did that and has not ended it. It keeps no lock that it has taken since.
    unsafe fn unlock(&self);
}

/// What a client asks for, where another thread finds it. It publishes nothing by itself.
struct Request<P: Platform> {
    section: P::AtomicPtr<()>,
    context: P::AtomicPtr<()>,
}

impl<P: Platform> Request<P> {
    fn none() -> Self {
        Self { section: Atomic::new(core::ptr::null_mut()), context: Atomic::new(core::ptr::null_mut()) }
    }

    fn set(&self, section: Section, context: *mut ()) {
        self.section.store(section as *mut (), Relaxed);
        self.context.store(context, Relaxed);
    }

    /// Sets it to run nothing.
    fn clear(&self) {
        self.section.store(core::ptr::null_mut(), Relaxed);
    }

    /// False if it has no section.
    ///
    /// # Safety
    /// It has been set, by a client that waits for it, and the caller has seen what that published.
    unsafe fn run(&self) -> bool {
        // SAFETY: null, or what `set` stored, which is a function of this type.
        let section = unsafe { core::mem::transmute::<*mut (), Option<Section>>(self.section.load(Relaxed)) };
        // None: it was cleared; or an ordering is missing, as in the checkers' twins.
        if let Some(section) = section {
            // SAFETY: as the client promised in `RawDelegate::run`.
            unsafe { section(self.context.load(Relaxed)) };
        }
        section.is_some()
    }
}

/// A place in an array that one client has at a time, so that there may be more clients than places.
///
/// Some seats are one thread's each, the first that came ([`own_seats`]): it sits down without a
/// read-modify-write. The others are mutexes. An owner that is gone leaves its seat to who gets its id.
struct Seat<P: Platform> {
    /// 0: nobody has come yet.
    owner: P::AtomicU32,
    /// The owner sits here, and a signal handler of its thread may not. Of the owner.
    taken: P::AtomicU32,
    lock: Native<P>,
}

impl<P: Platform> Seat<P> {
    fn new() -> Self {
        Self { owner: P::AtomicU32::new(0), taken: P::AtomicU32::new(0), lock: Native::new() }
    }

    /// The owner sits down. False if it does already.
    #[inline(always)]
    fn take(&self) -> bool {
        let free = self.taken.load(Relaxed) == 0;
        if free {
            self.taken.store(1, Relaxed);
        }
        free
    }

    /// Nobody, or the calling thread, owns it: now that does.
    fn claim(&self, me: ThreadId) -> bool {
        let owner = self.owner.load(Relaxed);
        owner == me.0 || owner == 0 && self.owner.compare_exchange(0, me.0, Relaxed, Relaxed).is_ok()
    }
}

/// What has a seat.
trait Seated<P: Platform> {
    fn seat(&self) -> &Seat<P>;
}

/// BOUND: of so many seats, these first ones have owners. A process with more threads, or with younger ones
/// at this lock, has to share the others.
const fn own_seats(seats: usize) -> usize {
    seats * 3 / 4
}

/// Takes a seat that is free, or waits for one. Returns its number.
#[inline(always)]
fn sit<P: Platform, S: Seated<P>>(seats: &[S]) -> usize {
    sit_at_once(seats).unwrap_or_else(|| {
        let number = shared::<P>(seats.len()).start;
        // SAFETY: there is no node, and `stand` unlocks once.
        unsafe { seats[number].seat().lock.lock(&()) };
        number
    })
}

/// The same, if one is free.
#[inline(always)]
fn sit_at_once<P: Platform, S: Seated<P>>(seats: &[S]) -> Option<usize> {
    let (me, own) = (P::current(), own_seats(seats.len()));
    if own > 0 && me != ThreadId::NONE {
        let number = me.0 as usize % own;
        let seat = seats[number].seat();
        if seat.owner.load(Relaxed) == me.0 && seat.take() {
            return Some(number);
        }
    }
    sit_elsewhere(seats)
}

#[cold]
#[inline(never)]
fn sit_elsewhere<P: Platform, S: Seated<P>>(seats: &[S]) -> Option<usize> {
    let (me, own) = (P::register_lazily(), own_seats(seats.len()));
    if own > 0 && me != ThreadId::NONE {
        let number = me.0 as usize % own;
        let seat = seats[number].seat();
        if seat.claim(me) && seat.take() {
            return Some(number);
        }
    }
    let shared = shared::<P>(seats.len());
    // SAFETY: as above.
    shared.clone().chain(own..shared.start).find(|&number| unsafe { seats[number].seat().lock.try_lock(&()) })
}

/// The seats that are mutexes, from the one on at which the calling thread is to look first.
fn shared<P: Platform>(seats: usize) -> core::ops::Range<usize> {
    let own = own_seats(seats);
    own + P::current().0 as usize % (seats - own)..seats
}

/// Gives the seat back.
#[inline(always)]
fn stand<P: Platform, S: Seated<P>>(seats: &[S], number: usize) {
    let seat = seats[number].seat();
    if number < own_seats(seats.len()) {
        seat.taken.store(0, Relaxed);
    } else {
        // SAFETY: `sit` locked it.
        unsafe { seat.lock.unlock(&()) };
    }
}

/// The calling thread runs sections from now on. A write only if that is news: clients read the word. HINT.
#[inline(always)]
fn lead<P: Platform>(combiner: &P::AtomicU32) {
    let me = P::current().0;
    if combiner.load(Relaxed) != me {
        combiner.store(me, Relaxed);
    }
}

/// BOUND: a combiner runs so many requests of others, then another thread is to be the combiner. In a model
/// two, so that both its ends are explored.
fn most_requests<P: Platform>() -> u32 {
    64.min(P::PAUSES.saturating_add(1))
}
