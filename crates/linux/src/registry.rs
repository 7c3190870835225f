// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arena of this process and the threads in it.
//!
//! Threads register on their first contended operation and unregister when they exit. What is reached from a
//! lock ([`register`], [`live`] and what follows from them) may be called inside `malloc` and in signal
//! handlers: system calls and atomics only, no allocation, no lock, errno unchanged.
//!
//! **State.** A *space* is one range of addresses: what is Local, with a private line for each thread, the
//! arena with its thread blocks, a perf ring for each block (under a small RLIMIT_AS for the first ones only).
//! It is built in private and published by one compare-and-swap of `SPACE`; whoever loses unmaps his own.
//! There is no state "being built" that a signal handler could find. A second thread finds one, and waits,
//! only where a scheduler is asked for its arena (`observe`), and so does a fork.
//!
//! **Fork.** Local is `MADV_WIPEONFORK`: in a child, however it was made, it reads as zeros, so that `view` is unset and
//! [`live`] says no. The child then builds *another* space. It cannot use the old addresses: the perf rings
//! (`VM_DONTCOPY`, the kernel's choice) and the bpf arena (`MADV_DONTFORK`, ours) are holes in the child, in which its
//! own mappings may lie by now. What is left of the old space stays mapped, untouched.
//!
//! Invariants
//!   I1  A published space has a view other than Unset in its Local page, except in a forked copy.
//!   I2  A reader looks at blocks and rings only after `live` said yes, in the same process.
//!   I3  The rings that there are stay mapped in the process that built the space: by perf, or anonymously.
//!   I4  Only the owner of a block changes it from owned to free, except that the block of a thread that the kernel no longer
//!       knows may be freed by anybody, once.
//!   I5  A thread's id is valid if and only if its epoch is that of the live space.
//!   I6  What a lock needs to be safe and live is in Local, which no other process has. The arena may be
//!       another's too: the server's, or a child's that was forked before its descriptor was closed. All that
//!       is read there is a hint.
//!   I7  A library that borrows another one's space has the same layout (`lent`).
//!
//! **Generation.** `TOLD` survives a fork, where Local does not. A space takes the number after it, and
//! whoever tells a generation first stores it there. Without a space, the number of the process stored
//! beside it says whether it was told in this process. That number is in a page that a fork wipes, too. A
//! space that can be had later takes the same generation. So none that was ever told is told again in a
//! child (modulo 8: a lock would have to be copied with its queue through eight forks and a contended
//! operation in each, and never be looked at).
//!
//! **exec** replaces everything. **vfork** and `CLONE_VM` children share the space and the parent's id: they must not
//! take locks, as POSIX says. **dlclose** of a library that contains this would leave the thread-exit destructor dangling: link it
//! with `-z nodelete`.

mod blocks;
mod exit;
mod here;
mod hints;
mod lend;
mod lent;
mod observe;
mod register;
mod space;
mod successor;
mod watch;

pub use lend::{OWNER, adopt};
pub use lent::Owner;
pub use observe::{Refused, load};
pub use register::{give_key_back, register, unregister};
pub use space::{MOST_THREADS, ROOMS, away, generation, live, room, word};
pub use successor::come_back;

/// What is to be done at program start, where it is cheap: see [`crate::prepare`].
#[inline(always)]
pub fn prepare() {
    exit::key();
    observe::inherit();
}
