// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine's moves cost: the five facts from which the algorithms derive how long they wait.
//!
//! A waiter chooses between spinning, yielding and sleeping. Each choice has a price, and the price is the
//! machine's, not the lock's. So an algorithm holds no time of its own. It says "as long as a sleep and a
//! wake-up cost" ([`Costs::sleep`]), and the platform says how long that is: on Linux by a table of two
//! kinds of machine, in the simulator by the machine's description.
//!
//! Why a table, when a program could measure? A thread alone can time a pause, a clock and a yield. It
//! cannot time a line's transfer, a wake-up or a slice without a partner on another processor, and a
//! measurement beside foreign load would change what the locks do from one run to the next.

/// What a machine's moves cost, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A cache line's way to another processor and back.
    pub line: u64,
    /// A processor goes from one thread to another: the papers' SWITCH_TIME (TR 1994, section 4).
    pub switch: u64,
    /// A thread falls asleep and is woken, system calls and switches included, while the processors stay
    /// awake. A waiter that spins for so long and then sleeps never pays more than twice the best (Karlin,
    /// Li, Manasse, Owicki, SOSP 1991).
    pub sleep: u64,
    /// The same where the processor had nothing else to do: it goes idle, and must be woken first.
    pub idle: u64,
    /// How long a thread keeps its processor while others want it.
    pub slice: u64,
}

impl Costs {
    /// A virtual machine, where an idle processor is the host's: it halts, which leaves the guest, and an
    /// interrupt brings it back.
    ///
    /// Measured on two virtual processors of three hosts (Xeon 2.6 GHz, two EPYCs; Linux 6.18, November
    /// 2026): a line's way there and back 120 to 150 ns, a switch 1 us, a sleep and a wake-up 5 to 15 us,
    /// from idle 40 to 50 us, and slices of 3 ms.
    pub const VIRTUAL: Self =
        Self { line: 130, switch: 1_000, sleep: 10_000, idle: 50_000, slice: 3_000_000 };

    /// A machine of one's own. An idle processor wakes by an interrupt, from C1 in 2 us and from C6 in 133
    /// us (Linux's table for Skylake servers, `intel_idle.c`); a processor that was busy a moment ago is in
    /// C1. ASSUMED: no such machine was at hand.
    pub const BARE: Self = Self { line: 130, switch: 1_500, sleep: 5_000, idle: 20_000, slice: 3_000_000 };
}
