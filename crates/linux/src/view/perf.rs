// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unprivileged view: one software perf event a thread, whose newest context-switch record says where the thread is.
//!
//! The event counts nothing (`PERF_COUNT_SW_DUMMY`); it asks only for context-switch records
//! of its own thread, written backward over one data page in overwrite mode, so that the newest record is always
//! at `data_head`. The kernel writes one when the thread leaves a processor (preempted, or else blocked) and
//! one when it comes back. The descriptor is closed at once: the mapping keeps the event alive, so a program that closes all
//! descriptors does no harm.
//!
//! It takes two locked pages a thread, counted against `perf_event_mlock_kb` and then RLIMIT_MEMLOCK; past both, a thread
//! has no event and reads as [`RunState::Unknown`]. The first limit is the
//! user's and shared with all perf sessions of that user.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::*};
use platform::RunState;

use super::{Attached, Slot, Source};
use crate::memory;

/// Bytes that a thread's event needs: the control page and one data page.
pub const RING: usize = 2 * PAGE;
const PAGE: usize = 4096;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const CONTEXT_SWITCH: u64 = 1 << 26;
const WRITE_BACKWARD: u64 = 1 << 27;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const SAMPLE_TIME: u64 = 1 << 2;

const PERF_RECORD_SWITCH: u32 = 14;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// Byte offset of `data_head` in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;

/// `struct perf_event_attr`, its first 96 bytes; the kernel takes the rest as zero.
#[repr(C)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
}

/// The view: see the module.
pub struct Perf;

impl Source for Perf {
    fn attach(slot: Slot) -> Attached {
        // SAFETY: the ring belongs to the block, which is the caller's.
        unsafe { attach(slot.ring) }
    }

    fn detach(slot: Slot) {
        // SAFETY: as in `attach`.
        unsafe { detach(slot.ring) };
    }

    fn switches(slot: Slot) -> u32 {
        // SAFETY: inside the ring, which is mapped, as below. The kernel writes the word.
        let head = unsafe { (*slot.ring.add(DATA_HEAD).cast::<AtomicU64>()).load(Relaxed) };
        // It grows downward; a record at each switch out and in.
        (head.wrapping_neg() / (2 * size_of::<u64>() as u64)) as u32
    }

    #[inline(always)]
    fn run_state(slot: Slot) -> RunState {
        // The owner writes Running once, meaning "ask the ring".
        match slot.block.run_state() {
            // SAFETY: the ring's pages are always mapped: by perf or, before and after, anonymously. Only whoever found the
            // registry live comes here, and so not a forked child of its process, where they are not.
            RunState::Running => unsafe { run_state(slot.ring) },
            state => state,
        }
    }
}

/// Can this process have the view at all? Opens an event of the calling thread and closes it.
///
/// # Errors
/// That of `perf_event_open`.
pub fn probe() -> std::io::Result<()> {
    let fd = open().map_err(std::io::Error::from_raw_os_error)?;
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(fd) };
    Ok(())
}

/// How many threads of this process the view could see now, as far as `most`: opens so many events and closes them
/// again. What limits it is locked memory, which other processes of the same user share.
pub fn room(most: usize) -> usize {
    let size = most * RING;
    // SAFETY: a fresh mapping, wholly ours; each ring lies inside it, and all go with it.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let space = memory::map(core::ptr::null_mut(), size, libc::PROT_READ, flags, -1);
        if space == libc::MAP_FAILED {
            return 0;
        }
        let ring = |index: usize| space.cast::<u8>().add(index * RING);
        let room = (0..most).take_while(|&index| attach(ring(index)) == Attached::Yes).count();
        memory::unmap(space, size);
        room
    }
}

/// The event of the calling thread; an errno value if the kernel will not.
fn open() -> Result<i32, i32> {
    open_with(0, 0, 0)
}

/// The same, and each record has its time and makes the descriptor ready: see `upcall.rs`.
pub(crate) fn open_waking() -> Result<i32, i32> {
    open_with(WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID, 1, SAMPLE_TIME)
}

fn open_with(flags: u64, wakeup: u32, sample_type: u64) -> Result<i32, i32> {
    let attr = Attr {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attr>() as u32,
        config: PERF_COUNT_SW_DUMMY,
        sample_period: 0,
        sample_type,
        read_format: 0,
        flags: EXCLUDE_KERNEL | EXCLUDE_HV | CONTEXT_SWITCH | WRITE_BACKWARD | flags,
        wakeup_events: wakeup,
        bp_type: 0,
        config1: 0,
        config2: 0,
        branch_sample_type: 0,
        sample_regs_user: 0,
        sample_stack_user: 0,
        clockid: libc::CLOCK_MONOTONIC,
    };
    // SAFETY: `attr` is a valid perf_event_attr of the size it states; errno is this thread's.
    unsafe {
        match libc::syscall(libc::SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC) {
            fd if fd >= 0 => Ok(fd as i32),
            _ => Err(*libc::__errno_location()),
        }
    }
}

