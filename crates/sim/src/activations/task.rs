// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads do, and which threads.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use crate::platform::{clock_ns, fail, passed, vary, work_ns};
use crate::upcall::{block_ns, ready};

/// What runs the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Kernel threads, so many a processor, each of which takes a task after the other.
    Kernel {
        /// Threads a processor.
        each: u32,
    },
    /// Fibers on activations.
    Fibers {
        /// Sentinels: kernel threads that stand ready for an upcall.
        posts: u32,
        /// Does a new sentinel look at all carriers where there are few seats? That of `fiber` does.
        looks: bool,
    },
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Table I: forks and joins a thread with nothing to do, so many times.
    NullFork,
    /// Table I: two threads signal each other and wait, so many times together.
    SignalWait,
    /// Tasks that compute and are then kept by the kernel.
    Tasks {
        /// How long each computes.
        compute_ns: f64,
        /// How long the kernel keeps it.
        kept_ns: f64,
        /// By a page fault, or else by a system call.
        faults: bool,
    },
}

/// A task. Nobody looks into it but who runs it.
pub(super) struct Task {
    compute_ns: f64,
    kept_ns: f64,
    faults: bool,
    done: Cell<bool>,
}

/// BOUND: pieces of a task's computation, so that the work in a window is known to a piece.
const PIECES: u32 = 8;

impl Task {
    pub fn new(compute_ns: f64, kept_ns: f64, faults: bool) -> Self {
        Self { compute_ns, kept_ns, faults, done: Cell::new(false) }
    }

    /// By the thread that was given it, which says nothing to anybody.
    pub fn run(&self, by: f64) {
        if self.done.replace(true) {
            fail("a task runs twice".into());
        }
        ready(-1);
        let piece = self.compute_ns * vary(by) / f64::from(PIECES);
        (0..PIECES).for_each(|_| compute(piece));
        if self.kept_ns > 0.0 {
            block_ns(self.kept_ns * vary(by), self.faults);
        }
        passed(0.0);
    }
}

/// A piece of work, at whose end others are looked at.
fn compute(ns: f64) {
    work_ns(ns);
    clock_ns();
}
