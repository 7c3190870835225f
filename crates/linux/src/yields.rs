// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `sched_yield` of a program that waits by it, in a loop.
//!
//! Such a loop hopes that the processor goes to the thread that it waits for. Beside another program in the
//! same scheduling group, the kernel often gives a time slice to that program. The waiter then comes back
//! slices late, for each of its waits. In another group (a cgroup, or a session of its own) a yield reaches
//! only threads of the program, and returns at once where there are none. No number of the kernel tells the
//! two apart, so each thread measures what its own yields cost.
//!
//! **State**, a thread's own: how many short yields there were since the last long one, a score, and until
//! when no yield is made.
//!
//! **Protocol.**
//! - Y1: before `until` a yield returns at once. The waiter spins in the slice that is its own.
//! - Y2: else the yield is made, and timed. Below a part of a slice it is short. [`FEW`] of them, one after
//!   the other, reach nobody: the score is 0 again.
//! - Y3: a long one after fewer is *given away* if the program's threads together ran for less than half of
//!   it. It adds 1 to the score. Any other long one takes 2.
//! - Y4: the score comes to [`BELIEVED`] only by a yield in which other threads of the program ran for a
//!   while. Where none does, the thread waits for another program, as a process of MPI may. From that score
//!   on, a yield that is given away sets `until` as much later as it took, but at most [`MOST_SLICES`].
//!
//! So yields stop where more than two of three long ones go to other programs. The thread then has the
//! processor for as long as it gave it away: half each, as the kernel shares between two.
//!
//! **Under the scheduler.** A thread that spins is preempted at the end of its slice, so one that it waits
//! for runs then. Yields of real-time threads are always made: there they have a meaning that programs rely
//! on. HINT: all of this may be wrong. A yield too few costs a slice, and one too many as much.
//! A thread that becomes a real-time one may lack some yields at first. Processor time of threads that run on
//! other processors is some ms late.
//!
//! **Rejected**, and what was measured: `docs/design/yield.md`.

use crate::{Linux, futex, host, slice};
use platform::Platform;

/// BOUND: the part of a slice from which on a yield is long: 0.5 ms of 3. One that nobody takes needs 450 ns,
/// and one that others of the program take some us if they wait, too.
const LONG_PART: u64 = 6;
/// BOUND: short yields between two long ones: 0.5 to 1.5 beside a program of the same group, 900 and more
/// beside one of another group.
const FEW: u32 = 16;
/// BOUND: the part of a yield that other threads of the program run for, if there are any that do: 23 us of 3
/// ms. The thread itself needs one us.
const LITTLE_PART: u64 = 128;
/// A long yield that is not given away takes so much from the score.
const OTHERWISE: u32 = 2;
/// BOUND: so many more slices go to other programs before the yields stop.
const BELIEVED: u32 = 5;
/// BOUND: so many long ones that are not given away bring every score below [`BELIEVED`].
const MOST: u32 = 2 * BELIEVED;
/// BOUND: slices without a yield, since the program may have been stopped meanwhile.
const MOST_SLICES: u64 = 16;

/// What a thread knows of its yields. In another thread's first it is all 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct Yields {
    until_ns: u64,
    short: u32,
    score: u32,
}

impl Yields {
    /// Y1: is a yield at this time left out?
    fn stopped(self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// Y3: could the next one be given away?
    fn few(self) -> bool {
        self.short < FEW
    }

    /// Y2 to Y4: a yield took so long until `end_ns`. `ran_ns` is what all threads of the program ran
    /// meanwhile, told if [`Yields::few`].
    fn made(self, end_ns: u64, took_ns: u64, ran_ns: Option<u64>) -> Self {
        if took_ns < long_ns() {
            let short = (self.short + 1).min(FEW);
            return Self { short, score: if short < FEW { self.score } else { 0 }, ..self };
        }
        if ran_ns.is_none_or(|ran| ran >= took_ns / 2) {
            return Self { short: 0, score: self.score.saturating_sub(OTHERWISE), ..self };
        }
        let alone = ran_ns.is_none_or(|ran| ran < took_ns / LITTLE_PART);
        let most = if alone && self.score < BELIEVED { BELIEVED - 1 } else { MOST };
        let score = (self.score + 1).min(most);
        let most = MOST_SLICES * Linux::costs().slice;
        let until_ns = if score < BELIEVED { self.until_ns } else { end_ns + took_ns.min(most) };
        Self { until_ns, short: 0, score }
    }
}

/// `sched_yield`, but where other programs would take what it gives: see the module.
pub fn yield_informed() {
    // A fiber's goes to other fibers.
    if Linux::hands_off() || host::here().is_some() || slice::owes() {
        return Linux::yield_now();
    }
    let (mine, start) = (own::get(), futex::now_ns());
    if mine.stopped(start) {
        return Linux::pause();
    }
    let ran = mine.few().then(futex::cpu_ns);
    Linux::yield_now();
    let end = futex::now_ns();
    let took = end.saturating_sub(start);
    // What they ran is asked again only after a long one.
    let ran = ran.filter(|_| took >= long_ns()).map(|before| futex::cpu_ns().saturating_sub(before));
    let next = mine.made(end, took, ran);
    if next.until_ns == mine.until_ns || is_ordinary() {
        own::set(next);
    }
}

/// A yield that took so long gave a slice, or a part of one.
fn long_ns() -> u64 {
    Linux::costs().slice / LONG_PART
}

/// Is the calling thread no real-time thread?
fn is_ordinary() -> bool {
    let _errno = futex::Errno::save();
    // SAFETY: no arguments but a number. 0 is the calling thread.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) } as i32;
    // A reset of the policy in children is told in a bit above.
    matches!(policy & 0xff, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE)
}

#[cfg(target_arch = "x86_64")]
mod own {
    use super::Yields;
    use crate::{own_asm, own_variable};

