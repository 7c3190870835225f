// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping and waking: the futex system call.

use core::sync::atomic::AtomicU32;
use platform::{Clock, Deadline, Wait};

/// Puts errno back where it was: a pthread function must not change it.
pub struct Errno(i32);

impl Errno {
    /// Remembers it until dropped.
    pub fn save() -> Self {
        // SAFETY: the location is this thread's own and always valid.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as in `save`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

fn timespec(deadline: Deadline) -> libc::timespec {
    libc::timespec {
        tv_sec: (deadline.ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline.ns % 1_000_000_000) as libc::c_long,
    }
}

/// `FUTEX_WAIT_BITSET`, private, absolute.
pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
    let time = deadline.map(timespec);
    let realtime = match deadline {
        Some(Deadline { clock: Clock::Realtime, .. }) => libc::FUTEX_CLOCK_REALTIME,
        _ => 0,
    };
    // SAFETY: the word and the timespec live across the call; the other arguments are plain numbers. errno is
    // restored, because a pthread function must not change it.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | realtime,
            expected,
            time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref),
            core::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        );
        let error = *errno;
        *errno = saved;
        match error {
            _ if result == 0 => Wait::Woken,
            libc::ETIMEDOUT => Wait::TimedOut,
            libc::EINTR => Wait::Interrupted,
            _ => Wait::Changed,
        }
    }
}

/// `FUTEX_WAKE`, private. Returns how many threads it woke.
pub fn wake(word: *const AtomicU32, count: u32) -> u32 {
    // SAFETY: FUTEX_WAKE uses the address as a key and does not touch the memory; a bad address is an error result.
    // errno is restored as above.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            count.min(i32::MAX as u32),
        );
        *errno = saved;
        result.max(0) as u32
    }
}

/// Does the word hold this value? False if there is no memory any more where it was. A requeue of nobody: it
/// compares, and does nothing.
pub fn holds(word: *const u32, value: u32) -> bool {
    let nowhere = AtomicU32::new(0);
    let _errno = Errno::save();
    // SAFETY: the kernel reads the word, and a bad address is an error result. The other one is a key.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG,
            0,
            core::ptr::null::<libc::timespec>(),
            nowhere.as_ptr(),
            value,
        ) == 0
    }
}

/// Sleeps; a signal ends it early.
pub fn nap(ns: u64) {
    let time = timespec(Deadline { ns, clock: Clock::Monotonic });
    // SAFETY: the timespec lives across the call. errno is restored as above.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, &time, 0);
        *errno = saved;
    }
}

/// The system call, whatever it says, and not the C library's function: of that the interposer has another
/// one. Programs make millions of them a second, so it does without errno.
pub fn sched_yield() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it has no arguments, and the kernel changes no register but these.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") libc::SYS_sched_yield => _, out("rcx") _, out("r11") _,
            options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _errno = Errno::save();
        // SAFETY: no arguments.
        unsafe { libc::syscall(libc::SYS_sched_yield) };
    }
}

/// Fibonacci hashing of an address, whose lowest bits are zero.
pub fn hash(address: usize) -> u8 {
    ((address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clocks exist on every Linux and the pointer is valid, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    now(libc::CLOCK_MONOTONIC)
}

/// The same, some ms behind, at a quarter of the cost.
pub fn coarse_ns() -> u64 {
    now(libc::CLOCK_MONOTONIC_COARSE)
}

/// Processor time of this process.
pub fn cpu_ns() -> u64 {
    let _errno = Errno::save();
    now(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// True once the deadline is past on its own clock.
pub fn past(deadline: Deadline) -> bool {
    deadline.ns
        <= now(match deadline.clock {
            Clock::Monotonic => libc::CLOCK_MONOTONIC,
            Clock::Realtime => libc::CLOCK_REALTIME,
        })
}
