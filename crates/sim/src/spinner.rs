// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread did since its last pause, by which [`crate::spin`] sees that it only spins.

use crate::memory::{Kind, LineId, Time};

/// Lines that a spinner may look at.
const LINES: usize = 6;

#[derive(Default)]
pub(crate) struct Spinner {
    /// What happened since the last pause.
    pub trace: u64,
    pub before: u64,
    pub strange: bool,
    pub lines: [(LineId, bool); LINES],
    pub count: usize,
    pub accesses: u64,
    /// Turns alike in a row, and from which number on the stack is looked at: later and later, if in vain.
    pub turns: u32,
    pub patience: u32,
    /// When the last turn ended, and how long it took.
    pub last: Time,
    pub period: Time,
    /// Registers and stack at the last pause.
    pub snapshot: Vec<u64>,
    pub seen: bool,
    pub parked: bool,
}

impl Spinner {
    #[inline(always)]
    pub fn saw(&mut self, line: LineId, kind: Kind, hit: bool) {
        self.accesses += 1;
        if !hit {
            self.strange = true;
            return;
        }
        let writes = kind != Kind::Load;
        for at in &mut self.lines[..self.count] {
            if at.0 == line {
                at.1 |= writes;
                return;
            }
        }
        if self.count == LINES {
            self.strange = true;
            return;
        }
        self.lines[self.count] = (line, writes);
        self.count += 1;
    }

    #[inline(always)]
    pub fn note(&mut self, address: usize, value: u64) {
        self.trace =
            (self.trace.rotate_left(23) ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value;
    }

    /// Something happened that may be different the next time.
    #[inline(always)]
    pub fn disturb(&mut self) {
        self.strange = true;
    }

    pub fn begin(&mut self, now: Time) {
        (self.before, self.trace) = (self.trace, 0);
        self.strange = false;
        self.count = 0;
        self.accesses = 0;
        self.last = now;
    }
}
