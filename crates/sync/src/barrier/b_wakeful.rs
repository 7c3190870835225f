// SPDX-License-Identifier: MIT OR Apache-2.0
//! `b-wakeful`: the default barrier. (Theory to follow with the algorithm.)

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::{RawBarrier, RawBarrierDynamic};
use crate::wait;

const EPISODE_SHIFT: u32 = 16;
const REMAINING: u32 = 0x7fff;
const SLEEPERS: u32 = 1 << 15;

/// Parties at most.
pub const MOST_PARTIES: u32 = REMAINING;

/// See [`BWakeful`].
pub struct BWakefulLeaf<P: Platform>(PhantomData<P>);

impl<P: Platform> Default for BWakefulLeaf<P> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// The default barrier: 24 bytes.
#[repr(C)]
pub struct BWakeful<P: Platform> {
    /// Episode, whether somebody sleeps, and how many have yet to arrive.
    state: P::AtomicU32,
    /// Episodes that have released their threads.
    released: P::AtomicU32,
    /// Threads that each episode takes.
    parties: P::AtomicU32,
    /// Threads that were released and have not left.
    leaving: P::AtomicU32,
    memory: [P::AtomicU32; 2],
    platform: PhantomData<P>,
}

impl<P: Platform> BWakeful<P> {
    /// Parties at most; more do not fit.
    pub const MOST_PARTIES: u32 = MOST_PARTIES;

    /// Arrives; the episode if others are to be waited for, `None` if we were the last.
    #[inline]
    fn arrive(&self, waits: bool) -> Option<u32> {
        // ORDER: Relaxed; the exchange below orders. It fetches the line for writing, which a load would not.
        let mut state = self.state.fetch_add(0, Relaxed);
        loop {
            if state & REMAINING > 1 {
                // ORDER: Release, pairs with the Acquire of the last to arrive.
                match self.state.compare_exchange_weak(state, state - 1, Release, Relaxed) {
                    Ok(_) => return Some(state >> EPISODE_SHIFT),
                    Err(now) => state = now,
                }
                continue;
            }
            let parties = self.parties.load(Relaxed);
            let next = (state >> EPISODE_SHIFT).wrapping_add(1) << EPISODE_SHIFT | parties;
            // ORDER: AcqRel: Acquire pairs with the Release of those who arrived before.
            match self.state.compare_exchange_weak(state, next, AcqRel, Relaxed) {
                Ok(_) => {
                    self.leaving.fetch_add(parties.saturating_sub(waits as u32), Relaxed);
                    // ORDER: Release, pairs with the Acquire of those who wait.
                    self.released.fetch_add(1, Release);
                    if state & SLEEPERS != 0 {
                        P::wake(&self.released, u32::MAX);
                    }
                    return None;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Has the episode released its threads, when so many had?
    #[inline(always)]
    fn over(released: u32, episode: u32) -> bool {
        (released.wrapping_sub(episode) as u16 as i16) > 0
    }

    #[inline]
    fn await_release(&self, episode: u32) {
        for _ in 0..2000u32.min(P::PAUSES) {
            // ORDER: Acquire, pairs with the Release of the last to arrive.
            if Self::over(self.released.load(Acquire), episode) {
                return;
            }
            P::pause();
        }
        loop {
            let released = self.released.load(Acquire);
            if Self::over(released, episode) {
                return;
            }
            let state = self.state.load(Relaxed);
            if state >> EPISODE_SHIFT != episode & 0xffff {
                wait::pause::<P>(1);
            } else if state & SLEEPERS != 0
                || self.state.compare_exchange(state, state | SLEEPERS, Relaxed, Relaxed).is_ok()
            {
                P::wait(&self.released, released, None);
            }
        }
    }

    /// Waits; true for the serial thread.
    #[inline]
    pub fn wait(&self) -> bool {
        match self.arrive(true) {
            None => true,
            Some(episode) => {
                self.await_release(episode);
                // ORDER: Release, pairs with the Acquire in `drain`.
                self.leaving.fetch_sub(1, Release);
                false
            }
        }
    }
}

impl<P: Platform> RawBarrier<P> for BWakeful<P> {
    type Place = BWakefulLeaf<P>;
    type Member = ();

    fn new(parties: u32) -> Self {
        let parties = parties.clamp(1, MOST_PARTIES);
        Self {
            state: P::AtomicU32::new(parties),
            released: P::AtomicU32::new(0),
            parties: P::AtomicU32::new(parties),
            leaving: P::AtomicU32::new(0),
            memory: [P::AtomicU32::new(0), P::AtomicU32::new(0)],
            platform: PhantomData,
        }
    }

    unsafe fn wait(&self, _: &[Self::Place], _: u32, _: &mut ()) -> bool {
        self.wait()
    }
}

impl<P: Platform> RawBarrierDynamic<P> for BWakeful<P> {
    fn join(&self) {
        let mut state = self.state.load(Relaxed);
        while let Err(now) = self.state.compare_exchange(state, state + 1, Relaxed, Relaxed) {
            state = now;
        }
        self.parties.fetch_add(1, Relaxed);
    }

    fn arrive_and_drop(&self) {
        self.parties.fetch_sub(1, Relaxed);
        self.arrive(false);
    }

    fn drain(&self) {
        // ORDER: Acquire, pairs with the Release of those who leave.
        while self.leaving.load(Acquire) != 0 {
            P::nap(50_000);
        }
    }
}
