// SPDX-License-Identifier: MIT OR Apache-2.0
//! The privileged view: an eBPF program on `sched_switch` writes each thread's run state into the arena itself, and counts the
//! preempted ones by priority. The program and its loader are the `bpf` crate, behind this crate's feature `bpf`.
//!
//! Threads enrol with one system call on a descriptor that must stay open. Two things tell that a program has closed it (daemons close all
//! they inherited): enrolment fails, or a thread that obviously runs reads in its own block that it does not,
//! because with the last descriptor the observation has ended, and cannot enrol again. Then the registry goes over to perf. (If it
//! can, a switch was missed, and all is well again.) What froze meanwhile was a hint.

use core::sync::atomic::Ordering::*;
use platform::RunState;

use super::{Attached, Slot, Source};

/// The view: see the module.
pub struct Bpf;

impl Source for Bpf {
    #[cfg(feature = "bpf")]
    fn attach(slot: Slot) -> Attached {
        // Before the kernel begins to write: this thread runs.
        slot.block.run_state.store(RunState::Running as u32, Relaxed);
        let enrolment = bpf::Enrolment::from_number(slot.enrolment);
        if enrolment.attach(slot.id.0, slot.block.lease.load(Relaxed)) { Attached::Yes } else { Attached::Never }
    }

    #[cfg(not(feature = "bpf"))]
    fn attach(_: Slot) -> Attached {
        Attached::Never
    }

    fn detach(_slot: Slot) {
        #[cfg(feature = "bpf")]
        bpf::Enrolment::from_number(_slot.enrolment).detach();
    }

    fn switches(slot: Slot) -> u32 {
        let block = slot.block;
        block.preemptions.load(Relaxed).wrapping_add(block.blocks.load(Relaxed)) as u32
    }

    #[inline(always)]
    fn run_state(slot: Slot) -> RunState {
        RunState::from_u32(slot.block.run_state.load(Relaxed))
    }
}

/// The observer that the environment names, if it is there.
#[cfg(feature = "bpf")]
pub fn inherited() -> Option<bpf::Observer> {
    let handle = std::env::var(bpf::HANDLE_VARIABLE).ok()?.parse().ok()?;
    bpf::Observer::take_over(handle).ok()
}
