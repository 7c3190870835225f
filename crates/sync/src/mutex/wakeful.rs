// SPDX-License-Identifier: MIT OR Apache-2.0
use core::marker::PhantomData;
use platform::{
    Atomic, AtomicInt, Deadline, Ordering::*, Platform, RunState, STAMP_ID, STAMP_SHIFT, StaticPlatform, ThreadId,
};

use super::{RawMutex, RawMutexTimed};

const LOCKED: u32 = 1;
const STANDBY: u32 = 1 << 1;
const KICK: u32 = 1 << 2;
const HANDOFF: u32 = 1 << 3;
const GENERATION_SHIFT: u32 = 4;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const RELAY: u32 = 1 << 7;
const OWNER: u32 = STAMP_ID;
const NEWEST_SHIFT: u32 = 20;
const NEWEST: u32 = 0xfff << NEWEST_SHIFT;

/// Words of a thread's block, see [`Platform::word`].
const OLDER: usize = 0;
const NEWER: usize = 1;
const OLDEST: usize = 2;
const STATE: usize = 3;
const WAITED: usize = 4;
const BETWEEN: usize = 5;
const LAST: usize = 6;
const MODE: usize = 7;

const SHARING: u32 = 1 << 31;
const BAN: u32 = 250;

const IDLE: u32 = 0;
const ASLEEP: u32 = 1;
const PROMOTED: u32 = 2;

const SAMPLE_NS: u64 = 130;
const SAMPLES: u32 = 24;
const POLL_NS: u64 = 300;
const POLL_MAX_NS: u64 = 5_000;
const ARRIVAL_NS: u64 = 3_000;
const SPIN_NS: u64 = 50_000;
const NAP_NS: u64 = 30_000;
const TURN_NS: u64 = 500_000;
const PATIENCE_NS: u64 = 100_000;
const RELAY_NS: u64 = 500;
const GRACE_NS: u64 = 2_000;

/// The default mutex.
#[repr(transparent)]
pub struct Wakeful<P: Platform> {
    word: P::AtomicU32,
    platform: PhantomData<P>,
}

#[inline(always)]
fn owner(word: u32) -> ThreadId {
    ThreadId((word & OWNER) >> STAMP_SHIFT)
}

#[inline(always)]
fn newest(word: u32) -> ThreadId {
    ThreadId(word >> NEWEST_SHIFT)
}

