// SPDX-License-Identifier: MIT OR Apache-2.0
//! What initialisation that happens once must do, and some that does not.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Count;

use platform::{Atomic, Ordering::*, Platform};
use sync::once::{Begin, End, RawOnce};

use crate::bodies::together;
use crate::{Cell, Machine};

/// All ask for it, it happens once, and all see what it wrote. The first `failures` attempts fail.
pub fn once<M: Machine, O: RawOnce<M> + 'static>(threads: u32, failures: u32) {
    once_of::<M, O>(O::new(), threads, failures);
}

/// The same with one in a certain state, which counts as not done.
pub fn once_of<M: Machine, O: RawOnce<M> + 'static>(once: O, threads: u32, failures: u32) {
    let shared = Arc::new((once, M::Cell::new(), Count::new(0)));
    let ours = shared.clone();
    together::<M>(threads, move |_| {
        let (once, cell, attempts) = &*ours;
        loop {
            if once.is_done() {
                break;
            }
            match once.begin(true) {
                Begin::Done => break,
                Begin::Poisoned => panic!("it was to be tried again"),
                Begin::Run { poisoned } => {
                    let before = attempts.fetch_add(1, Relaxed);
                    assert_eq!(
                        poisoned,
                        before > 0 && before % 2 == 0,
                        "the failure before it said something else"
                    );
                    cell.bump();
                    once.end(match before {
                        _ if before == failures => End::Done,
                        _ if before % 2 == 1 => End::Poisoned,
                        _ => End::Undone,
                    });
                }
            }
        }
        assert_eq!(cell.get(), failures + 1, "not all of it is seen, or it happened twice");
    });
    assert!(shared.0.is_done());
    assert_eq!(shared.0.begin(false), Begin::Done);
}

/// Who does not want to try again hears that it failed.
pub fn poison<M: Machine, O: RawOnce<M> + 'static>() {
    let once = Arc::new(O::new());
    assert_eq!(once.begin(false), Begin::Run { poisoned: false });
    let other = once.clone();
    let waiter = M::spawn(move || assert_eq!(other.begin(false), Begin::Poisoned));
    once.end(End::Poisoned);
    M::join(waiter);
    assert!(!once.is_done());
    assert_eq!(once.begin(true), Begin::Run { poisoned: true });
    once.end(End::Done);
    assert!(once.is_done());
}

macro_rules! twin {
    ($(#[$doc:meta])* $name:ident, begin($beginner:ident) $begin:block, end($ender:ident, $outcome:ident) $end:block) => {
        $(#[$doc])*
        pub struct $name<P: Platform>(P::AtomicU32, PhantomData<P>);

        impl<P: Platform> RawOnce<P> for $name<P> {
            fn new() -> Self {
                Self(Atomic::new(0), PhantomData)
            }
            fn is_done(&self) -> bool {
                self.0.load(Acquire) == 2
            }
            fn begin(&self, _: bool) -> Begin {
                let $beginner = self;
                $begin
            }
            fn end(&self, how: End) {
                let ($ender, $outcome) = (self, if how == End::Done { 2 } else { 0 });
                $end
            }
        }
    };
}

twin! {
    /// Looks, and then begins.
    BeginsTwice,
    begin(this) {
        loop {
            match this.0.load(Acquire) {
                0 => {
                    this.0.store(1, Relaxed);
                    return Begin::Run { poisoned: false };
                }
                2 => return Begin::Done,
                _ => P::pause(),
            }
        }
    },
    end(this, outcome) { this.0.store(outcome, Release) }
}

twin! {
    /// Wakes one of those who sleep.
    WakesOne,
    begin(this) {
        loop {
            match this.0.compare_exchange(0, 1, Acquire, Acquire) {
                Ok(_) => return Begin::Run { poisoned: false },
                Err(2) => return Begin::Done,
                Err(_) => drop(P::wait(&this.0, 1, None)),
            }
        }
    },
    end(this, outcome) {
        this.0.store(outcome, Release);
        P::wake(&this.0, 1);
    }
}
