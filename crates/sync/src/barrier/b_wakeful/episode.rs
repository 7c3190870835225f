// SPDX-License-Identifier: MIT OR Apache-2.0
//! Episodes: how threads arrive, how an episode ends, how sleepers are called. The steps are those of
//! `b_wakeful.rs`.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::limits::{self, SPIN_PAUSES};

/// One arrival; above it, signed, how many an episode still needs.
const ARRIVAL: u32 = 1 << 17;
/// Somebody sleeps, or is about to.
const SLEEPERS: u32 = 1 << 16;
/// Most parties.
pub const MOST: u32 = 12_287;
/// So many arrivals are needed where all parties have left.
const EMPTY: u32 = (1 << 14) - 1;

/// Arrivals that the episode still needs; none, or less: it is about to end.
#[inline(always)]
fn remaining(state: u32) -> i32 {
    state as i32 >> ARRIVAL.trailing_zeros()
}

/// The episode's number.
#[inline(always)]
fn number(state: u32) -> u16 {
    state as u16
}

/// Spins until `done`; false if it is not after so many pauses.
#[inline]
pub fn spin_for<P: Platform>(pauses: u32, done: &impl Fn() -> bool) -> bool {
    super::super::spin::<P>(pauses, done)
}

/// Until `done`, which somebody is about to bring about.
#[cold]
#[inline(never)]
pub fn until<P: Platform>(done: &impl Fn() -> bool) {
    while !spin_for::<P>(SPIN_PAUSES, done) {
        P::nap(limits::nap::<P>());
    }
}

/// What came of an arrival.
pub enum Arrival {
    /// It was the last one: the episode of this number is over, and the next one needs so many. Did somebody
    /// sleep in this one?
    Last { number: u16, parties: u32, sleepers: bool },
    /// All parties have left: nobody waits for anybody.
    Alone,
    /// Others are to come.
    Waits(Episode),
}

/// An episode that somebody has entered.
#[derive(Clone, Copy)]
pub struct Episode {
    pub(super) number: u16,
    pub(super) others: u32,
}

impl Episode {
    /// How many were still missing after this arrival.
    #[inline]
    pub fn others(&self) -> u32 {
        self.others
    }
}

/// The barrier proper: everything but how its threads wait.
#[repr(C)]
pub struct Episodes<P: Platform> {
    state: P::AtomicU32,
    calls: P::AtomicU32,
    parties: P::AtomicU32,
    platform: PhantomData<P>,
}

impl<P: Platform> Episodes<P> {
    pub const fn words(parties: u32) -> [u32; 3] {
        let parties = if parties == 0 {
            1
        } else if parties > MOST {
            MOST
        } else {
            parties
        };
        [parties * ARRIVAL, 0, parties]
    }

    pub fn new(parties: u32) -> Self {
        let [state, calls, parties] = Self::words(parties).map(Atomic::new);
        Self { state, calls, parties, platform: PhantomData }
    }

    #[inline(always)]
    pub fn parties(&self) -> u32 {
        self.parties.load(Relaxed)
    }

    /// The number of the present episode, as a hint.
    #[inline]
    pub fn number(&self) -> u16 {
        number(self.state.load(Relaxed))
    }

