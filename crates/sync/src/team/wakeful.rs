// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful`: a team whose caller waits for nobody who has not begun.
//!
//! The microthreads of Uemura and Kan (section 3): helpers spin, the caller tells them to go and run a
//! block, all meet at a barrier, the helpers spin again. There, as in the OpenMP libraries, a loop takes as
//! long as the last helper to get a processor. Here the parts of a loop are independent of each other, and
//! a helper that has no processor has no part: it is *offered* one, and takes it when it runs; what nobody
//! has taken when the caller is done with its own part, the caller takes back. So only parts that somebody
//! runs are waited for. Further changes: helpers sleep when nothing comes, and the barrier is between the
//! caller and one helper at a time.
//!
//! Choose it for loops of independent iterations. It is no place for parts that wait for each other (a
//! barrier among the members): nobody promises that they run at the same time.
//!
//! # State
//!
//! A place, of one helper, on a line of its own: `word` and `job`.
//!
//! | from | to | by |
//! |---|---|---|
//! | IDLE | OFFERED | F1, caller |
//! | ASLEEP | OFFERED | F1, caller, who wakes (F2) |
//! | OFFERED | TAKEN | T1, helper |
//! | OFFERED | IDLE | T2, caller, who runs the part itself |
//! | TAKEN | IDLE | D1, helper |
//! | TAKEN | AWAITED | J2, caller, who then waits at the barrier |
//! | AWAITED | IDLE | D1, helper, who then arrives there (D2) |
//! | IDLE | ASLEEP | S1, helper |
//! | IDLE, ASLEEP | GONE | `dismiss` |
//!
//! `failed`: a helper's part has. `barrier`: two parties.
//!
//! # Invariants
//!
//! I1. A part is run by whoever took its place out of OFFERED, in one step, and so once. I2. `job` is read
//! after T1 only, and the caller does not return from `run` before D1: the job is there as long as anybody
//! has it. I3. Between two jobs each word is IDLE or ASLEEP: `run` begins and ends so. I4. Who sleeps has
//! set ASLEEP in a step that found IDLE, and whoever takes that away wakes it. I5. One helper at most is
//! AWAITED: each episode of the barrier is the caller's and that helper's.
//!
//! # Protocol
//!
//! Fork: F1. for each place, `job`, then swap OFFERED in. F2. Wake who slept. Then run part 0. T1, T2.
//! Take. J1. For each place that was not taken back: spin while TAKEN. J2. If that is in vain, AWAITED, and
//! wait at the barrier: spin, yield or sleep, by processors really to be had, is that one's decision. D1.
//! Swap IDLE in. D2. It was AWAITED: arrive. S1. After a while of spinning, or where a thread of higher
//! priority is without a processor, ASLEEP. S2. Sleep while it is ASLEEP.
//!
//! # Memory order
//!
//! F1 release -> T1 acquire publishes the job and what the caller wrote. D1 release -> J1, J2 (failing)
//! acquire, or D2 -> the barrier, publishes what the part wrote, and `failed`. S1 and T2 are
//! read-modify-writes or the caller's own, and so keep D1's release visible. The rest orders nothing.
//!
//! # Under the scheduler
//!
//! Helper preempted before T1: the caller runs its part. In its part: the caller waits for it, and lets it
//! have its processor (the barrier). Between D1 and T1: nobody cares. Caller preempted in its part: helpers
//! end theirs, spin and sleep. More members than processors: the caller of `run` brings no more places than
//! there are processors for (the facade's business). Hint wrong: a helper sleeps too early, which costs a
//! wake-up, or spins for its patience in vain. Killed: the process is gone. Forked: the child has no
//! helpers; if no part was taken at that moment the caller runs them all, else the places are to be made
//! anew.
//!
//! # Fairness and space
//!
//! A helper may never get a part, if the caller is faster. 128 bytes a helper, 36 the team. The caller
//! needs a transfer of a cache line a helper for the fork and one for the join; a system call for each that
//! sleeps.
//!
//! # Rejected
//!
//! A fork barrier and a join barrier of all members, as in libgomp: a loop waits for the last to be
//! scheduled, twice. One word for all, from which parts are taken: fewer stores, but each member's take is
//! a transfer from the last one's cache, and a part has no home. To wake helpers by a tree: for more
//! processors than we have measured. To wake none where loops are short: the caller would need a clock.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle, and the simulator; twins that lose a wake-up, run a part
//! twice, return early and lose a failure are caught.

use core::ptr;

use platform::{Atomic, Ordering::*, Platform, Priority};

use super::{Job, Kind, RawTeam};
use crate::barrier::{BWakeful, RawBarrier};
use crate::wait::{LOOK_PAUSES, SWITCH_PAUSES, look, publish};

const IDLE: u32 = 0;
const ASLEEP: u32 = 1;
const OFFERED: u32 = 2;
const TAKEN: u32 = 3;
const AWAITED: u32 = 4;
const GONE: u32 = 5;

/// A free helper spins for so many times what waking an idle processor costs. COST: by trial; loops come in
/// rows. No cell known.
const FREE_IDLES: u64 = 4;
/// A bound one spins for so many slices, on a processor that is nobody else's. What comes later is a long
/// sequential part, in which others can have the processor ([`RawTeam::serve`]'s `spare`). A move of a
/// processor takes less than a tenth of it.
const BOUND_SLICES: u64 = 3;

/// Where one helper and the caller meet. Alone on its line, and on the next, which processors fetch with it.
#[repr(align(128))]
pub struct Place<P: Platform> {
    word: P::AtomicU32,
    job: P::AtomicPtr<Job>,
}

