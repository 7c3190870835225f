// SPDX-License-Identifier: MIT OR Apache-2.0
use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, RunState, StaticPlatform, ThreadId, Wait};

use super::{RawMutex, RawMutexTimed};

const LOCKED: u32 = 1;
const STANDBY: u32 = 1 << 1;
const KICK: u32 = 1 << 2;
const PROMOTE: u32 = 1 << 3;
const HANDOFF: u32 = 1 << 4;
const GENERATION_SHIFT: u32 = 5;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const OWNER_SHIFT: u32 = 8;
const OWNER: u32 = 0xfff << OWNER_SHIFT;
const NEWEST_SHIFT: u32 = 20;
const NEWEST: u32 = 0xfff << NEWEST_SHIFT;

/// Words of a thread's block, see [`Platform::queue_word`].
const OLDER: usize = 0;
const NEWER: usize = 1;
const OLDEST: usize = 2;
const STATE: usize = 3;

const ASLEEP: u32 = 1;
const PROMOTED: u32 = 0;

const POLITE_NS: u64 = 150;
const POLL_NS: u64 = 300;
const POLL_MAX_NS: u64 = 5_000;
const ARRIVAL_NS: u64 = 3_000;
const SPIN_NS: u64 = 50_000;
const NAP_NS: u64 = 20_000;
const PATIENCE_NS: u64 = 300_000;
const GRACE_NS: u64 = 2_000;

/// The default mutex.
#[repr(transparent)]
pub struct Wakeful<P: Platform> {
    word: P::AtomicU32,
    platform: PhantomData<P>,
}

#[inline(always)]
fn held_by(thread: ThreadId) -> u32 {
    LOCKED | thread.0 << OWNER_SHIFT
}

