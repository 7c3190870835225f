// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carriers that wait in the kernel's queue while a low fiber runs elsewhere.
//!
//! The kernel puts two carriers that wake together on one processor now and then. A SCHED_IDLE thread keeps
//! the other processors from being idle. So the kernel does not look there for work of others, and a usual
//! fiber waits while a low one runs. So who knows better steers the second carrier (`steer.rs`) to where low
//! ones run: a carrier that begins to run, as it knows its own processor; and who wakes one while another one
//! runs. Without low fibers that costs a load where a carrier is woken.
//!
//! Where a carrier runs, its `struct rseq` says (glibc 2.35). HINT: a wrong word steers for nothing.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use linux::steer::{self, Set};

use crate::carrier::{self, Carrier};
use crate::record::{Fiber, Home};
use crate::runtime::Runtime;

/// BOUND: carriers for each seat, where pinned fibers get one of their own.
const MOST: usize = 4;

/// The runtimes whose carriers are low, newest first.
static LOW: AtomicPtr<Runtime> = AtomicPtr::new(null_mut());

fn low_ones() -> impl Iterator<Item = &'static Runtime> {
    // SAFETY: null, or one that is never freed.
    let at = |place: &AtomicPtr<Runtime>| unsafe {
        // ORDER: Acquire, pairs with `add_low`.
        place.load(Acquire).as_ref::<'static>()
    };
    core::iter::successors(at(&LOW), move |runtime| at(&runtime.older_low))
}

impl Carrier {
    /// Here it runs.
    pub fn note_place(&self) {
        let word = linux::slice::processor_word();
        self.place.store(word.map_or(null_mut(), |word| core::ptr::from_ref(word).cast_mut()), Relaxed);
    }

    /// HINT: its processor, or the last one.
    fn processor(&self) -> Option<u32> {
        // SAFETY: null, or a word of a thread that never ends.
        let word: Option<&AtomicU32> = unsafe { self.place.load(Relaxed).as_ref() };
        word.map(|word| word.load(Relaxed))
    }

    /// L1 of `steer.rs`.
    pub fn lie_down(&self) {
        self.steer.lie_down();
    }

    /// G1 to G3 of `steer.rs`.
    pub fn get_up(&self) {
        self.steer.get_up(|| self.widen());
    }

    fn widen(&self) {
        if let Some(steered) = self.steered.take() {
            steered.undo();
        }
    }
}

impl Runtime {
    /// Its carriers are low.
    pub(crate) fn add_low(&'static self) {
        let me = core::ptr::from_ref(self).cast_mut();
        let mut newest = LOW.load(Relaxed);
        loop {
            self.older_low.store(newest, Relaxed);
            // ORDER: Release, pairs with `low_ones`; publishes the runtime.
            match LOW.compare_exchange(newest, me, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// By a forked child, which has no carriers. The calling thread was one, maybe.
    pub(crate) fn forget_low() {
        LOW.store(null_mut(), Relaxed);
        if let Some(carrier) = carrier::here().filter(|carrier| carrier.steer.is_narrow()) {
            carrier.widen();
        }
    }

    /// How often a carrier that was woken was sent to a processor where a low fiber ran.
    pub fn carriers_steered(&self) -> u64 {
        self.steered.load(Relaxed)
    }

    /// Are there low fibers, and are ours none?
    pub(crate) fn outranks(&self) -> bool {
        // The word is looked at by `low_ones`.
        !LOW.load(Relaxed).is_null() && !self.is_low()
    }

    /// A fiber that no carrier of this runtime made.
    pub(crate) fn begin_elsewhere(&'static self, fiber: *mut Fiber) {
        // SAFETY: it is in no list.
        let record = unsafe { &*fiber };
        if self.outranks()
            && self.policy.is_none()
            && !record.movable.get()
            && let Some(carrier) = self.one_of_its_own()
        {
            record.abode.send(&carrier.residents, carrier.index);
            return self.ready(fiber);
        }
        self.common.push(fiber, false);
        self.invite();
    }

    /// Where low fibers run, a pinned fiber is to have a carrier of its own. Else it would wait for another
    /// one there, while a low one has the next processor.
    fn one_of_its_own(&'static self) -> Option<&'static Carrier> {
        let alone =
            |carrier: &&Carrier| self.seats.is_asleep(carrier.index) && carrier.residents.count() == 0;
        let best = self.all().filter(alone).min_by_key(|carrier| self.load(carrier.index));
        let grows = self.activates()
            && self.may_grow()
            && best.is_none_or(|carrier| self.load(carrier.index) > 0)
            && self.all().count() < MOST * self.seats.granted() as usize;
        if grows { self.add_carrier(false).ok().or(best) } else { best }
    }

    /// HINT: how little this carrier is fit for a fiber that begins, or may run anywhere.
    pub(crate) fn load(&self, carrier: u32) -> u32 {
        let residents = self.carrier(carrier).map_or(0, |carrier| carrier.residents.count());
        // See `may_stand`.
        let stands = self.outranks() && self.sentinel.all().any(|who| who == carrier);
        residents + if stands { u32::MAX / 2 } else { 0 }
    }

    /// May this carrier, about to sleep, stand sentinel? A call to one of two sentinels may wake the other.
    /// That one may wait behind a usual carrier until it calls again, while a low fiber runs. So where there
    /// are low ones, who has fibers pinned to it leaves the second post to others.
    #[inline]
    pub(crate) fn may_stand(&self, me: &Carrier) -> bool {
        !self.outranks() || me.residents.count() == 0 || self.sentinel.is_vacant()
    }

    /// By a carrier that begins to run: another one that was woken may wait behind it.
    #[inline]
    pub(crate) fn steer_newcomer(&'static self, me: &Carrier) {
        if self.outranks()
            && let Some(other) = self.newcomer(me.index)
        {
            self.steer(other);
        }
    }

    /// By who is about to wake this carrier.
    #[inline]
    pub(crate) fn steer_roused(&'static self, other: &Carrier) {
        // A carrier that is called to the post has no seat. A low carrier may lose its processor halfway, and
        // the other one would wait for it.
        let usual = || carrier::here().is_none_or(|carrier| !carrier.runtime.is_low());
        if self.outranks() && self.seats.holds(other.index) && usual() {
            self.steer(other);
        }
    }

    #[cold]
    #[inline(never)]
    fn steer(&'static self, other: &Carrier) {
        if other.steer.is_up() {
            return;
        }
        let usual = self.all().filter(|carrier| self.seats.holds(carrier.index) && carrier.steer.is_up());
        let mut taken = usual.filter_map(Carrier::processor).peekable();
        if taken.peek().is_none() {
            // Nobody knows where the kernel puts it.
            return;
        }
        let mut to = Set::default();
        for low in low_ones() {
            // One that was blocked for a moment has no seat, and computes on until its next safe point.
            let running = low.all().filter(|low_one| low.seats.is_up(low_one.index));
            running.filter_map(Carrier::processor).for_each(|processor| to.insert(processor));
        }
        taken.for_each(|processor| to.remove(processor));
        let narrow = || {
            // It may have got up and lain down again: with nothing to wake for, it would keep the mask.
            if !self.seats.holds(other.index) {
                return false;
            }
            let steered = steer::steer(other.thread.load(Relaxed), &to);
            other.steered.set(steered);
            steered.is_some()
        };
        if !to.is_empty() && other.steer.steer(narrow) {
            self.steered.fetch_add(1, Relaxed);
        }
    }
}
