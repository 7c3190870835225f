// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program whose server has ended comes back to the observer of the next one.
//!
//! A thread that looks at the number of processors comes by here: in a slow path, once a second at most,
//! and maybe inside `malloc`. So all that is done here is system calls and atomics.
//!
//! The new arena takes the place of the old one, at its address, in one step. Nothing that a lock waits for
//! is in it (I6), so threads that stand in queues do not notice. What it says of wishes and priorities is
//! copied. A change that is made meanwhile is lost, and was a hint.

use core::sync::atomic::{AtomicU32, Ordering::*};

use abi::{RunState, Thread, View};

use super::space::{ARENA_AT, Registry, live, observed_by};
use crate::signals::{NoSignals, Uncancelled};
use crate::view::bpf as lent;
use crate::{futex, memory, processors, server};

/// BOUND: looks, of a second each, until a server that did not help is asked again; it doubles up to this.
const MOST_PASSED: u32 = 32;

/// Of the looks that are passed over: those still to come, and how many there were the last time.
static TO_PASS: AtomicU32 = AtomicU32::new(0);
static PASSED: AtomicU32 = AtomicU32::new(0);

/// The process of which a thread is in [`come_back`]; 0: none. As for `processors::Room`.
static COMING: AtomicU32 = AtomicU32::new(0);

/// Goes over to the observer of the server that there is now, if the server that lent ours has ended.
#[inline]
pub fn come_back() {
    if !lent::observes() {
        orphaned();
    }
}

#[cold]
#[inline(never)]
fn orphaned() {
    let Some(registry) = live() else { return };
    let _errno = futex::Errno::save();
    // Else the socket, for a moment, would be what the program writes to.
    if !processors::standard_descriptors_are_open() {
        return;
    }
    let _signals = NoSignals::new();
    let _uncancelled = Uncancelled::new();
    // SAFETY: no arguments.
    let process = unsafe { libc::syscall(libc::SYS_getpid) } as u32;
    let coming = COMING.load(Relaxed);
    // ORDER: Acquire, pairs with the Release below; the last one is done.
    if coming == process || COMING.compare_exchange(coming, process, Acquire, Relaxed).is_err() {
        return;
    }
    if !lent::observes() {
        let chosen = registry.chosen();
        if chosen.view() == View::Bpf {
            // Nobody has noticed yet.
            registry.lose(chosen);
        }
        registry.ask_successor();
    }
    // ORDER: Release, pairs with the Acquire above.
    COMING.store(0, Release);
}

impl Registry {
    fn ask_successor(&self) {
        let to_pass = TO_PASS.load(Relaxed);
        if to_pass > 0 {
            TO_PASS.store(to_pass - 1, Relaxed);
            return;
        }
        match server::observe_again() {
            Ok((observer, life)) => {
                if let Ok(handle) = observer.handle()
                    && self.take_over(&observer).is_some()
                {
                    observed_by(handle);
                    observer.keep_mapped();
                    lent::lives_again(life);
                    self.local().enrolment.store(handle.enrolment().number(), Relaxed);
                    self.head(View::Bpf);
                    self.change_epoch();
                }
                PASSED.store(0, Relaxed);
            }
            // These cost some microseconds, and it may be there in the next moment. Where systemd holds the
            // socket, it is there before the server: then the answer comes late, and that is `Io`.
            Err(server::Error::NoServer | server::Error::Refused(server::Refusal::Later, _)) => {}
            Err(_) => {
                let pass = (PASSED.load(Relaxed) * 2).clamp(1, MOST_PASSED);
                PASSED.store(pass, Relaxed);
                TO_PASS.store(pass, Relaxed);
            }
        }
    }

    /// Puts the observer's arena in the place of the old one.
    fn take_over(&self, observer: &bpf::Observer) -> Option<()> {
        // SAFETY: null asks for a place of its own.
        let fresh = unsafe { observer.map(core::ptr::null_mut()) }.ok()?;
        // SAFETY: the blocks follow the header; zeros are valid ones, of atomics.
        let blocks = unsafe { fresh.add(1).cast::<[Thread; abi::MAX_THREADS]>().as_ref() };
        for id in self.ids() {
            let (new, old) = (&blocks[id.0 as usize], self.thread(id));
            new.tid.store(old.tid.load(Relaxed), Relaxed);
            new.state.store(abi::state::new(RunState::Unknown, old.wish()), Relaxed);
            new.priority.store(old.priority.load(Relaxed), Relaxed);
        }
        // SAFETY: the arena's place in a space that stays; other threads use atomics there, before and after.
        let moved = unsafe {
            memory::replace(self.start.as_ptr().add(ARENA_AT).cast(), fresh.as_ptr().cast(), bpf::ARENA_SIZE)
        };
        if !moved {
            // SAFETY: ours, and nobody has seen it.
            unsafe { memory::unmap(fresh.as_ptr().cast(), bpf::ARENA_SIZE) };
            return None;
        }
        // Of threads that came or went between the copy and the move.
        for id in self.ids() {
            self.thread(id).tid.store(self.own(id).tid.load(Relaxed), Relaxed);
        }
        Some(())
    }
}