impl<P: Platform> Default for Place<P> {
    fn default() -> Self {
        Self { word: Atomic::new(IDLE), job: Atomic::new(ptr::null_mut()) }
    }
}

/// The default one.
pub struct Wakeful<P: Platform> {
    barrier: BWakeful<P>,
    failed: P::AtomicU32,
}

impl<P: Platform> Place<P> {
    /// F1, F2.
    #[inline]
    fn offer(&self, job: *const Job) {
        self.job.store(job.cast_mut(), Relaxed);
        // ORDER: Release (F1), pairs with T1; publishes the job.
        if self.word.swap(OFFERED, Release) == ASLEEP {
            P::wake(&self.word, 1);
        }
    }

    /// T2.
    #[inline]
    fn take_back(&self) -> bool {
        self.word.load(Relaxed) == OFFERED
            && self.word.compare_exchange(OFFERED, IDLE, Relaxed, Relaxed).is_ok()
    }

    /// S1, S2.
    #[cold]
    fn sleep(&self) {
        if self.word.compare_exchange(IDLE, ASLEEP, Relaxed, Relaxed).is_ok() {
            while self.word.load(Relaxed) == ASLEEP {
                P::wait(&self.word, ASLEEP, None);
            }
        }
    }
}

impl<P: Platform> Wakeful<P> {
    /// J1, J2.
    #[inline]
    fn join(&self, place: &Place<P>) {
        for _ in 0..SWITCH_PAUSES.min(P::PAUSES) {
            // ORDER: Acquire (J1), pairs with D1.
            if place.word.load(Acquire) <= ASLEEP {
                return;
            }
            P::pause();
        }
        self.join_slow(place);
    }

    #[cold]
    #[inline(never)]
    fn join_slow(&self, place: &Place<P>) {
        // ORDER: Acquire where it fails (J2), pairs with D1.
        if place.word.compare_exchange(TAKEN, AWAITED, Relaxed, Acquire).is_ok() {
            self.barrier.wait();
        }
    }

    /// T1 to D2.
    #[inline]
    fn work(&self, place: &Place<P>, part: u32) {
        // ORDER: Acquire (T1), pairs with F1.
        if place.word.compare_exchange(OFFERED, TAKEN, Acquire, Relaxed).is_err() {
            return;
        }
        let job = place.job.load(Relaxed);
        debug_assert!(!job.is_null());
        // SAFETY: the caller of `run` promised that it is one, and stays there until D1.
        if !unsafe { ((*job).run)(job, part) } {
            self.failed.store(1, Relaxed);
        }
        // ORDER: Release (D1), pairs with J1 and J2.
        if place.word.swap(IDLE, Release) == AWAITED {
            self.barrier.arrive_only();
        }
    }

    /// Spins, then sleeps.
    #[inline(never)]
    fn idle(&self, place: &Place<P>, kind: Kind, spare: &impl Fn(bool)) {
        let spin = || {
            (0..LOOK_PAUSES.min(P::PAUSES)).all(|_| {
                P::pause();
                place.word.load(Relaxed) == IDLE
            })
        };
        if !spin() {
            return;
        }
        // Not before: between loops in a row nobody gets here.
        let (me, began) = look::begin::<P>();
        P::set_priority(me, publish::waits_as::<P>(me, Priority::BarrierWaiter));
        let patience = match kind {
            Kind::Bound => BOUND_SLICES * P::costs().slice,
            Kind::Free => FREE_IDLES * P::costs().idle,
        };
        loop {
            let now = P::now_ns();
            P::refresh_processors(Some(now));
            // HINT: wrong, it sleeps too early, or spins until its patience ends.
            if now - began > patience || P::higher_preempted(Priority::BarrierWaiter) {
                let nothing_came = kind == Kind::Bound && now - began > patience;
                if nothing_came {
                    spare(true);
                }
                place.sleep();
                if nothing_came {
                    spare(false);
                }
                break;
            }
            if !spin() {
                break;
            }
        }
        P::set_priority(me, publish::own::<P>(me));
    }
}

impl<P: Platform> RawTeam<P> for Wakeful<P> {
    type Place = Place<P>;

    fn new() -> Self {
        Self { barrier: BWakeful::new(2), failed: Atomic::new(0) }
    }

    #[inline]
    unsafe fn run(&self, places: &[Place<P>], job: *const Job) -> bool {
        places.iter().for_each(|place| place.offer(job));
        // SAFETY: as the caller promised; part 0 is run here and nowhere else.
        let mut fine = unsafe { ((*job).run)(job, 0) };
        for (part, place) in (1..).zip(places) {
            if place.take_back() && fine {
                // SAFETY: as above; taken back, nobody else runs it (I1).
                fine = unsafe { ((*job).run)(job, part) };
            }
        }
        places.iter().for_each(|place| self.join(place));
        if self.failed.load(Relaxed) != 0 {
            self.failed.store(0, Relaxed);
            fine = false;
        }
        fine
    }

    unsafe fn serve(&self, place: &Place<P>, part: u32, kind: Kind, spare: impl Fn(bool)) {
        loop {
            match place.word.load(Relaxed) {
                OFFERED => self.work(place, part),
                GONE => return,
                _ => self.idle(place, kind, &spare),
            }
        }
    }

    fn dismiss(&self, place: &Place<P>) {
        if place.word.swap(GONE, Relaxed) == ASLEEP {
            P::wake(&place.word, 1);
        }
    }
}
