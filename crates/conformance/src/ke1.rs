// SPDX-License-Identifier: MIT OR Apache-2.0
//! KE-1: a releaser grants a lock to a thread whose processor the kernel wants at this moment. The steps
//! (K, G) and the invariants (I) are those of `platform::ke1`.

use std::sync::Arc;

use platform::{Atomic, Ordering::*, Platform, RunState, Wish, ke1};

use crate::Machine;

/// What kernel and program share of a thread.
pub trait Block: Send + Sync + 'static {
    /// Running, and preemptable.
    fn new() -> Self;
    /// G1.
    fn set_wish(&self, wish: Wish);
    /// G2.
    fn change_wish(&self, from: Wish, to: Wish) -> bool;
    /// K1.
    fn preempt(&self) -> bool;
    /// K2 and K3.
    fn set_run_state(&self, state: RunState);
    /// Both, as they are now.
    fn both(&self) -> (RunState, Wish);
}

fn fresh() -> u32 {
    abi::state::new(RunState::Running, Wish::Preemptable)
}

fn halves(word: u32) -> (RunState, Wish) {
    (abi::state::run_state(word), abi::state::wish(word))
}

/// As it is.
pub struct OneWord<P: Platform>(P::AtomicU32);

impl<P: Platform> Block for OneWord<P> {
    fn new() -> Self {
        Self(Atomic::new(fresh()))
    }
    fn set_wish(&self, wish: Wish) {
        ke1::set_wish(&self.0, wish);
    }
    fn change_wish(&self, from: Wish, to: Wish) -> bool {
        ke1::change_wish(&self.0, from, to)
    }
    fn preempt(&self) -> bool {
        ke1::preempt(&self.0)
    }
    fn set_run_state(&self, state: RunState) {
        ke1::set_run_state(&self.0, state);
    }
    fn both(&self) -> (RunState, Wish) {
        halves(self.0.load(Relaxed))
    }
}

/// Run state and wish as two words, each with all the order that there is: who decides by one changes the
/// other.
pub struct TwoWords<P: Platform>(P::AtomicU32, P::AtomicU32);

impl<P: Platform> Block for TwoWords<P> {
    fn new() -> Self {
        Self(Atomic::new(RunState::Running as u32), Atomic::new(Wish::Preemptable as u32))
    }
    fn set_wish(&self, wish: Wish) {
        self.1.swap(wish as u32, AcqRel);
    }
    fn change_wish(&self, from: Wish, to: Wish) -> bool {
        self.0.load(Acquire) != RunState::Preempted as u32
            && self.1.compare_exchange(from as u32, to as u32, AcqRel, Acquire).is_ok()
    }
    fn preempt(&self) -> bool {
        let may = self.1.load(Acquire) == Wish::Preemptable as u32;
        if may {
            self.set_run_state(RunState::Preempted);
        }
        may
    }
    fn set_run_state(&self, state: RunState) {
        self.0.swap(state as u32, AcqRel);
    }
    fn both(&self) -> (RunState, Wish) {
        (RunState::from_u32(self.0.load(Acquire)), Wish::from_u32(self.1.load(Acquire)))
    }
}

/// One word, whose kernel looks and then stores all of it.
pub struct StoresWhole<P: Platform>(OneWord<P>);

impl<P: Platform> Block for StoresWhole<P> {
    fn new() -> Self {
        Self(OneWord::new())
    }
    fn set_wish(&self, wish: Wish) {
        self.0.set_wish(wish);
    }
    fn change_wish(&self, from: Wish, to: Wish) -> bool {
        self.0.change_wish(from, to)
    }
    fn preempt(&self) -> bool {
        self.0.preempt()
    }
    fn set_run_state(&self, state: RunState) {
        let word = &self.0.0;
        word.store(abi::state::with_run_state(word.load(Relaxed), state), Relaxed);
    }
    fn both(&self) -> (RunState, Wish) {
        self.0.both()
    }
}

/// A thread waits for a lock as `smart-q` does, from A4 on, and the kernel wants its processor; another one
/// releases the lock (R4). If it is `nested` inside another lock, it keeps its wish, and A4 is left out.
pub fn granted<M: Machine, B: Block>(nested: bool) {
    let block = Arc::new(B::new());
    // A1; A3 makes it known to the releaser.
    block.set_wish(Wish::UnpreemptableSelf);
    let waiter = {
        let block = block.clone();
        M::spawn(move || {
            if !nested {
                // A4.
                block.change_wish(Wish::UnpreemptableSelf, Wish::Preemptable);
            }
            if block.preempt() {
                let now = block.both();
                let lost = (RunState::Preempted, Wish::Preemptable);
                assert_eq!(now, lost, "granted a lock at the moment he lost his processor");
            } else {
                // KE-2: put off, once.
                assert_ne!(block.both().1, Wish::Preemptable);
                block.set_run_state(RunState::Preempted);
            }
            block.set_run_state(RunState::Running);
        })
    };
    let grants = block.change_wish(Wish::UnpreemptableSelf, Wish::UnpreemptableOther)
        || block.change_wish(Wish::Preemptable, Wish::UnpreemptableOther);
    M::join(waiter);
    let own = if nested { Wish::UnpreemptableSelf } else { Wish::Preemptable };
    let wish = if grants { Wish::UnpreemptableOther } else { own };
    assert_eq!(block.both(), (RunState::Running, wish), "a change got lost");
}
