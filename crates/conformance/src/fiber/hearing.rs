// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a sentinel hears of a carrier, and a carrier of those who call.

use std::sync::Arc;

use ::fiber::fences::Fences;
use ::fiber::seats::Seats;
use platform::{Atomic, Ordering::*};

use crate::Machine;
use crate::bodies::together;

/// After the sentinel silenced a carrier it does not look whether that has a seat again.
pub const DEAF: u32 = 5;
/// It looks, and not whether the carrier has blocked meanwhile.
pub const HASTY: u32 = 6;
/// A carrier enables its event before it has a seat.
pub const EARLY: u32 = 7;

/// Who silences a carrier does not forget its newest record.
pub const STALE: u32 = 9;
/// Who silences a carrier does not look again after it enabled the event.
pub const LINGERING: u32 = 10;

/// `Event::word`: it is disabled.
const DISABLED: u32 = 1;
/// The newest record is "out". Above this bit records are counted.
const OUT: u32 = 2;
const RECORD: u32 = 4;

/// The kernel's event of one carrier. Its words change under a lock of the kernel's.
struct Event<M: Machine> {
    word: M::AtomicU32,
    blocked: M::AtomicU32,
    /// It was told, and nobody has looked.
    told: M::AtomicU32,
    /// The records that were forgotten.
    forgotten: M::AtomicU32,
}

impl<M: Machine> Event<M> {
    fn new() -> Self {
        Self {
            word: Atomic::new(0),
            blocked: Atomic::new(0),
            told: Atomic::new(0),
            forgotten: Atomic::new(0),
        }
    }
    /// The word before.
    fn change(&self, change: impl Fn(u32) -> u32) -> u32 {
        let mut word = self.word.load(Relaxed);
        loop {
            match self.word.compare_exchange(word, change(word), AcqRel, Relaxed) {
                Ok(_) => return word,
                Err(now) => word = now,
            }
        }
    }
    fn enable(&self) {
        self.change(|word| word & !DISABLED);
    }
    fn disable(&self) {
        self.change(|word| word | DISABLED);
    }
    fn is_enabled(&self) -> bool {
        self.word.load(Acquire) & DISABLED == 0
    }
    fn record(&self, out: u32) -> bool {
        let next = |word: u32| if word & DISABLED == 0 { (word & !OUT | out) + RECORD } else { word };
        self.change(next) & DISABLED == 0
    }
    fn block(&self) {
        self.blocked.swap(1, AcqRel);
        if self.record(OUT) {
            self.told.store(1, Release);
        }
    }
    fn come_back(&self) {
        self.record(0);
        self.blocked.swap(0, AcqRel);
    }
    fn forget(&self) {
        let newest = self.word.load(Acquire) / RECORD;
        let mut forgotten = self.forgotten.load(Relaxed);
        while forgotten < newest {
            match self.forgotten.compare_exchange(forgotten, newest, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => forgotten = now,
            }
        }
    }
    fn has_blocked(&self) -> bool {
        let word = self.word.load(Acquire);
        word & OUT != 0 && word / RECORD != self.forgotten.load(Relaxed)
    }
}

/// The sentinel takes a carrier's seat, rightly or not. The carrier has one again, and blocks: that is heard.
pub fn hearing<M: Machine + Fences, const MISTAKE: u32>() {
    struct Pair<M: Machine + Fences> {
        seats: Seats<M>,
        event: Event<M>,
    }
    let pair = Arc::new(Pair::<M> { seats: Seats::new(1, 1), event: Event::new() });
    assert!(pair.seats.regain(0));
    let ours = pair.clone();
    together::<M>(2, move |index| {
        let Pair { seats, event } = &*ours;
        if index == 1 {
            let mut seated = seats.holds(0);
            if !seated {
                if MISTAKE == EARLY {
                    event.enable();
                }
                seated = seats.regain(0);
                if seated && MISTAKE != EARLY {
                    event.enable();
                }
            }
            if seated {
                event.block();
            }
            return;
        }
        while seats.take(0) {
            assert_eq!(seats.surrender(), None);
            let back = match MISTAKE {
                DEAF => {
                    event.disable();
                    false
                }
                _ => seats.silence(0, || event.disable(), || event.enable()),
            };
            if !back || MISTAKE == HASTY || event.blocked.load(Acquire) == 0 {
                break;
            }
        }
    });
    let lost =
        pair.seats.holds(0) && pair.event.blocked.load(Relaxed) == 1 && pair.event.told.load(Relaxed) == 0;
    assert!(!lost, "a carrier with a seat has blocked, and nobody hears of it");
}

