// SPDX-License-Identifier: MIT OR Apache-2.0
//! The privileged view: an eBPF program on `sched_switch` writes each thread's run state into the arena itself, and counts the
//! preempted ones by priority. The program is the `bpf` crate's. Who may loads it, behind this crate's feature `bpf`; others inherit it
//! ([`inherited`]) or are lent it by the processor server ([`crate::server::observe`]), in any build.
//!
//! Threads enrol with one system call on a descriptor that must stay open. Two things tell that a program has closed it (daemons close all
//! they inherited): enrolment fails, or a thread that obviously runs reads in its own block that it does not,
//! because with the last descriptor the observation has ended, and cannot enrol again. Then the registry goes over to perf. (If it
//! can, a switch was missed, and all is well again.) What froze meanwhile was a hint. A server's observer ends with the server, and enrolment goes on
//! to succeed; that it has ended is read from the server's life ([`observes`]).
//! The registry asks the next server (`registry/successor.rs`).

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use platform::{RunState, ke1};

use super::{Attached, Slot, Source};
use crate::server;

/// The view: see the module.
pub struct Bpf;

impl Source for Bpf {
    fn attach(slot: Slot) -> Attached {
        // Before the kernel begins to write: this thread runs.
        ke1::set_run_state(&slot.block.state, RunState::Running);
        let enrolment = bpf::Enrolment::from_number(slot.enrolment);
        let attached = observes() && enrolment.attach(slot.id.0, slot.block.lease.load(Relaxed));
        if attached { Attached::Yes } else { Attached::Never }
    }

    fn detach(slot: Slot) {
        bpf::Enrolment::from_number(slot.enrolment).detach();
    }

    fn switches(slot: Slot) -> u32 {
        let block = slot.block;
        block.preemptions.load(Relaxed).wrapping_add(block.blocks.load(Relaxed)) as u32
    }

    #[inline(always)]
    fn run_state(slot: Slot) -> RunState {
        slot.block.run_state()
    }
}

/// The observer that the environment names, if it is there. Inlined, as each start asks ([`crate::inherit`]).
#[inline(always)]
pub fn inherited() -> Option<bpf::Observer> {
    let handle =
        server::variable(abi::environment::OBSERVER, |text| core::str::from_utf8(text).ok()?.parse().ok())?;
    bpf::Observer::take_over(handle).ok()
}

/// The life of the server whose observer this process has; null: the observer is its own.
static LIFE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// From now on the observer is that of the server whose life this is.
pub fn lives_with(life: &'static AtomicU32) {
    // ORDER: Release, pairs with the Acquire in `observes`.
    LIFE.store(core::ptr::from_ref(life).cast_mut(), Release);
}

/// The next server's life takes the place of that of the one that has ended.
pub fn lives_again(life: &'static AtomicU32) {
    let now = LIFE.load(Relaxed);
    // SAFETY: both are pages of ours; the new one is known here alone.
    if !now.is_null() && !unsafe { server::replace_page(now, life) } {
        lives_with(life);
    }
}

/// False if the observer is a server's that has ended.
#[inline]
pub fn observes() -> bool {
    // ORDER: Acquire, pairs with `lives_with`.
    let life = LIFE.load(Acquire);
    // SAFETY: null, or mapped for good.
    unsafe { life.as_ref() }.is_none_or(|word| abi::server::lives(word.load(Relaxed)))
}