/// Opens the event of the calling thread and maps it over `ring`.
///
/// # Safety
/// `ring` is the start of [`RING`] bytes of address space that are ours to map over, page aligned.
unsafe fn attach(ring: *mut u8) -> Attached {
    let fd = match open() {
        Ok(fd) => fd,
        // Out of descriptors or memory: the next thread may have more luck.
        Err(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EINTR | libc::EBUSY) => {
            return Attached::NotThis;
        }
        // The paranoid level, seccomp, or a kernel that is too old: so it stays.
        Err(_) => return Attached::Never,
    };
    // SAFETY: MAP_FIXED replaces only pages that the caller owns; read-only means overwrite mode.
    let mapped =
        unsafe { memory::map(ring.cast(), RING, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED, fd) };
    // Not libc's close, which is a cancellation point: no thread may end inside a lock operation.
    // SAFETY: the descriptor is ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
    if mapped == libc::MAP_FAILED {
        // Past the limit of locked memory. A failed MAP_FIXED may have unmapped what was there.
        // SAFETY: as the caller promised.
        unsafe { detach(ring) };
        return Attached::NotThis;
    }
    Attached::Yes
}

/// Ends the event: puts empty pages where it was, in one step, because other threads may be reading.
///
/// # Safety
/// As for [`attach`].
unsafe fn detach(ring: *mut u8) {
    // SAFETY: MAP_FIXED replaces only pages that the caller owns. If it fails for want of memory the old pages stay or the
    // range is unmapped; PROT_NONE|MAP_NORESERVE pages of a range that was mapped before cost nothing, so it does not.
    unsafe {
        memory::map(
            ring.cast::<c_void>(),
            RING,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
        )
    };
}

/// How many bytes of records there were: a number that grows with each.
///
/// # Safety
/// `ring` is [`RING`] readable bytes.
pub(crate) unsafe fn newest(ring: *const u8) -> u64 {
    // SAFETY: as in `run_state`. The kernel writes backward, so its number falls.
    unsafe { (*ring.add(DATA_HEAD).cast::<AtomicU64>()).load(Relaxed).wrapping_neg() }
}

/// HINT: when the newest record was written, on the monotonic clock, if its thread has blocked then.
///
/// # Safety
/// `ring` is [`RING`] readable bytes, of an event of [`open_waking`].
pub(crate) unsafe fn blocked_at(ring: *const u8) -> Option<u64> {
    // SAFETY: as in `run_state`. The time is the second word of a record of 16 bytes.
    unsafe {
        let head = &*ring.add(DATA_HEAD).cast::<AtomicU64>();
        // ORDER: Acquire, as in `run_state`.
        let before = head.load(Acquire);
        let word = &*ring.add(PAGE + ((before as usize + 8) & (PAGE - 8))).cast::<AtomicU64>();
        let time = word.load(Relaxed);
        let state = run_state(ring);
        // A record that is written over this one comes a page later.
        (state == RunState::Blocked && head.load(Relaxed) == before).then_some(time)
    }
}

/// HINT: what the newest record says.
///
/// # Safety
/// `ring` is [`RING`] readable bytes.
#[inline(always)]
pub(crate) unsafe fn run_state(ring: *const u8) -> RunState {
    // SAFETY: both offsets are inside the ring. The kernel writes these words concurrently, hence atomics. A
    // record begins with a word of 8 bytes, aligned, and `data_head` is published after it (the kernel's smp_wmb
    // in perf_output_put_handle).
    unsafe {
        // ORDER: Acquire, pairs with the kernel's smp_wmb; the record is there before data_head says so.
        let head = (*ring.add(DATA_HEAD).cast::<AtomicU64>()).load(Acquire);
        if head == 0 {
            return RunState::Running;
        }
        let record = (*ring.add(PAGE + (head as usize & (PAGE - 8))).cast::<AtomicU64>()).load(Relaxed);
        let kind = record as u32;
        let misc = (record >> 32) as u16;
        if kind != PERF_RECORD_SWITCH {
            RunState::Unknown
        } else if misc & MISC_SWITCH_OUT == 0 {
            RunState::Running
        } else if misc & MISC_SWITCH_OUT_PREEMPT != 0 {
            RunState::Preempted
        } else {
            RunState::Blocked
        }
    }
}