#[inline(always)]
fn owner(word: u32) -> ThreadId {
    ThreadId((word & OWNER) >> OWNER_SHIFT)
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
        if self.word.load(Relaxed) != 0
            || self.word.compare_exchange(0, held_by(P::current()), Acquire, Relaxed).is_err()
        {
            self.lock_slow(None);
        }
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & LOCKED == 0 {
            match self.word.compare_exchange_weak(word, word | held_by(P::current()), Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        let mine = held_by(P::current());
        if self.word.load(Relaxed) != mine || self.word.compare_exchange(mine, 0, Release, Relaxed).is_err() {
            self.unlock_slow();
        }
    }
}

impl<P: Platform> RawMutexTimed<P> for Wakeful<P> {
    #[inline]
    unsafe fn lock_until(&self, _: &(), deadline: Deadline) -> bool {
        self.word.compare_exchange(0, held_by(P::current()), Acquire, Relaxed).is_ok() || self.lock_slow(Some(deadline))
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

impl<P: Platform> Wakeful<P> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: Option<Deadline>) -> bool {
        let word = self.word.load(Relaxed);
        if word & (LOCKED | HANDOFF) == 0
            && self.word.compare_exchange(word, word | held_by(P::current()), Acquire, Relaxed).is_ok()
        {
            return true;
        }
        self.wait_and_lock(deadline)
    }

    fn wait_and_lock(&self, deadline: Option<Deadline>) -> bool {
        let me = P::register();
        let start = P::now_ns();
        let mut polite = false;
        let mut hot = false;
        let mut seen = 0;
        let mut standby = false;
        let mut demanded = 0u64;
        let mut role_start = start;
        let mut nap = NAP_NS;
        loop {
            let word = self.word.load(Relaxed);
            if word & (STANDBY | NEWEST) != 0 && !standby && (word & GENERATION) >> GENERATION_SHIFT != P::generation()
            {
                let _ = self.word.compare_exchange(word, word & (LOCKED | OWNER), Relaxed, Relaxed);
                continue;
            }
            let now = P::now_ns();
            if word & LOCKED == 0 {
                if word & HANDOFF != 0 && !standby {
                    // Somebody waited too long: it is his, if he is awake.
                    if demanded == 0 {
                        demanded = now + GRACE_NS;
                    }
                    if now < demanded {
                        P::pause();
                        continue;
                    }
                } else if !polite && demanded == 0 && seen != 0 {
                    polite = true;
                    spin_until::<P>(now + POLITE_NS);
                    let again = self.word.load(Relaxed);
                    hot = again & LOCKED != 0 && again & OWNER == seen & OWNER;
                    continue;
                }
                let new = if !standby {
                    word | held_by(me)
                } else if word & NEWEST == 0 {
                    held_by(me)
                } else {
                    word & !(KICK | HANDOFF) | held_by(me) | PROMOTE
                };
                if self.word.compare_exchange_weak(word, new, Acquire, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            seen = word;
            let running = match P::run_state(owner(word)) {
                RunState::Preempted | RunState::Blocked => false,
                _ => true,
            };
            if !standby {
                if running && !hot && word & HANDOFF == 0 && now < start + ARRIVAL_NS {
                    let gap = POLL_NS.max((now - start) / 4).min(POLL_MAX_NS);
                    spin_until::<P>(now + gap);
                    continue;
                }
                if !self.enlist(me) {
                    let state = P::queue_word(me, STATE);
                    while state.load(Acquire) == ASLEEP {
                        P::wait(state, ASLEEP, None);
                    }
                }
                standby = true;
                role_start = P::now_ns();
                demanded = 0;
                polite = false;
                hot = false;
                continue;
            }
            if !running {
                self.sleep_on_word(word, deadline);
                continue;
            }
            let waited = now - role_start;
            if demanded == 0 && waited >= PATIENCE_NS {
                self.word.fetch_or(HANDOFF, Relaxed);
                demanded = now;
                continue;
            }
            if demanded != 0 {
                if now < demanded + SPIN_NS {
                    P::pause();
                } else {
                    self.sleep_on_word(word, deadline);
                }
            } else if hot {
                P::nap(nap);
                nap *= 2;
                polite = false;
            } else if waited < SPIN_NS {
                spin_until::<P>(now + POLL_NS.max(waited / 4).min(POLL_MAX_NS));
            } else {
                self.sleep_on_word(word, deadline);
            }
        }
    }

    /// Takes the standby role (true) or a place in the queue (false).
    fn enlist(&self, me: ThreadId) -> bool {
        let mut word = self.word.load(Relaxed);
        P::queue_word(me, STATE).store(ASLEEP, Relaxed);
        loop {
            let new = if word & STANDBY == 0 {
                word | STANDBY | P::generation() << GENERATION_SHIFT
            } else {
                let older = newest(word);
                P::queue_word(me, OLDER).store(older.0, Relaxed);
                P::queue_word(me, OLDEST).store(if older == ThreadId::NONE { me.0 } else { 0 }, Relaxed);
                word & !NEWEST | me.0 << NEWEST_SHIFT
            };
            match self.word.compare_exchange_weak(word, new, Release, Relaxed) {
                Ok(_) => return word & STANDBY == 0,
                Err(now) => word = now,
            }
        }
    }

    fn sleep_on_word(&self, word: u32, deadline: Option<Deadline>) -> Wait {
        if word & KICK == 0 && self.word.compare_exchange(word, word | KICK, Relaxed, Relaxed).is_err() {
            return Wait::Changed;
        }
        P::wait(&self.word, word | KICK, deadline)
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        let mut word = self.word.load(Relaxed);
        loop {
            match self.word.compare_exchange_weak(word, word & !(LOCKED | OWNER | KICK | PROMOTE), Release, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if word & (KICK | PROMOTE) == 0 {
            return;
        }
        self.wake_next(word);
    }

    #[cold]
    #[inline(never)]
    fn wake_next(&self, word: u32) {
        if (word & GENERATION) >> GENERATION_SHIFT != P::generation() {
            return;
        }
        if word & PROMOTE != 0 {
            self.promote();
        } else if word & KICK != 0 {
            P::wake(&self.word, 1);
        }
    }

    fn promote(&self) {
        let oldest = loop {
            let word = self.word.load(Acquire);
            let newest = newest(word);
            let mut thread = newest;
            let oldest = loop {
                let oldest = P::queue_word(thread, OLDEST).load(Relaxed);
                if oldest != 0 {
                    break ThreadId(oldest);
                }
                let older = ThreadId(P::queue_word(thread, OLDER).load(Relaxed));
                P::queue_word(older, NEWER).store(thread.0, Relaxed);
                thread = older;
            };
            if oldest == newest {
                if self.word.compare_exchange(word, word & !NEWEST, Relaxed, Relaxed).is_err() {
                    continue;
                }
            } else {
                let second = P::queue_word(oldest, NEWER).load(Relaxed);
                P::queue_word(newest, OLDEST).store(second, Relaxed);
            }
            break oldest;
        };
        P::queue_word(oldest, STATE).store(PROMOTED, Release);
        P::wake(P::queue_word(oldest, STATE), 1);
    }
}
