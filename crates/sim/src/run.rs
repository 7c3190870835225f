// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the machine runs: coroutines in the order of virtual time.
//!
//! Each processor has a clock of its own. A thread goes on without a switch of coroutines for as long as
//! its processor's clock is before the next event of anybody else (`limit`): until then nobody can see or
//! do anything that concerns it. At a shared access past the limit it steps back, and whoever is earliest
//! goes on. So accesses happen in the order of virtual time, ties in the order of processor numbers, and
//! nothing depends on the host.

use corosensei::CoroutineResult;

use crate::engine::{Engine, suspend, sync};
use crate::memory::{Kind, LineId, Time};
use crate::thread::{Body, NOBODY, Reason};
use crate::tree::NEVER;

/// The time of a shared access by the running thread. Not inlined, so that nothing of it stays on the stack
/// of who calls: see [`crate::spin`].
///
/// # Safety
/// `this` is the current machine.
#[inline(never)]
pub(crate) unsafe fn access(this: *mut Engine, address: usize, kind: Kind) {
    // SAFETY: as the caller promises.
    unsafe {
        let it = &mut *this;
        if it.current == NOBODY {
            return;
        }
        let line = it.memory.line(address);
        touch(this, line, kind);
    }
}

/// A shared access to a line of the arena.
///
/// # Safety
/// As for [`suspend`].
#[inline(always)]
pub(crate) unsafe fn touch(this: *mut Engine, line: LineId, kind: Kind) {
    // SAFETY: as the caller promises.
    unsafe {
        sync(this);
        while (*this).memory.is_watched(line) && (&mut *this).unpark_watchers(line, kind) {
            // They go first, up to this moment.
            suspend(this, Reason::Late);
        }
        let it = &mut *this;
        let hit = it.memory.hits(it.processor, line, kind);
        it.now = it.memory.access(it.processor, line, kind, it.now);
        it.threads[it.current].spinner.saw(line, kind, hit);
    }
}

/// What the access was about and what came of it; part of what a spinner does in a turn.
///
/// # Safety
/// `this` is the current machine.
#[inline(always)]
pub(crate) unsafe fn note(this: *mut Engine, address: usize, value: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        let it = &mut *this;
        if it.current != NOBODY {
            it.threads[it.current].spinner.note(address, value);
        }
    }
}

/// Runs the machine until its threads are done, or cannot go on, or the time is over.
///
/// # Safety
/// `this` is the current machine, and nobody else uses it.
pub(crate) unsafe fn run(this: *mut Engine) {
    // SAFETY: each reference ends before a coroutine is resumed, which uses the machine through the same
    // pointer.
    unsafe {
        (*this).boot();
        loop {
            let it = &mut *this;
            if it.waiting.live == 0 || it.tally.over.is_some() || it.tally.failure.is_some() {
                break;
            }
            let (time, processor) = it.tree.first();
            let timer = it.timers.next().unwrap_or(NEVER);
            if time.min(timer) >= it.rules.cap {
                it.tally.capped = true;
                it.tally.end = it.rules.cap;
                break;
            }
            if timer <= time {
                let (time, timer) = it.timers.pop().expect("just seen");
                it.fire(timer, time);
                continue;
            }
            if it.processors[processor].quantum_end <= it.processors[processor].resume {
                it.quantum_over(processor, time);
                continue;
            }
            resume(this, processor, time);
        }
        (*this).close();
    }
}

/// # Safety
/// As for [`run`].
pub(crate) unsafe fn resume(this: *mut Engine, processor: usize, now: Time) {
    // SAFETY: as for `run`.
    unsafe {
        let it = &mut *this;
        let thread = it.processors[processor].thread;
        it.now = now;
        it.processor = processor;
        it.current = thread;
        it.set_limit();
        it.tally.resumes += 1;
        let body: *mut Body = it.threads[thread].body.as_mut().expect("a running thread has a body");
        // No thread is added while one runs, so that its body stays where it is.
        let result = (*body).resume(());
        let it = &mut *this;
        let now = it.now;
        it.tally.end = it.tally.end.max(now);
        it.current = NOBODY;
        match result {
            CoroutineResult::Yield(reason) => match reason {
                Reason::Late => {
                    it.processors[processor].resume = now;
                    it.schedule(processor);
                }
                Reason::Asleep => it.put_to_sleep(processor, now),
                Reason::Yields => it.yield_processor(processor, now),
                Reason::HandsOff => it.hand_over(processor, now),
                Reason::Spins => it.park(processor, now),
                Reason::Stalls => it.stalls(processor),
            },
            CoroutineResult::Return(()) => {
                if let Some(body) = it.threads[thread].body.take() {
                    body.into_stack().give_back();
                }
                it.finish(processor, now);
            }
        }
    }
}
