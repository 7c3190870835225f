// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program's runtime of fibers says of itself, for people: a page of its own, in a memory file.
//!
//! The file's name is [`NAME`], and the program keeps it open. So whoever may read `/proc/PID/fd` of the
//! program finds it there, and needs no other right. The program alone writes, once a second. A reader
//! believes nothing: it reads, and maps nothing.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// What memfd_create(2) calls the file.
pub const NAME: &core::ffi::CStr = c"wakeful-fibers";
/// The first word ("WFIB").
pub const MAGIC: u32 = 0x4249_4657;
/// Version of the page.
pub const VERSION: u32 = 1;
/// Bytes of the file.
pub const SIZE: usize = 4096;

/// The page's beginning. Numbers are hints, and not of the same moment.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Page {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Who writes: another process may have inherited the file.
    pub process: AtomicU32,
    /// Virtual processors.
    pub seats: AtomicU32,
    /// Those that a kernel thread has.
    pub held: AtomicU32,
    /// Kernel threads that run fibers, or sleep until there are some.
    pub carriers: AtomicU32,
    /// Those that lost their virtual processor: blocked in the kernel, or just back.
    pub blocked: AtomicU32,
    /// Zero.
    pub pad: AtomicU32,
    /// Fibers that have not ended.
    pub fibers: AtomicU64,
    /// Those that wait for something but a virtual processor.
    pub waiting: AtomicU64,
    /// When that was, on the monotonic clock.
    pub written_ns: AtomicU64,
}