    own_variable!("wakeful_yields", size 16, align 3);

    fn place() -> *mut Yields {
        let at: *mut Yields;
        // SAFETY: gives the address of this thread's own variable: the word at fs:0 is the thread pointer.
        unsafe {
            own_asm!("wakeful_yields", "add {a}, qword ptr fs:[0]\n mov {at}, {a}",
                at = lateout(reg) at, options(nostack, readonly));
        }
        at
    }

    /// HINT: a signal handler that yields meanwhile may tear it.
    pub fn get() -> Yields {
        // SAFETY: this thread's own, zeros at first, of that size and alignment; any value is one.
        unsafe { place().read() }
    }

    pub fn set(yields: Yields) {
        // SAFETY: as in `get`.
        unsafe { place().write(yields) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod own {
    use super::Yields;
    use core::cell::Cell;

    std::thread_local! {
        static YIELDS: Cell<Yields> = const { Cell::new(Yields { until_ns: 0, short: 0, score: 0 }) };
    }

    pub fn get() -> Yields {
        YIELDS.with(Cell::get)
    }

    pub fn set(yields: Yields) {
        YIELDS.with(|place| place.set(yields));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 3_000_000;
    /// What the program's other threads run meanwhile.
    const RAN: u64 = SLICE / 4;

    /// A long yield that ends at this time, in which the program ran for so long.
    fn long(yields: Yields, end: u64, ran: u64) -> Yields {
        yields.made(end, SLICE, yields.few().then_some(ran))
    }

    fn short(yields: Yields, count: u32) -> Yields {
        (0..count).fold(yields, |yields, _| yields.made(0, 450, yields.few().then_some(450)))
    }

    #[test]
    fn those_given_away_stop_for_as_long() {
        let mut yields = Yields::default();
        for end in 1..BELIEVED as u64 {
            yields = short(long(yields, end, RAN), 2);
            assert!(!yields.stopped(end), "{end} is not enough");
        }
        yields = long(yields, 50 * SLICE, RAN);
        assert!(yields.stopped(50 * SLICE) && yields.stopped(51 * SLICE - 1));
        assert!(!yields.stopped(51 * SLICE), "then one is made");
        assert!(long(yields, 60 * SLICE, RAN).stopped(60 * SLICE), "and stops them again");
        // Somebody stopped the program for ten seconds.
        let after = yields.made(0, 10_000_000_000, Some(1_000_000_000));
        assert!(!after.stopped((MOST_SLICES + 1) * SLICE));
    }

    #[test]
    fn what_the_program_itself_takes_is_not_given_away() {
        let yields = (0..100).fold(Yields::default(), |yields, end| long(yields, end * SLICE, SLICE / 2));
        assert_eq!(yields, Yields::default());
    }

    #[test]
    fn who_waits_for_another_program_yields() {
        let yields = (0..100).fold(Yields::default(), |yields, end| long(yields, end * SLICE, 1_000));
        assert!(yields.until_ns == 0 && yields.score < BELIEVED);
        assert!(long(yields, 100 * SLICE, RAN).stopped(100 * SLICE), "not if one of its own runs");
    }

    #[test]
    fn a_program_of_another_group_takes_no_yield() {
        let after = |yields, end| short(long(yields, end, RAN), FEW);
        let yields = (0..100).fold(short(Yields::default(), FEW), after);
        assert_eq!(yields, short(Yields::default(), FEW));
    }

    #[test]
    fn two_of_three_are_not_enough() {
        let three = |yields, _| {
            (0..3).fold(yields, |yields, turn| long(yields, 1, if turn == 2 { SLICE } else { RAN }))
        };
        assert_eq!((0..100).fold(Yields::default(), three).until_ns, 0);
    }

    #[test]
    fn it_ends_with_the_load() {
        let mut yields = (1..100).fold(Yields::default(), |yields, end| long(yields, end * SLICE, RAN));
        assert_eq!(yields.score, MOST);
        yields = short(yields, FEW);
        for turn in 1..BELIEVED as u64 {
            yields = long(yields, (200 + turn) * SLICE, RAN);
            assert!(!yields.stopped((200 + turn) * SLICE), "{turn} is not enough again");
        }
    }

    #[test]
    fn each_thread_has_its_own() {
        let mine = Yields { until_ns: 7, short: 5, score: 3 };
        own::set(mine);
        std::thread::spawn(|| assert_eq!(own::get(), Yields::default())).join().unwrap();
        assert_eq!(own::get(), mine);
        own::set(Yields::default());
        assert!(is_ordinary());
    }
}
