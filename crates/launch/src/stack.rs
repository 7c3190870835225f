// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stack that is large enough, whatever `ulimit -s` says. Reading arguments takes more than the least
//! that a system allows; and the limit itself stays as it is, for it is also that of the program that we
//! become.

use std::process::ExitCode;

/// BOUND: bytes. A release build ran out of stack with a limit of 40 KiB, and did not with 64.
const ENOUGH: usize = 1 << 20;

/// May the calling thread use as much, as the program's first one?
pub fn is_enough() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live struct.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } == 0;
    !known || limit.rlim_cur >= ENOUGH as u64
}

/// Does the work, on a thread if this one may not use as much stack. An exec there is as good: it ends all
/// other threads. `None` if the thread panicked, which it has said.
pub fn with_enough(work: fn() -> ExitCode) -> Option<ExitCode> {
    if is_enough() {
        return Some(work());
    }
    match std::thread::Builder::new().stack_size(ENOUGH).spawn(work).map(|thread| thread.join()) {
        Ok(ended) => ended.ok(),
        Err(_) => Some(work()),
    }
}