impl<P: StaticPlatform> Wakeful<P> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform> RawMutex<P> for Wakeful<P> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, _: &()) {
        let stamp = P::stamp();
        if self.word.compare_exchange(stamp & !OWNER, stamp | LOCKED, Acquire, Relaxed).is_err() {
            self.lock_slow(None);
        }
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & LOCKED == 0 {
            match self.word.compare_exchange_weak(word, word | LOCKED | P::stamp() & OWNER, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        let stamp = P::stamp();
        if self.word.compare_exchange(stamp | LOCKED, stamp & !OWNER, Release, Relaxed).is_err() {
            self.unlock_slow();
        }
    }
}

impl<P: Platform> RawMutexTimed<P> for Wakeful<P> {
    #[inline]
    unsafe fn lock_until(&self, _: &(), deadline: Deadline) -> bool {
        let stamp = P::stamp();
        self.word.compare_exchange(stamp & !OWNER, stamp | LOCKED, Acquire, Relaxed).is_ok()
            || self.lock_slow(Some(deadline))
    }
}

fn spin_until<P: Platform>(ns: u64) {
    loop {
        P::pause();
        if P::now_ns() >= ns {
            return;
        }
    }
}

/// What a waiting thread remembers.
struct Waiter {
    me: ThreadId,
    deadline: Option<Deadline>,
    arrived: u64,
    standby: bool,
    since: u64,
    demanded: Option<u64>,
    grace: Option<u64>,
    relay: bool,
    nap: u64,
    hot: bool,
    share: bool,
}

impl<P: Platform> Wakeful<P> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: Option<Deadline>) -> bool {
        let word = self.word.load(Relaxed);
        if word & (LOCKED | HANDOFF) == 0
            && self.word.compare_exchange(word, word | LOCKED | P::stamp() & OWNER, Acquire, Relaxed).is_ok()
        {
            P::set_stamp(word & !KICK);
            return true;
        }
        self.lock_contended(deadline)
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, deadline: Option<Deadline>) -> bool {
        let me = P::register();
        let now = P::now_ns();
        let mut waiter = Waiter {
            me,
            deadline,
            arrived: now,
            standby: false,
            since: now,
            demanded: None,
            grace: None,
            relay: false,
            nap: NAP_NS,
            hot: false,
            share: shares::<P>(me, now),
        };
        let locked = self.wait(&mut waiter);
        remember::<P>(me, waiter.arrived);
        locked
    }

    fn wait(&self, waiter: &mut Waiter) -> bool {
        let mut seen = ThreadId::NONE;
        loop {
            let word = self.word.load(Relaxed);
            if !waiter.standby && word & (STANDBY | NEWEST) != 0 && self.purge(word) {
                continue;
            }
            if waiter.relay && word & HANDOFF == 0 {
                waiter.relay = false;
                self.promote();
                continue;
            }
            if word & LOCKED == 0 {
                if self.take(word, waiter, seen) {
                    return true;
                }
                continue;
            }
            seen = owner(word);
            if let Some(deadline) = waiter.deadline
                && P::past(deadline)
            {
                self.resign(waiter);
                return false;
            }
            let now = P::now_ns();
            let running = !matches!(P::run_state(seen), RunState::Preempted | RunState::Blocked);
            if waiter.standby {
                self.stand_by(word, waiter, running, now);
            } else if running && !waiter.hot && word & HANDOFF == 0 && now < waiter.arrived + ARRIVAL_NS {
                let gap = ((now - waiter.arrived) / 4).clamp(if waiter.share { 50 } else { POLL_NS }, POLL_MAX_NS);
                spin_until::<P>(now + gap);
            } else if waiter.relay {
                // Somebody else has barged in.
                waiter.relay = self.word.compare_exchange(word, word & !RELAY, Relaxed, Relaxed).is_err();
            } else {
                self.enlist(waiter);
            }
        }
    }

    /// The lock is free; takes it, unless it should not.
    fn take(&self, word: u32, waiter: &mut Waiter, seen: ThreadId) -> bool {
        if word & HANDOFF != 0 && !waiter.standby {
            waiter.share = false;
            if word & RELAY == 0 && word & NEWEST != 0 {
                waiter.relay = self.word.compare_exchange(word, word | RELAY, Relaxed, Relaxed).is_ok();
                return false;
            }
            let now = P::now_ns();
            if now < *waiter.grace.get_or_insert(now + GRACE_NS) {
                P::pause();
                return false;
            }
        } else if !waiter.share && !waiter.hot && waiter.demanded.is_none() && seen != ThreadId::NONE {
            let mut locked = 0;
            let mut sample = P::now_ns();
            for _ in 0..SAMPLES {
                sample += SAMPLE_NS;
                spin_until::<P>(sample);
                let word = self.word.load(Relaxed);
                if word & LOCKED != 0 {
                    if owner(word) != seen {
                        return false;
                    }
                    locked += 1;
                }
            }
            waiter.share = locked == 1 && try_share::<P>(waiter.me);
            if locked > 0 && !waiter.share {
                waiter.hot = true;
                return false;
            }
        } else if waiter.hot && waiter.grace.is_none() && waiter.demanded.is_none() {
            if waiter.standby {
                let now = P::now_ns();
                self.stand_by(word, waiter, true, now);
            } else {
                self.enlist(waiter);
            }
            return false;
        }
        if waiter.standby && word & HANDOFF != 0 && word & RELAY == 0 {
            let now = P::now_ns();
            if now < *waiter.grace.get_or_insert(now + RELAY_NS) {
                P::pause();
                return false;
            }
        }
        let mine = LOCKED | P::stamp() & OWNER;
        let new = if !waiter.standby {
            // The standby did not come within the grace: it is not awake. It will ask again. Another thread's
            // relay tells from HANDOFF whether the standby has the lock, so that only its owner may clear it.
            let rescinded = if waiter.relay || word & RELAY == 0 { HANDOFF | RELAY } else { 0 };
            word & !rescinded | mine
        } else if word & NEWEST == 0 {
            mine
        } else {
            word & !(KICK | HANDOFF | RELAY) | mine
        };
        // We hold the role, so a failure means only that somebody came to the queue or took the lock.
        if self.word.compare_exchange(word, new, Acquire, Relaxed).is_err() {
            return false;
        }
        if waiter.standby && new & NEWEST != 0 && word & RELAY == 0 {
            self.promote();
        }
        true
    }

    fn stand_by(&self, word: u32, waiter: &mut Waiter, running: bool, now: u64) {
        let waited = now.saturating_sub(waiter.since);
        if !running {
            self.sleep_on_word(word, waiter);
        } else if let Some(demanded) = waiter.demanded {
            if word & HANDOFF == 0 {
                self.word.fetch_or(HANDOFF, Relaxed);
                waiter.grace = None;
            }
            if now < demanded + SPIN_NS {
                P::pause();
            } else {
                self.sleep_on_word(word, waiter);
            }
        } else if waited >= if word & NEWEST == 0 { PATIENCE_NS } else { TURN_NS } {
            self.word.fetch_or(HANDOFF, Relaxed);
            waiter.demanded = Some(now);
            waiter.grace = None;
        } else if waiter.hot {
            P::nap(waiter.nap);
            waiter.nap = (waiter.nap * 2).min(PATIENCE_NS);
            waiter.hot = false;
        } else if waited < SPIN_NS {
            spin_until::<P>(now + (waited / 4).clamp(POLL_NS, POLL_MAX_NS));
        } else {
            self.sleep_on_word(word, waiter);
        }
    }

    fn sleep_on_word(&self, word: u32, waiter: &Waiter) {
        if word & KICK == 0 && self.word.compare_exchange(word, word | KICK, Relaxed, Relaxed).is_err() {
            return;
        }
        P::wait(&self.word, word | KICK, waiter.deadline);
    }

    /// Takes the standby role or a place in the queue.
    fn enlist(&self, waiter: &mut Waiter) {
        let me = waiter.me;
        // A signal handler that waits while its thread is in a queue finds the thread's words taken.
        let queue = me != ThreadId::NONE && waiter.deadline.is_none() && P::word(me, STATE).load(Relaxed) == IDLE;
        if queue {
            P::word(me, STATE).store(ASLEEP, Relaxed);
        }
        let mut word = self.word.load(Relaxed);
        loop {
            let new = if word & STANDBY == 0 {
                word | STANDBY | P::generation() << GENERATION_SHIFT
            } else if queue {
                let older = newest(word);
                P::word(me, OLDER).store(older.0, Relaxed);
                P::word(me, OLDEST).store(if older == ThreadId::NONE { me.0 } else { 0 }, Relaxed);
                word & !NEWEST | me.0 << NEWEST_SHIFT
            } else {
                P::nap(waiter.nap);
                waiter.nap = (waiter.nap * 2).min(TURN_NS);
                return;
            };
            match self.word.compare_exchange_weak(word, new, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if word & STANDBY != 0 {
            let state = P::word(me, STATE);
            while state.load(Acquire) == ASLEEP {
                P::wait(state, ASLEEP, None);
            }
            self.unlink(me);
            waiter.hot = false;
            waiter.share = false;
        }
        if queue {
            P::word(me, STATE).store(IDLE, Relaxed);
        }
        waiter.standby = true;
        waiter.since = P::now_ns();
        waiter.demanded = None;
        waiter.grace = None;
        waiter.nap = NAP_NS;
    }

    /// The deadline has passed: gives back every duty (G2).
    fn resign(&self, waiter: &Waiter) {
        let mut word = self.word.load(Relaxed);
        if waiter.relay {
            loop {
                if word & HANDOFF == 0 {
                    return self.promote();
                }
                match self.word.compare_exchange_weak(word, word & !RELAY, Relaxed, Relaxed) {
                    Ok(_) => return,
                    Err(now) => word = now,
                }
            }
        } else if waiter.standby {
            loop {
                let alone = word & NEWEST == 0;
                let new = if alone { word & (LOCKED | OWNER) } else { word & !(HANDOFF | RELAY | KICK) };
                match self.word.compare_exchange_weak(word, new, Relaxed, Relaxed) {
                    Ok(_) if alone || word & RELAY != 0 => return,
                    Ok(_) => return self.promote(),
                    Err(now) => word = now,
                }
            }
        }
    }

    /// A word copied by fork, with threads on it that are not here.
    fn purge(&self, word: u32) -> bool {
        if (word & GENERATION) >> GENERATION_SHIFT == P::generation() {
            return false;
        }
        let _ = self.word.compare_exchange(word, word & (LOCKED | OWNER), Relaxed, Relaxed);
        true
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        let mut word = self.word.load(Relaxed);
        loop {
            match self.word.compare_exchange_weak(word, word & !(LOCKED | OWNER | KICK), Release, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if word & KICK != 0 {
            P::wake(&self.word, 1);
        }
    }

    /// Finds the thread that has slept longest.
    fn oldest(&self, newest: ThreadId) -> ThreadId {
        let mut thread = newest;
        loop {
            let oldest = P::word(thread, OLDEST).load(Relaxed);
            if oldest != 0 {
                P::word(newest, OLDEST).store(oldest, Relaxed);
                return ThreadId(oldest);
            }
            let older = ThreadId(P::word(thread, OLDER).load(Relaxed));
            P::word(older, NEWER).store(thread.0, Relaxed);
            thread = older;
        }
    }

    /// Gives the standby role to the thread that has slept longest.
    fn promote(&self) {
        let oldest = self.oldest(newest(self.word.load(Acquire)));
        P::word(oldest, STATE).store(PROMOTED, Release);
        P::wake(P::word(oldest, STATE), 1);
    }

    /// Takes the calling thread, the oldest, out of the queue.
    fn unlink(&self, me: ThreadId) {
        loop {
            let word = self.word.load(Acquire);
            let newest = newest(word);
            let oldest = self.oldest(newest);
            debug_assert_eq!(oldest, me);
            if newest != me {
                let second = P::word(me, NEWER).load(Relaxed);
                P::word(newest, OLDEST).store(second, Relaxed);
                P::word(ThreadId(second), OLDEST).store(second, Relaxed);
                return;
            }
            if self.word.compare_exchange(word, word & !NEWEST, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }
}

/// Does this thread share locks now? It stops when it waits for more than an eighth of its time.
fn shares<P: Platform>(me: ThreadId, now: u64) -> bool {
    if me == ThreadId::NONE {
        return false;
    }
    let (mode, waited, between) = (P::word(me, MODE), P::word(me, WAITED), P::word(me, BETWEEN));
    let since = (now as u32).wrapping_sub(P::word(me, LAST).load(Relaxed)).min(100_000);
    let sum = between.load(Relaxed) / 8 * 7 + since;
    between.store(sum, Relaxed);
    match mode.load(Relaxed) {
        SHARING if waited.load(Relaxed) < sum / 8 => true,
        SHARING => {
            mode.store(BAN, Relaxed);
            false
        }
        ban => {
            mode.store(ban.saturating_sub(1), Relaxed);
            false
        }
    }
}

fn remember<P: Platform>(me: ThreadId, arrived: u64) {
    if me == ThreadId::NONE {
        return;
    }
    let now = P::now_ns();
    let word = P::word(me, WAITED);
    word.store(word.load(Relaxed) / 8 * 7 + now.saturating_sub(arrived).min(20_000) as u32, Relaxed);
    P::word(me, LAST).store(now as u32, Relaxed);
}

/// The thread met a lock that is nearly always free: it may share. False while it is banned.
fn try_share<P: Platform>(me: ThreadId) -> bool {
    if me == ThreadId::NONE || P::word(me, MODE).load(Relaxed) != 0 {
        return false;
    }
    P::word(me, MODE).store(SHARING, Relaxed);
    P::word(me, WAITED).store(0, Relaxed);
    P::word(me, BETWEEN).store(100_000, Relaxed);
    true
}