/// What a carrier does that comes back, in [`coming_back`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It waits for a lock on its way to a seat, and runs.
    Waits,
    /// It has a seat, blocks once more, and runs.
    Blocks,
    /// It has a seat, and lies down.
    Rests,
}

/// The sentinel takes a carrier's seat, rightly or not. The carrier comes back and has one again. If it runs
/// then, a thief does not take it for blocked. If it lies down, nobody listens to it.
pub fn coming_back<M: Machine + Fences, const MISTAKE: u32>(then: Then) {
    let pair = Arc::new((Seats::<M>::new(1, 1), Event::<M>::new()));
    assert!(pair.0.regain(0));
    let ours = pair.clone();
    together::<M>(2, move |index| {
        let (seats, event) = &*ours;
        if index == 1 {
            if !seats.holds(0) {
                event.forget();
                if then == Then::Waits {
                    event.block();
                    event.come_back();
                }
                if seats.regain(0) {
                    event.enable();
                }
            }
            match then {
                Then::Waits => {}
                Then::Blocks => {
                    event.block();
                    event.come_back();
                }
                Then::Rests => {
                    seats.lie_down(0);
                    event.disable();
                    event.forget();
                }
            }
            return;
        }
        while seats.take(0) {
            assert_eq!(seats.surrender(), None);
            let disable = || {
                event.disable();
                if MISTAKE != STALE {
                    event.forget();
                }
            };
            let back = match MISTAKE {
                LINGERING => {
                    disable();
                    let back = seats.holds(0);
                    if back {
                        event.enable();
                    }
                    back
                }
                _ => seats.silence(0, disable, || event.enable()),
            };
            if !back || event.blocked.load(Acquire) == 0 {
                break;
            }
        }
    });
    let (seats, event) = &*pair;
    if then == Then::Rests {
        assert!(!event.is_enabled(), "a carrier that lies down is listened to");
    } else {
        assert!(!(seats.holds(0) && event.has_blocked()), "a carrier that runs is taken for blocked");
    }
}

/// A sentinel that is woken by another's call keeps it to itself.
pub const SELFISH: u32 = 8;

/// Two sentinels sleep on one thing, of which each call wakes one. Whoever is called hears it.
pub fn calling<M: Machine, const MISTAKE: u32>() {
    struct Posts<M: Machine> {
        /// Calls that are ready for whoever sleeps next, as an edge in epoll.
        ready: M::AtomicU32,
        told: [M::AtomicU32; 2],
        left: [M::AtomicU32; 2],
    }
    impl<M: Machine> Posts<M> {
        fn ring(&self) {
            self.ready.swap(1, AcqRel);
            M::wake(&self.ready, 1);
        }
        fn stand(&self, me: usize, mistake: u32) {
            while self.told[me].load(Acquire) == 0 {
                M::wait(&self.ready, 0, None);
                if self.ready.swap(0, AcqRel) == 0 {
                    continue;
                }
                let meant = self.told[1 - me].load(Acquire) != 0 && self.left[1 - me].load(Acquire) == 0;
                if meant && mistake != SELFISH {
                    self.ring();
                    M::yield_now();
                }
            }
            self.left[me].store(1, Release);
        }
    }
    let zero = || [Atomic::new(0), Atomic::new(0)];
    let posts = Arc::new(Posts::<M> { ready: Atomic::new(0), told: zero(), left: zero() });
    together::<M>(3, move |index| match index {
        0 => {
            for told in &posts.told {
                told.store(1, Release);
                posts.ring();
            }
        }
        _ => posts.stand(index as usize - 1, MISTAKE),
    });
}
