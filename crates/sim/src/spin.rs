// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spinners are passed over, exactly.
//!
//! A turn of a spin loop is what a thread does from the first pause behind a shared access to the next such
//! pause. A thread that spins does the same again and again until somebody writes what it reads. The
//! simulator finds out that it does: if between three turns in a row the thread has made the same accesses
//! with the same values, all of them answered by its own cache, in the same time, has asked the machine
//! nothing else (no clock, no hint about others), and if its registers and its stack are byte for byte the
//! same at the end of two, then the next turn is the last one again. Such a thread is *parked*: it takes no
//! part until
//!
//! - somebody else is about to touch a line that it writes, or to write a line that it reads,
//! - its quantum is over and somebody wants the processor, or the partition changes.
//!
//! Then it is put to the last pause at or before that moment, which is a whole number of turns later, and
//! goes on from there before the other access happens. The results are the same as if it had run all the
//! time; the unit tests compare.
//!
//! A thread that counts its turns (to sleep after a while, or to look at a hint each 64th) has another
//! stack each time and is not passed over. What a thread keeps neither on its stack nor in shared words,
//! but writes in a spin loop, would be missed; no algorithm of the catalogue does.

use crate::engine::{Engine, suspend};
use crate::memory::{Kind, LineId, Time};
use crate::thread::Reason;
use crate::tree::NEVER;

/// Turns alike before the stack is looked at.
const ALIKE: u32 = 2;

/// A turn of a spin loop ends. `state` is where the caller's registers and stack begin.
///
/// # Safety
/// `this` is the current machine, a thread of its runs, and `state` is on its stack.
unsafe fn turn(this: *mut Engine, state: *const u64) {
    // SAFETY: as the caller promises.
    unsafe {
        let it = &mut *this;
        it.now += it.rules.costs.pause;
        let now = it.now;
        let thread = &mut it.threads[it.current];
        let spinner = &mut thread.spinner;
        if spinner.accesses == 0 && !spinner.strange {
            // More pauses of the same turn.
            return;
        }
        let period = now - spinner.last;
        if spinner.strange
            || spinner.count == 0
            || spinner.trace != spinner.before
            || period != spinner.period
        {
            spinner.turns = 0;
            spinner.seen = false;
            spinner.patience = ALIKE;
            spinner.period = period;
            spinner.begin(now);
            return;
        }
        spinner.turns += 1;
        if spinner.turns < spinner.patience || state.is_null() || !it.rules.setting.pass_over {
            spinner.begin(now);
            return;
        }
        let words = (thread.stack_base - state.addr()) / 8;
        // SAFETY: from the stack pointer of the caller to the base of its stack.
        let stack = std::slice::from_raw_parts(state, words);
        if !spinner.seen || spinner.snapshot != stack {
            if spinner.seen {
                // It counts.
                spinner.patience = spinner.turns.saturating_mul(4);
            }
            spinner.seen = !spinner.seen;
            spinner.snapshot.clear();
            spinner.snapshot.extend_from_slice(stack);
            spinner.begin(now);
            return;
        }
        let holds = |&(line, writes): &(LineId, bool)| {
            it.memory.hits(it.processor, line, if writes { Kind::Store } else { Kind::Load })
        };
        if !spinner.lines[..spinner.count].iter().all(holds) {
            // Somebody has written what it read; it will see that in its next turn.
            spinner.turns = 0;
            spinner.begin(now);
            return;
        }
        suspend(this, Reason::Spins);
        let it = &mut *this;
        let now = it.now;
        let spinner = &mut it.threads[it.current].spinner;
        spinner.turns = 0;
        spinner.seen = false;
        spinner.begin(now);
    }
}

impl Engine {
    /// The thread of this processor is passed over from now on.
    pub(crate) fn park(&mut self, processor: usize, now: Time) {
        let thread = self.processors[processor].thread;
        let spinner = &mut self.threads[thread].spinner;
        spinner.parked = true;
        spinner.last = now;
        for &(line, _) in &spinner.lines[..spinner.count] {
            self.memory.watch(line);
        }
        self.parked.push(thread);
        self.processors[processor].resume = NEVER;
        self.schedule(processor);
    }

    /// Puts a parked thread to its last pause until now. True if it has something to do before `now`.
    pub(crate) fn unpark(&mut self, thread: usize, now: Time) -> bool {
        let it = &mut self.threads[thread];
        let spinner = &mut it.spinner;
        if !spinner.parked {
            return false;
        }
        spinner.parked = false;
        let turns = now.saturating_sub(spinner.last) / spinner.period;
        let resume = spinner.last + turns * spinner.period;
        self.tally.skipped += turns * spinner.accesses;
        self.memory.traffic.hits += turns * spinner.accesses;
        for &(line, _) in &spinner.lines[..spinner.count] {
            self.memory.unwatch(line);
        }
        let place = self.parked.iter().position(|&other| other == thread).expect("parked");
        self.parked.swap_remove(place);
        let processor = it.last_processor;
        self.processors[processor].resume = resume;
        self.schedule(processor);
        resume < now
    }

    /// The running thread is about to touch this line. True if somebody has something to do before that.
    #[cold]
    #[inline(never)]
    pub(crate) fn unpark_watchers(&mut self, line: LineId, kind: Kind) -> bool {
        let mut earlier = false;
        let mut at = 0;
        while at < self.parked.len() {
            let thread = self.parked[at];
            let spinner = &self.threads[thread].spinner;
            let concerned = spinner.lines[..spinner.count]
                .iter()
                .any(|&(watched, writes)| watched == line && (writes || kind != Kind::Load));
            if !concerned {
                at += 1;
                continue;
            }
            self.unpark(thread, self.now);
            let processor = self.threads[thread].last_processor;
            earlier |= (self.processors[processor].resume, processor) < (self.now, self.processor);
        }
        self.set_limit();
        earlier
    }
}

/// One turn of a spin loop of the running thread.
///
/// # Safety
/// `this` is the current machine, and a thread of its runs.
#[inline(always)]
pub(crate) unsafe fn pause(this: *mut Engine) {
    // SAFETY: as the caller promises.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        with_state(this)
    }
    // SAFETY: as the caller promises. Without registers to compare nobody is passed over, which changes no
    // result.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        turn(this, std::ptr::null())
    }
}

/// Calls [`turn_of`] with the address of the registers that a function must keep, behind which the caller's
/// stack begins.
///
/// # Safety
/// As for [`pause`].
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "sysv64" fn with_state(this: *mut Engine) {
    core::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rsi, rsp",
        "sub rsp, 8",
        "call {turn}",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        turn = sym turn_of,
    )
}

/// # Safety
/// As for [`turn`].
#[cfg(target_arch = "x86_64")]
unsafe extern "sysv64" fn turn_of(this: *mut Engine, state: *const u64) {
    // SAFETY: as the caller promises.
    unsafe { turn(this, state) }
}
