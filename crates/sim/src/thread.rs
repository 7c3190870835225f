// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread of the machine: its coroutine, and what the kernel and the program know of it.

use std::cell::Cell;
use std::ptr;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, Yielder};
use platform::{Priority, RunState, Wait, Wish};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::lines::Asks;
use crate::memory::Time;
use crate::spinner::Spinner;

/// Bytes of a thread's stack; pages that it does not touch do not exist.
const STACK: usize = 256 << 10;

/// No thread.
pub(crate) const NOBODY: usize = usize::MAX;
/// The application of foreign processes.
pub(crate) const FOREIGN: usize = usize::MAX;

/// Why a coroutine gives control back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its clock has passed the limit.
    Late,
    /// It sleeps.
    Asleep,
    /// It has given its processor up.
    Yields,
    /// It has given its processor to a thread of its program that stands higher.
    HandsOff,
    /// It spins, and may be passed over.
    Spins,
    /// It waits for a line that another one has locked.
    Stalls,
}

thread_local! {
    /// Stacks for the next machine.
    static STACKS: Cell<Vec<Coloured>> = const { Cell::new(Vec::new()) };
}

pub(crate) type Body = Coroutine<(), Reason, (), Coloured>;

/// A stack whose base is somewhere in its first page: if those of all threads were at the same place of a
/// page, a cache of the host would have room for the stacks of a few threads only.
pub(crate) struct Coloured {
    stack: DefaultStack,
    by: usize,
}

impl Coloured {
    /// One that a machine before has left, if there is one.
    pub fn take(number: usize) -> Self {
        let mut stacks = STACKS.take();
        let stack = stacks.pop().unwrap_or_else(|| Self::new(number));
        STACKS.set(stacks);
        stack
    }

    /// Leaves it to the next machine.
    pub fn give_back(self) {
        let mut stacks = STACKS.take();
        stacks.push(self);
        STACKS.set(stacks);
    }

    fn new(number: usize) -> Self {
        let stack = DefaultStack::new(STACK).expect("memory for a stack");
        Self { stack, by: number * 9 % 64 * 64 }
    }
}

// SAFETY: a smaller part of a stack, as well aligned.
unsafe impl Stack for Coloured {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.stack.base().get() - self.by).expect("not null")
    }

    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Running,
    Asleep,
    Done,
}

pub(crate) struct Thread {
    pub app: usize,
    /// Number within its application.
    pub index: usize,
    pub state: State,
    pub body: Option<Body>,
    pub yielder: *const Yielder<(), Reason>,
    /// Where its stack begins.
    pub stack_base: usize,
    /// What is left of what it was doing when its processor was taken.
    pub owed: Time,
    /// The number of the processor that it belongs to, if it is bound: modulo their number, of the machine's
    /// (`home`) and of the partition's.
    pub place: usize,
    pub home: usize,
    pub last_processor: usize,
    /// For its next quantum.
    pub debit: Time,
    /// Processor time used, and more if it slept: what wake-ups compare.
    pub virtual_time: Time,
    pub registered: bool,
    pub stamp: u32,
    pub priority: Priority,
    pub wish: Wish,
    pub warning: bool,
    /// What the kernel tells, what it told before, and since when.
    pub hint: RunState,
    pub hint_before: RunState,
    pub hint_since: Time,
    /// The class that it is counted under among the preempted.
    pub counted: Option<Priority>,
    /// What it sleeps on, which sleep it is, and how it ended.
    pub sleeps_on: usize,
    pub sleep: u64,
    pub woken: Wait,
    /// Its program is told what becomes of it; if it sleeps, is that a page fault?
    pub listened: bool,
    pub faults: bool,
    /// The line that it has asked for.
    pub asks: Asks,
    pub random: Pcg64Mcg,
    pub on_since: Time,
    pub cpu: Time,
    pub finished: Time,
    pub work: Time,
    pub sections: u64,
    pub waited: Time,
    pub longest_wait: Time,
    pub preemptions: u64,
    pub sleeps: u64,
    pub yields: u64,
    pub migrations: u64,
    pub spinner: Spinner,
}

impl Thread {
    /// A thread that has not begun. Its random numbers follow from the machine's seed and its number.
    pub fn new(app: usize, index: usize, home: usize, seed: u64, number: usize) -> Self {
        Self {
            app,
            index,
            state: State::Ready,
            body: None,
            yielder: ptr::null(),
            stack_base: 0,
            owed: 0,
            place: index,
            home,
            last_processor: NOBODY,
            debit: 0,
            virtual_time: 0,
            registered: false,
            stamp: 0,
            priority: Priority::Running,
            wish: Wish::Preemptable,
            warning: false,
            hint: RunState::Unknown,
            hint_before: RunState::Unknown,
            hint_since: 0,
            counted: None,
            sleeps_on: 0,
            sleep: 0,
            woken: Wait::Woken,
            listened: false,
            faults: false,
            asks: Asks::Nothing,
            random: Pcg64Mcg::seed_from_u64(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            on_since: 0,
            cpu: 0,
            finished: 0,
            work: 0,
            sections: 0,
            waited: 0,
            longest_wait: 0,
            preemptions: 0,
            sleeps: 0,
            yields: 0,
            migrations: 0,
            spinner: Spinner::default(),
        }
    }
}
