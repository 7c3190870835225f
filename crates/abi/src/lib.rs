// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes shared by kernel, daemon and application: the arena's layout.
//!
//! The Rust twin of `include/intf.h`, which says who writes each field and why. Every field is an atomic,
//! because somebody else may be writing it; zeros are a valid value of every struct. `tests/twin.rs`
//! compiles the header and compares every size and offset with this file.
//!
//! All of it is hints: what a lock needs to be safe and live is not here.
#![no_std]

macro_rules! from_u32 {
    ($type:ident: $($variant:ident),+; else $default:ident) => {
        impl $type {
            /// The value that a shared word stands for; a word nobody of ours wrote reads as
            #[doc = concat!("`", stringify!($default), "`.")]
            #[inline]
            pub const fn from_u32(word: u32) -> Self {
                $(if word == Self::$variant as u32 { return Self::$variant; })+
                Self::$default
            }
        }
    };
}

pub mod cache;
pub mod environment;
pub mod fibers;
pub mod image;
mod processors;
pub mod profile;
pub mod server;
pub mod state;

pub use processors::Processors;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// `WAKEFUL_MAGIC`: the first word of every arena ("KWFL").
pub const MAGIC: u32 = 0x4c46_574b;
/// Version of the layout.
pub const VERSION: u32 = 2;
/// Thread blocks in an arena; block 0 is never used.
pub const MAX_THREADS: usize = 4096;
/// Processors a partition block can name.
pub const MAX_PROCESSORS: usize = 1024;
/// Where the run state is in a word of [`state`].
pub const RUN_STATE_MASK: u32 = 0xff;
/// Where the wish begins in it.
pub const WISH_SHIFT: u32 = 8;
/// Classes in [`Arena::preempted`]; the five of ICPP 2001 and room.
pub const PRIORITIES: usize = 8;

/// KE-1, the kernel's part: does the thread run? (TR 1994, section 3)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum RunState {
    /// No view knows this thread.
    Unknown = 0,
    /// On a processor.
    Running = 1,
    /// Runnable, but its processor was taken.
    Preempted = 2,
    /// Asleep: it gave its processor up itself.
    Blocked = 3,
}

/// KE-1, the application's part: may the kernel preempt the thread? (TR 1994, figure 1)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Wish {
    /// The kernel is free to preempt.
    Preemptable = 0,
    /// The thread asked not to be preempted.
    UnpreemptableSelf = 1,
    /// Another thread asked for it, handing it a lock.
    UnpreemptableOther = 2,
}

/// User-level priorities, lowest first (ICPP 2001, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Priority {
    /// Waits at a barrier.
    BarrierWaiter = 0,
    /// Waits for a lock.
    LockWaiter = 1,
    /// Takes part in no synchronization.
    Running = 2,
    /// Is the next to be handed a lock.
    LockImmediateWaiter = 3,
    /// Holds a lock.
    LockHolder = 4,
    /// Holds a lock, and did not say so: one who waits for it has.
    AwaitedHolder = 5,
}

/// Which view fills the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum View {
    /// Nothing was chosen yet.
    Unset = 0,
    /// Nobody fills it: handshakes and heuristics.
    None = 1,
    /// One software perf event a thread, unprivileged.
    Perf = 2,
    /// An eBPF program on `sched_switch`.
    Bpf = 3,
}

from_u32!(RunState: Unknown, Running, Preempted, Blocked; else Unknown);
from_u32!(Wish: Preemptable, UnpreemptableSelf, UnpreemptableOther; else Preemptable);
from_u32!(Priority: BarrierWaiter, LockWaiter, Running, LockImmediateWaiter, LockHolder, AwaitedHolder;
    else Running);
from_u32!(View: Unset, None, Perf, Bpf; else Unset);

/// The partition block (KE-3).
#[derive(Debug)]
#[repr(C)]
pub struct Partition {
    /// Processors that are ours; 0: not known. Written by kernel or daemon, by threads of the program when
    /// embedded.
    pub processors: AtomicU32,
    /// Times the partition has changed. Written by the same.
    pub generation: AtomicU32,
    /// SMT siblings on one core; 0 where neither kernel nor daemon keeps this block. Written by them.
    pub threads_per_processor: AtomicU32,
    #[doc(hidden)]
    pub reserved: AtomicU32,
    /// Bit n: processor n is ours. Written by kernel or daemon.
    pub ids: [AtomicU64; MAX_PROCESSORS / 64],
}

/// The head of an arena.
#[derive(Debug)]
#[repr(C)]
pub struct Arena {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Bytes of this struct.
    pub arena_size: AtomicU32,
    /// Bytes of one thread block.
    pub thread_size: AtomicU32,
    /// [`MAX_THREADS`].
    pub max_threads: AtomicU32,
    /// A [`View`].
    pub view: AtomicU32,
    /// KERNEL: 1 while a scheduler acts on the threads' wishes and priorities.
    pub scheduled: AtomicU32,
    #[doc(hidden)]
    pub reserved: [AtomicU32; 9],
    /// KE-3.
    pub partition: Partition,
    /// Preempted threads by the priority they had when preempted. Written by the kernel.
    pub preempted: [AtomicU32; PRIORITIES],
    #[doc(hidden)]
    pub pad: [AtomicU32; 4],
}

/// One thread block, two cache lines (KE-1, KE-2).
#[derive(Debug)]
#[repr(C)]
pub struct Thread {
    /// KE-1 in one word: [`state`]. The kernel writes the run state, the owner and other threads the wish.
    pub state: AtomicU32,
    /// Where it runs or ran last. Written by the kernel.
    pub cpu: AtomicU32,
    /// KE-2: a preemption was put off once. Written by the kernel.
    pub warning: AtomicU32,
    #[doc(hidden)]
    pub reserved: AtomicU32,
    /// Times preempted. Written by the kernel.
    pub preemptions: AtomicU64,
    /// Times blocked. Written by the kernel.
    pub blocks: AtomicU64,
    /// Which use of the block this is: the kernel writes only under the lease that a thread enrolled with.
    /// Written by the owner.
    pub lease: AtomicU32,
    #[doc(hidden)]
    pub lease_reserved: AtomicU32,
    #[doc(hidden)]
    pub kernel_reserved: [AtomicU64; 3],
    /// Kernel thread id; 0: the block is free. Written by the owner, for those who look from outside alone.
    pub tid: AtomicU32,
    /// A [`Priority`]. Written by owner and other threads.
    pub priority: AtomicU32,
    #[doc(hidden)]
    pub owner_reserved: [AtomicU32; 14],
}

impl Thread {
    /// HINT: does it run?
    #[inline(always)]
    pub fn run_state(&self) -> RunState {
        state::run_state(self.state.load(Relaxed))
    }

    /// HINT: may the kernel preempt it?
    #[inline(always)]
    pub fn wish(&self) -> Wish {
        state::wish(self.state.load(Relaxed))
    }
}

const _: () = assert!(size_of::<Thread>() == 128);
const _: () = assert!(size_of::<Arena>().is_multiple_of(64));