    /// HINT: does anybody sleep in the present episode, or is about to?
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.state.load(Relaxed) & SLEEPERS != 0
    }

    /// How many arrivals the present episode lacks, as a hint.
    #[inline]
    pub fn missing(&self) -> i32 {
        remaining(self.state.load(Relaxed))
    }

    /// Is one arrival missing, and no more? What the others wrote before theirs is seen then.
    #[inline]
    pub fn lacks_one(&self) -> bool {
        // ORDER: Acquire (W1), pairs with A1.
        remaining(self.state.load(Acquire)) == 1
    }

    /// Arrives for so many threads. Who is the last has to [`Episodes::call`] if there are sleepers.
    #[inline]
    pub fn arrive(&self, count: u32) -> Arrival {
        loop {
            // ORDER: AcqRel (A1), a chain that ends at the last one.
            let before = self.state.fetch_sub(count * ARRIVAL, AcqRel);
            let needed = remaining(before);
            if needed > MOST as i32 {
                return self.alone(before);
            }
            if needed > count as i32 {
                return Arrival::Waits(Episode { number: number(before), others: needed as u32 - count });
            }
            if needed > 0 {
                return self.end(before.wrapping_sub(count * ARRIVAL));
            }
            self.await_end(number(before));
        }
    }

    /// Arrives for one thread in this episode only. `None`: it is over, or about to be.
    pub fn arrive_in(&self, episode: u16) -> Option<Arrival> {
        self.arrive_beside(episode, 0)
    }

    /// The same, only if more than so many arrivals are needed yet.
    pub fn arrive_beside(&self, episode: u16, places: u32) -> Option<Arrival> {
        let mut state = self.state.load(Relaxed);
        loop {
            let needed = remaining(state);
            if number(state) != episode || needed <= places as i32 {
                return None;
            }
            if needed > MOST as i32 {
                return Some(Arrival::Alone);
            }
            let less = state.wrapping_sub(ARRIVAL);
            // ORDER: AcqRel (A1), a chain that ends at the last one.
            match self.state.compare_exchange_weak(state, less, AcqRel, Relaxed) {
                Ok(_) if needed == 1 => return Some(self.end(less)),
                Ok(_) => return Some(Arrival::Waits(Episode { number: episode, others: needed as u32 - 1 })),
                Err(now) => state = now,
            }
        }
    }

    #[inline]
    fn end(&self, mut state: u32) -> Arrival {
        loop {
            let parties = self.parties().min(MOST);
            let needed = if parties == 0 { EMPTY } else { parties };
            let next = (needed * ARRIVAL) | number(state).wrapping_add(1) as u32;
            // A2. Continues the release sequence of our A1, which W1 acquires.
            match self.state.compare_exchange_weak(state, next, Relaxed, Relaxed) {
                Ok(_) => {
                    return Arrival::Last { number: number(state), parties, sleepers: state & SLEEPERS != 0 };
                }
                Err(now) => state = now,
            }
        }
    }

    /// Another barrier begins in the words of this one, where nobody waits. Its episodes go on: a thread that
    /// is on its way out sees that its own is over.
    pub fn renew(&self, parties: u32) {
        let [state, _, parties] = Self::words(parties);
        self.parties.store(parties, Relaxed);
        self.state.store(state | u32::from(self.number()), Relaxed);
    }

    /// All parties have left: a thread that comes need not wait, and counts as not having come.
    #[cold]
    fn alone(&self, before: u32) -> Arrival {
        // If it fails, others have been here; the last of them takes all back, or J1 did.
        let _ = self.state.compare_exchange(
            before.wrapping_sub(ARRIVAL),
            before & (ARRIVAL - 1) | (EMPTY * ARRIVAL),
            Relaxed,
            Relaxed,
        );
        Arrival::Alone
    }

    /// Somebody is between A1 and A2.
    fn await_end(&self, episode: u16) {
        until::<P>(&|| self.is_over(episode));
    }

    #[inline(always)]
    pub fn is_over(&self, episode: u16) -> bool {
        // ORDER: Acquire (W1), pairs with the A1 before A2.
        number(self.state.load(Acquire)) != episode
    }

    /// A3 and A4; of those who sleep, so many.
    #[cold]
    #[inline(never)]
    pub fn call(&self, count: u32) {
        // ORDER: Release (A3), pairs with W2.
        self.calls.fetch_add(1, Release);
        P::wake(&self.calls, count);
    }

    /// C1.
    pub fn summon(&self, count: u32) {
        // ORDER: Release (C1), pairs with W3.
        if self.state.fetch_or(0, Release) & SLEEPERS != 0 {
            self.call(count);
        }
    }

    /// W2 to W4, until the episode is over or `called`.
    #[cold]
    #[inline(never)]
    pub fn sleep(&self, episode: u16, called: &impl Fn() -> bool) {
        loop {
            // ORDER: Acquire (W2), pairs with A3: who finds the call of its own episode here finds that over
            // below.
            let calls = self.calls.load(Acquire);
            // ORDER: Acquire (W1), pairs with the A1 before A2.
            let state = self.state.load(Acquire);
            if number(state) != episode {
                return;
            }
            // W3. W2 has not seen the call of our own episode, or that would be over.
            // ORDER: Acquire (W3), pairs with C1.
            let slept = state | SLEEPERS;
            if state == slept || self.state.compare_exchange(state, slept, Acquire, Relaxed).is_ok() {
                if called() {
                    return;
                }
                P::wait(&self.calls, calls, None);
            }
        }
    }

    /// J1.
    pub fn join(&self) -> Joined {
        let mut state = self.state.load(Relaxed);
        loop {
            let more = match remaining(state) {
                ..=0 => {
                    self.await_end(number(state));
                    state = self.state.load(Relaxed);
                    continue;
                }
                needed if needed > MOST as i32 => state & (ARRIVAL - 1) | ARRIVAL,
                needed if needed == MOST as i32 => return Joined::NoRoom,
                _ => state + ARRIVAL,
            };
            match self.state.compare_exchange_weak(state, more, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        // Some of too many have arrived, or there would have been no room.
        let full = self.parties.fetch_add(1, Relaxed) >= MOST;
        if full { Joined::TooMany } else { Joined::Party }
    }

    /// D1: one party less, for which the caller arrives. False: nobody is left.
    pub fn leave(&self) -> bool {
        let mut parties = self.parties.load(Relaxed);
        while parties > 0 {
            match self.parties.compare_exchange_weak(parties, parties - 1, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => parties = now,
            }
        }
        false
    }
}

/// What came of a wish to join.
pub enum Joined {
    /// It is a party.
    Party,
    /// It is one too many, and has to leave at once.
    TooMany,
    /// Nothing has changed.
    NoRoom,
}
