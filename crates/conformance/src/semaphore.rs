// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a semaphore must do, and semaphores that do not.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Count;

use platform::{Atomic, Clock, Deadline, Ordering::*, Platform};
use sync::semaphore::RawSemaphore;

use crate::bodies::together;
use crate::{Cell, Machine};

/// One token: one thread at a time, and everybody gets there.
pub fn exclusion<M: Machine, S: RawSemaphore<M> + 'static>(threads: u32, rounds: u32) {
    let shared = Arc::new((S::new(1), M::Cell::new()));
    let ours = shared.clone();
    together::<M>(threads, move |_| {
        for _ in 0..rounds {
            assert!(ours.0.acquire(None), "gave up without a deadline");
            ours.1.bump();
            assert!(ours.0.release());
        }
    });
    assert!(shared.0.try_acquire(), "the token is gone");
    assert!(!shared.0.try_acquire(), "there are two tokens");
    assert_eq!(shared.1.get(), threads * rounds, "an update got lost: two threads held the token at once");
}

/// The first thread adds as many tokens as the others want, all at once; who tries and gets none comes again.
pub fn supply<M: Machine, S: RawSemaphore<M> + 'static>(takers: u32, each: u32) {
    let shared = Arc::new((S::new(0), Count::new(0)));
    let ours = shared.clone();
    together::<M>(takers + 1, move |index| {
        for _ in 0..if index == 0 { takers * each } else { each } {
            if index == 0 {
                assert!(ours.0.release());
            } else {
                assert!(index % 3 == 2 && ours.0.try_acquire() || ours.0.acquire(None));
                ours.1.fetch_add(1, Relaxed);
            }
        }
    });
    assert_eq!(shared.1.load(Relaxed), takers * each);
    assert_eq!(shared.0.available(), 0, "a token too many");
}

/// Two threads take turns over two semaphores; each sees what the other wrote.
pub fn turns<M: Machine, S: RawSemaphore<M> + 'static>(rounds: u32) {
    let shared = Arc::new(([S::new(1), S::new(0)], M::Cell::new()));
    let ours = shared.clone();
    together::<M>(2, move |index| {
        for round in 0..rounds {
            assert!(ours.0[index as usize].acquire(None));
            assert_eq!(ours.1.get(), round * 2 + index);
            ours.1.bump();
            assert!(ours.0[1 - index as usize].release());
        }
    });
    assert_eq!(shared.0.each_ref().map(S::available), [1, 0]);
}

/// Who gives up comes back after the deadline, without a token, and harms nobody.
pub fn timing<M: Machine, S: RawSemaphore<M> + 'static>(threads: u32, rounds: u32, patience_ns: u64) {
    let shared = Arc::new((S::new(1), M::Cell::new(), Count::new(0)));
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        for _ in 0..rounds {
            let deadline = Deadline { ns: M::now_ns() + patience_ns, clock: Clock::Monotonic };
            if ours.0.acquire((index != 0).then_some(deadline)) {
                ours.1.bump();
                ours.2.fetch_add(1, Relaxed);
                assert!(ours.0.release());
            } else {
                assert!(index != 0 && M::past(deadline), "gave up before the deadline");
            }
        }
    });
    assert_eq!(shared.0.available(), 1, "who gave up kept or made a token");
    assert_eq!(shared.1.get(), shared.2.load(Relaxed));
}

macro_rules! twin {
    ($(#[$doc:meta])* $name:ident, take($taker:ident) $take:block, add($adder:ident) $add:block) => {
        $(#[$doc])*
        pub struct $name<P: Platform>(P::AtomicU32, PhantomData<P>);

        impl<P: Platform> RawSemaphore<P> for $name<P> {
            fn new(tokens: u32) -> Self {
                Self(Atomic::new(tokens * 2), PhantomData)
            }
            fn acquire(&self, _: Option<Deadline>) -> bool {
                let $taker = self;
                $take
                true
            }
            fn try_acquire(&self) -> bool {
                self.available() > 0 && self.acquire(None)
            }
            fn release(&self) -> bool {
                let $adder = self;
                $add
                true
            }
            fn available(&self) -> u32 {
                self.0.load(Relaxed) / 2
            }
        }
    };
}

twin! {
    /// Adds in two steps: a token that another adds between them is lost.
    AddsInTwoSteps,
    take(this) {
        loop {
            let word = this.0.load(Relaxed);
            if word >= 2 && this.0.compare_exchange(word, word - 2, Acquire, Relaxed).is_ok() {
                break;
            }
            P::pause();
        }
    },
    add(this) { this.0.store(this.0.load(Relaxed) + 2, Release) }
}

twin! {
    /// Bit 0: somebody sleeps. The one who is woken forgets that others may sleep still.
    ForgetsSleepers,
    take(this) {
        loop {
            let word = this.0.load(Relaxed);
            if word >= 2 {
                if this.0.compare_exchange(word, (word - 2) & !1, Acquire, Relaxed).is_ok() {
                    break;
                }
            } else if this.0.compare_exchange(word, 1, Relaxed, Relaxed).is_ok() {
                P::wait(&this.0, 1, None);
            }
        }
    },
    add(this) {
        loop {
            let word = this.0.load(Relaxed);
            if this.0.compare_exchange(word, word + 2, Release, Relaxed).is_ok() {
                if word & 1 != 0 {
                    P::wake(&this.0, 1);
                }
                break;
            }
        }
    }
}
